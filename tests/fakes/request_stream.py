"""A steady stream of real client requests beside a test, every answer counted by what it was."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import openai


class RequestStream:
    """Requests one after another on ``clients`` threads until ``stop``; each outcome is kept in order.

    An outcome is ``ok`` or ``<status>`` or the exception's name; a retry-after header is noted as
    ``<status>+retry``.
    """

    def __init__(
        self,
        port: int,
        key: str,
        model: str,
        clients: int = 2,
        max_tokens: int = 4,
        stream: bool = False,
    ) -> None:
        self._client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0, timeout=30
        )
        self._model = model
        self._max_tokens = max_tokens
        self._stream = stream
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self.outcomes: list[tuple[float, str]] = []
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(clients)]

    def __enter__(self) -> RequestStream:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _one(self) -> str:
        try:
            answer: Any = self._client.chat.completions.create(
                model=self._model,
                messages=[{"role": "user", "content": "go on"}],
                max_tokens=self._max_tokens,
                stream=self._stream,
            )
            if self._stream:
                finished = False
                for event in answer:
                    finished = finished or bool(event.choices and event.choices[0].finish_reason)
                return "ok" if finished else "cut"
            return "ok" if answer.choices[0].message.content else "empty"
        except openai.APIStatusError as error:
            retry = "+retry" if "retry-after" in error.response.headers else ""
            return f"{error.status_code}{retry}"
        except openai.APIError as error:
            return type(error).__name__

    def _run(self) -> None:
        while not self._stopping.is_set():
            outcome = self._one()
            with self._lock:
                self.outcomes.append((time.monotonic(), outcome))
            if outcome != "ok":
                time.sleep(0.02)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(40)
        self._client.close()

    def counts(self, since: float = 0.0) -> Counter[str]:
        """How often each outcome was seen since a monotonic time."""
        with self._lock:
            return Counter(outcome for at, outcome in self.outcomes if at >= since)
