"""Asks an engine over HTTP: is it healthy, whom does it serve, does it really generate."""

from __future__ import annotations

import asyncio
import json
from typing import NamedTuple

import aiohttp

from agent.engines.launch_plan import Probes

MODELS_LIMIT = 5.0  # seconds
PROOF_TOKENS = 1


class No(NamedTuple):
    """Why a probe failed. ``silent``: no HTTP answer at all."""

    reason: str
    detail: str
    silent: bool = False


class EngineClient:
    """HTTP to one engine, with its key. At most one proof is outstanding."""

    def __init__(
        self, http: aiohttp.ClientSession, url: str, name: str, key: str, probes: Probes
    ) -> None:
        self._http = http
        self._url = url
        self._name = name
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._probes = probes
        self._proving = asyncio.Lock()

    async def text(self, path: str, limit: float) -> str | No:
        """The body of a 200 answer, else why there is none."""
        return await self._ask("GET", path, limit)

    async def healthy(self, limit: float) -> No | None:
        """None when the health page says yes."""
        answer = await self._ask("GET", self._probes.health, limit)
        return answer if isinstance(answer, No) else None

    async def listed(self) -> No | None:
        """None when /v1/models lists our name."""
        answer = await self._ask("GET", self._probes.models, MODELS_LIMIT)
        if isinstance(answer, No):
            return answer
        try:
            names = [entry["id"] for entry in json.loads(answer)["data"]]
        except (ValueError, KeyError, TypeError):
            return No("bad-models-page", "/v1/models is not a list of models")
        if self._name not in names:
            return No("name-not-listed", f"/v1/models lists {names}, not {self._name!r}")
        return None

    async def proven(self, limit: float) -> No | None:
        """None when one token was generated. A second caller waits for the first."""
        async with self._proving:
            body = {
                "model": self._name,
                "prompt": "Hello",
                "max_tokens": PROOF_TOKENS,
                "temperature": 0,
            }
            answer = await self._ask("POST", self._probes.generate, limit, body)
        if isinstance(answer, No):
            return answer
        try:
            choice = json.loads(answer)["choices"][0]
        except (ValueError, KeyError, TypeError, IndexError):
            return No("bad-generation", "the answer to a completion holds no choice")
        return None if isinstance(choice.get("text"), str) else No("bad-generation", "no text")

    async def _ask(
        self, method: str, path: str, limit: float, body: dict[str, object] | None = None
    ) -> str | No:
        try:
            async with self._http.request(
                method,
                self._url + path,
                json=body,
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=limit),
                allow_redirects=False,
            ) as answer:
                text = await answer.text(errors="replace")
        except TimeoutError:
            return No("no-answer", f"{path}: no answer in {limit:g} s", silent=True)
        except (aiohttp.ClientError, OSError) as error:
            return No("no-connection", f"{path}: {error}", silent=True)
        if answer.status != 200:
            return No("bad-status", f"{path}: status {answer.status}: {text[:200]}")
        return text
