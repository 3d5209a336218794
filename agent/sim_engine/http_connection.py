"""One HTTP/1.1 connection of a client: reads requests, writes answers whole or in chunks.

Requests on a connection are answered one after the other. Of the answer that is being made the
connection knows only how to cancel it, and does so as soon as the client is gone.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Protocol

import httptools
import msgspec

from agent.sim_engine.settings import MAX_BODY

JSON = b"application/json"
EVENTS = b"text/event-stream; charset=utf-8"
_LAST_CHUNK = b"0\r\n\r\n"


def as_chunk(data: bytes) -> bytes:
    """One chunk of a chunked body; data must not be empty, which would mean the end."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Request(msgspec.Struct, frozen=True):
    """headers: names in lower case; of a repeated one the last. too_big: the body was dropped."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    too_big: bool


class Served(Protocol):
    """What a connection needs of the server."""

    connections: set[HttpConnection]
    closing: bool
    log_requests: bool

    def handle(self, connection: HttpConnection, request: Request) -> None:
        """Answers at once, or keeps the connection and answers later."""


class HttpConnection(asyncio.Protocol):
    def __init__(self, served: Served) -> None:
        self._served = served
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # set when made
        self._requests: deque[Request] = deque()
        self._begin()
        self._answering: Request | None = None
        self._began = 0.0
        self._reading = False  # a request has begun and is not complete
        self._last = False  # nothing more is read
        #: Called when the client goes away before its answer is complete.
        self.cancel: Callable[[], None] | None = None
        #: Since when (time.monotonic) nothing is asked and nothing answered; None: busy.
        self.idle_since: float | None = time.monotonic()

    # The protocol's side: bytes in.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream's transport writes
        self._served.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._served.connections.discard(self)
        self._requests.clear()
        if self.cancel is not None:
            self.cancel()
            self.cancel = None

    def data_received(self, data: bytes) -> None:
        if self._last:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._last = True  # the request itself is answered, the other protocol is not spoken
        except httptools.HttpParserError as wrong:
            self._last = True
            if self._answering is None and not self._requests:
                self._answering = Request("-", "-", {}, b"", False)
                body = {"message": f"This is not HTTP/1.1: {wrong}", "type": "BadRequestError"}
                self.answer(400, msgspec.json.encode({"error": {**body, "code": 400}}))
        self._next()

    # The parser's side: parts of a request.

    def _begin(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0

    def on_message_begin(self) -> None:
        self._begin()
        self._reading = True
        self.idle_since = None

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > MAX_BODY:
            self._body.clear()
        else:
            self._body.append(part)

    def on_message_complete(self) -> None:
        self._reading = False
        if not self._parser.should_keep_alive():
            self._last = True
        path = self._url.partition(b"?")[0].decode("latin-1")
        method = self._parser.get_method().decode("latin-1")
        too_big = self._size > MAX_BODY
        body = b"" if too_big else b"".join(self._body)
        self._requests.append(Request(method, path, self._headers, body, too_big))

    def _next(self) -> None:
        while self._answering is None and self._requests and not self._transport.is_closing():
            self._answering = self._requests.popleft()
            self._began = time.monotonic()
            self.idle_since = None
            self._served.handle(self, self._answering)

    # The answer's side: bytes out.

    @property
    def peer(self) -> str:
        """The client's address, without the port."""
        return str(self._transport.get_extra_info("peername")[0])

    def answer(
        self, status: int, body: bytes, content_type: bytes = JSON, headers: bytes = b""
    ) -> None:
        """A whole answer. headers: further header lines, each with its line end."""
        head = b"%scontent-length: %d\r\n%s\r\n" % (
            self._head(status, content_type),
            len(body),
            headers,
        )
        bodiless = self._answering is not None and self._answering.method == "HEAD"
        self._transport.write(head if bodiless else head + body)
        self._end(status)

    def open_stream(self) -> None:
        self._transport.write(self._head(200, EVENTS) + b"transfer-encoding: chunked\r\n\r\n")

    def send(self, chunk: bytes) -> None:
        """A part of a stream, made by as_chunk."""
        self._transport.write(chunk)

    def close_stream(self, data: bytes) -> None:
        self._transport.write(as_chunk(data) + _LAST_CHUNK)
        self._end(200)

    def break_off(self) -> None:
        """Ends the connection in the middle of the answer."""
        self._transport.close()

    def close_if_idle(self, since: float) -> None:
        """Closes the connection if it has been idle since then or longer."""
        if self.idle_since is not None and self.idle_since <= since:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def _head(self, status: int, content_type: bytes) -> bytes:
        closes = b"connection: close\r\n" if self._last or self._served.closing else b""
        return b"HTTP/1.1 %d %b\r\nserver: llmgw-sim\r\ncontent-type: %b\r\n%b" % (
            status,
            HTTPStatus(status).phrase.encode(),
            content_type,
            closes,
        )

    def _end(self, status: int) -> None:
        request, self._answering, self.cancel = self._answering, None, None
        now = time.monotonic()
        self.idle_since = None if self._reading else now
        if self._served.log_requests and request is not None:
            took = 1000 * (now - self._began)
            print(f"{request.method} {request.path} {status} {took:.1f} ms", file=sys.stderr)
        if self._served.closing or (self._last and not self._requests):
            self._transport.close()
        elif self._requests:
            asyncio.get_running_loop().call_soon(self._next)
