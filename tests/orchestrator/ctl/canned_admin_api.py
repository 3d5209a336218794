"""An admin API that answers what it was told to, and notes what it was asked."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

AS_OF = "2026-12-01T10:00:00.000Z"


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    content_type: str | None
    body: Any


class CannedAdminApi:
    """``answers``: (method, path without query) -> (status, JSON), or a list of them to give in turn."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Any] = {}
        self.asked: list[Asked] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def items(self, what: str, *items: dict[str, Any], **more: Any) -> None:
        """The answer to a list."""
        answer = {"items": list(items), "as_of": AS_OF, **more}
        self.answers["GET", f"/api/{what}"] = (200, answer)

    def answer(self, asked: Asked) -> tuple[int, Any]:
        self.asked.append(asked)
        found = self.answers.get((asked.method, asked.path.partition("?")[0]))
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        if found is None:
            found = (404, {"error": {"code": "not_found", "message": f"no {asked.path}"}})
        status, answer = found
        return int(status), answer


@contextlib.contextmanager
def canned_admin_api() -> Iterator[CannedAdminApi]:
    """Listens on a port of its own until left."""
    api = CannedAdminApi()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            raw = self.rfile.read(length)
            asked = Asked(
                self.command,
                self.path,
                self.headers.get("Content-Type"),
                json.loads(raw) if raw else None,
            )
            status, answer = api.answer(asked)
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = handle_any

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    api.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
