"""What ``llmgw up`` asks of its own router and orchestrator, over loopback."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from typing import Any

from orchestrator.up.errors import NoAnswer


def call(
    port: int, method: str, path: str, body: object = None, key: str | None = None
) -> tuple[int, Any]:
    """One JSON call to loopback: (status, decoded body or None). OSError when nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        headers = {"content-type": "application/json"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        payload = None if body is None else json.dumps(body).encode()
        connection.request(method, path, payload, headers)
        answer = connection.getresponse()
        raw = answer.read()
    except http.client.HTTPException as error:
        raise OSError(f"no whole answer from port {port}: {error}") from None
    finally:
        connection.close()
    try:
        return answer.status, json.loads(raw)
    except ValueError:
        return answer.status, None


def ask(port: int, key: str, model: str, question: str, limit: float = 120.0) -> Iterator[str]:
    """A streamed chat answer, piece by piece; NoAnswer says what came instead."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=limit)
    body = {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "stream": True,
        "temperature": 0,
        "max_tokens": 256,
    }
    try:
        connection.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json", "authorization": f"Bearer {key}"},
        )
        answer = connection.getresponse()
        if answer.status != 200:
            raise NoAnswer(
                f"{model} answered {answer.status}", answer.read(4096).decode("utf-8", "replace")
            )
        ended = False
        for line in answer:
            data = line.strip().removeprefix(b"data: ")
            if data == b"[DONE]":
                ended = True
            elif data.startswith(b"{"):
                event = json.loads(data)
                if "error" in event:
                    raise NoAnswer(f"{model} broke off", str(event["error"].get("message")))
                for choice in event.get("choices", []):
                    if text := choice.get("delta", {}).get("content"):
                        yield text
        if not ended:
            raise NoAnswer(f"{model} broke off", "the stream ended without its terminator")
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(f"{model} did not answer", str(error)) from None
    finally:
        connection.close()


def timed_ask(port: int, key: str, model: str, question: str) -> tuple[str, float, float]:
    """(answer, seconds to the first piece, seconds in all)."""
    began = time.monotonic()
    pieces = []
    first = None
    for piece in ask(port, key, model, question):
        if first is None:
            first = time.monotonic() - began
        pieces.append(piece)
    if first is None:
        raise NoAnswer(f"{model} answered with nothing")
    return "".join(pieces), first, time.monotonic() - began
