"""Calls to the admin API: one connection per call, JSON both ways, errors as ctl's three lines."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from orchestrator.ctl.errors import BadUsage, Refused, Unreachable

DEFAULT_URL = "http://127.0.0.1:8090"
#: Longer than the orchestrator waits for its store.
ANSWER_LIMIT = 15.0


class AdminClient:
    """One orchestrator's admin API."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        try:
            port = parts.port or 8090
        except ValueError:
            port = 0
        if parts.scheme != "http" or not parts.hostname or not port:
            raise BadUsage(f"{url!r} is not the admin API's address", "", f"--url {DEFAULT_URL}")
        self._host = parts.hostname
        self._port = port

    @property
    def address(self) -> str:
        """host:port."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    def get(self, *path: str, **query: str | int) -> dict[str, Any]:
        """Reads /api/<path>; the parts are quoted."""
        return self._call("GET", path, query, None)

    def post(self, *path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Changes something by POST."""
        return self._call("POST", path, {}, body or {})

    def delete(self, *path: str) -> dict[str, Any]:
        """Takes something away. The content type is sent without a body too (R169)."""
        return self._call("DELETE", path, {}, None)

    def _call(
        self,
        method: str,
        path: tuple[str, ...],
        query: dict[str, str | int],
        body: dict[str, Any] | None,
    ) -> dict[str, Any]:
        target = "/api/" + "/".join(quote(part, safe="") for part in path)
        if query:
            target += "?" + urlencode(query)
        payload = None if body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection(self._host, self._port, timeout=ANSWER_LIMIT)
        try:
            headers = {"Content-Type": "application/json", "Accept": "application/json"}
            connection.request(method, target, payload, headers)
            answer = connection.getresponse()
            status, raw = answer.status, answer.read()
        except TimeoutError:
            raise Unreachable(
                f"the control plane at {self.address} does not answer",
                f"nothing came within {ANSWER_LIMIT:.0f} s",
                f"curl http://{self.address}/healthz",
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            connection.close()
        return self._read(status, raw)

    def _unreachable(self, error: Exception) -> Unreachable:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Unreachable(
            f"cannot reach the control plane at {self.address} ({reason.lower()})",
            "the admin port listens on loopback only:"
            f" ssh -L {self._port}:127.0.0.1:8090 HOST, or set LLMGW_URL",
        )

    def _read(self, status: int, raw: bytes) -> dict[str, Any]:
        try:
            value = json.loads(raw)
        except ValueError:
            value = None
        if isinstance(value, dict) and status < 400:
            return value
        error = value.get("error") if isinstance(value, dict) else None
        # Ours says what kind of error it is; a router's answer has a type besides.
        if not isinstance(error, dict) or "code" not in error or "type" in error:
            raise Unreachable(
                f"what answers at {self.address} is not llmgw's admin API",
                f"it sent status {status} and nothing that the admin API sends",
                "the address that the orchestrator logs at its start",
            )
        kind = Unreachable if status >= 500 else Refused
        raise kind(
            str(error.get("message", f"status {status}")),
            str(error.get("reason", "")),
            str(error.get("remedy", "")),
        )
