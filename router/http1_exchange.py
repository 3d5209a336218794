"""One request in HTTP/1.1 and its answer: the ``Exchange`` over a connection of ours.

The connection brings the body, in one piece or growing; the answer is written to the transport from here. The
transport makes a system call of each write, which costs more than all else that is done for a chunk of a stream. So a
head waits for the first chunk. And a chunk is written at once, unless one was in the same millisecond: then it goes with
those that follow it, at the end of the loop's turn. A stream with a chunk now and then is never held up, and a
router that has fallen behind reads more at once and writes it in one piece.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from router.answer_head import has_no_body, head_bytes, header_lines
from router.body_errors import BodiesHeld, BodyCut, BodyTooLarge, BodyTooSlow
from router.exchange import Headers
from router.front import OWN_MISTAKE, PLAIN
from router.request_head import CHUNKED, RequestHead

if TYPE_CHECKING:
    from router.http1_connection import Http1Connection
    from router.http1_front import Http1Front

#: Bytes of a body that nobody has asked for yet, and of requests that came too early: then nothing is read.
HELD_UNASKED = 64 * 1024
#: Larger bodies are not copied to be written in one piece with their head.
JOINED_SIZE = 64 * 1024


class Answering(enum.Enum):
    """How far an answer is."""

    NOT_YET = "not yet"
    STREAMING = "streaming"
    ENDED = "ended"


_NOT_YET, _STREAMING, _ENDED = Answering.NOT_YET, Answering.STREAMING, Answering.ENDED


class Http1Exchange:
    """One request; implements ``router.exchange.Exchange``."""

    __slots__ = (
        "_answering", "_bare", "_chunked", "_connection", "_front", "_gone", "_head", "_held",
        "_last", "_transport", "_unwritten", "_waiting", "_wrote_at", "began", "body", "body_cap", "body_refused", "client",
        "collected", "header", "method", "path", "sent",
    )  # fmt: skip

    def __init__(
        self, connection: Http1Connection, front: Http1Front, transport: Any, head: RequestHead
    ) -> None:
        self._connection = connection
        self._front = front
        #: None when the client has left or the answer has ended.
        self._transport = transport
        self._head = head
        self.header = head.header
        self.method = head.method
        self.path = head.path
        self.client = connection.client
        self.began: float = front.loop.time()
        self.sent = 0
        #: The body when it is whole; until then it grows in ``collected``.
        self.body: bytes | None = None
        self.collected: bytearray = _NOTHING
        #: No byte of the body is kept any more.
        self.body_refused = False
        #: While somebody waits for the body; how large it may grow.
        self._waiting: asyncio.Future[bytes] | None = None
        self.body_cap = 0
        self._held = 0
        self._gone: Callable[[], None] | None = None
        self._answering = _NOT_YET
        self._last = False
        self._bare = False
        self._chunked = False
        #: What of a stream is still to be written in this turn, and loop time of the last write at once.
        self._unwritten: list[bytes] = []
        self._wrote_at = -1.0

    # Body

    def whole_body(self) -> bytes | None:
        body = self.body
        if body is None:
            return None if self._head.length else b""
        config = self._front.config
        if not self._held:
            size = len(body)
            if size > config.body_cap or self._front.bodies_held + size > config.bodies_held_cap:
                # `read_body` says which.
                return None
            self._hold(size)
        return body

    async def read_body(self, cap: int) -> bytes:
        length = self._head.length
        if not length:
            return b""
        if length > cap:
            self._refuse_body(BodyTooLarge(cap, length))
            raise BodyTooLarge(cap, length)
        if not self._held:
            self._hold(length if length > 0 else len(self.body or self.collected))
        body = self.body
        if body is None:
            body = await self._wait_for_body(cap)
        if len(body) > cap:
            raise BodyTooLarge(cap, None)
        return body

    async def _wait_for_body(self, cap: int) -> bytes:
        connection = self._connection
        front = self._front
        if self._transport is None or not connection.body_open:
            raise BodyCut(left=self._transport is None)
        self.body_cap = cap
        if self._head.newer and self._expects() and not self.collected:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        waiting: asyncio.Future[bytes] = front.loop.create_future()
        self._waiting = waiting
        front.reading.add(self)
        connection.resume_body()
        try:
            return await waiting
        finally:
            self._waiting = None
            self.body_refused = True
            front.reading.discard(self)

    def body_grew(self, *, whole: bool) -> None:
        """More of it is there, or all of it."""
        waiting = self._waiting
        collected = self.collected
        size = len(collected)
        if waiting is not None and self._head.length == CHUNKED:
            try:
                if size > self.body_cap:
                    raise BodyTooLarge(self.body_cap, None)
                self._hold(size - self._held)
            except (BodyTooLarge, BodiesHeld) as error:
                self._refuse_body(error)
                return
        if whole:
            body = self.body
            if body is None:
                body = self.body = bytes(collected)
                self.collected = _NOTHING
            if waiting is not None and not waiting.done():
                waiting.set_result(body)
        elif waiting is None and size > HELD_UNASKED:
            self._connection.pause_body()

    def body_broke(self) -> None:
        """It ends here, and not as it should."""
        self._refuse_body(BodyCut())

    def check_body_time(self, now: float) -> None:
        """The sweep, while somebody waits for the body."""
        length = self._head.length
        limit = self._front.time_for(self._held if length == CHUNKED else length)
        if now >= self.began + limit:
            self._refuse_body(BodyTooSlow(limit))

    def _refuse_body(self, error: Exception) -> None:
        self.body_refused = True
        self.collected = _NOTHING
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)

    def _hold(self, size: int) -> None:
        self._front.hold(size)
        self._held += size

    def _expects(self) -> bool:
        expect = self.header("expect")
        return expect is not None and expect.lower() == "100-continue"

    # Answer

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        assert self._answering is _NOT_YET
        self.sent = len(body)
        transport = self._transport
        if transport is None:
            self._finish()
            return
        begin = self._begin(status)
        if has_no_body(self.method, status):
            length = f"content-length: {len(body)}\r\n" if self.method == "HEAD" else ""
            body = b""
        else:
            length = f"content-length: {len(body)}\r\n"
        head = head_bytes(f"{begin}{header_lines(headers)}{length}\r\n")
        self._finish()
        if len(body) <= JOINED_SIZE:
            transport.write(head + body)
        else:
            transport.writelines((head, body))
        self._connection.answer_ended(last=self._last)

    def start(self, status: int, headers: Headers) -> None:
        assert self._answering is _NOT_YET
        self._answering = _STREAMING
        # A stream may last for minutes, and its request is not asked for again.
        self.body_refused = True
        self._release_body()
        transport = self._transport
        if transport is None:
            return
        self._bare = has_no_body(self.method, status)
        # Without chunks the end of the connection is the end of the answer.
        self._chunked = self._head.newer
        begin = self._begin(status, ends_by_close=not (self._chunked or self._bare))
        coding = "transfer-encoding: chunked\r\n" if self._chunked and not self._bare else ""
        self._unwritten = [head_bytes(f"{begin}{header_lines(headers)}{coding}\r\n")]
        self._front.loop.call_soon(self._write_rest)

    def _begin(self, status: int, *, ends_by_close: bool = False) -> str:
        """The head's begin, up to the application's headers; decides whether the connection goes on."""
        head, front, connection = self._head, self._front, self._connection
        heads = front.heads
        begin = heads.begins.get(status) or heads.begin(status)
        if (
            not head.keep
            or front.draining
            or ends_by_close
            or connection.broken
            # Whether the body still comes is the client's free choice.
            or (connection.body_open and self._expects())
        ):
            self._last = True
            return f"{begin}connection: close\r\n"
        return begin if head.newer else f"{begin}connection: keep-alive\r\n"

    def send(self, chunk: bytes) -> bool:
        transport = self._transport
        if transport is None:
            return False
        size = len(chunk)
        self.sent += size
        if not size or self._bare:
            return True
        if self._chunked:
            chunk = b"%x\r\n%b\r\n" % (size, chunk)
        now = self._front.loop.time()
        unwritten = self._unwritten
        if now == self._wrote_at:
            unwritten.append(chunk)
            if len(unwritten) == 1:
                self._front.loop.call_soon(self._write_rest)
            return True
        self._wrote_at = now
        if unwritten:
            unwritten.append(chunk)
            chunk = b"".join(unwritten)
            unwritten.clear()
        transport.write(chunk)
        return True

    def _write_rest(self) -> None:
        if self._unwritten and self._transport is not None:
            self._transport.write(b"".join(self._unwritten))
            self._unwritten.clear()

    def end(self) -> None:
        assert self._answering is _STREAMING
        if self._chunked and not self._bare:
            self._unwritten.append(b"0\r\n\r\n")
        self._write_rest()
        self._finish()
        self._connection.answer_ended(last=self._last)

    def cut(self, last: bytes) -> None:
        assert self._answering is _STREAMING
        self.send(last)
        transport = self._transport
        self._write_rest()
        self._finish()
        if transport is None:
            return
        if self._chunked:
            self._connection.answer_ended(last=True)
        else:
            # An end of the connection would be a clean end of the answer.
            self._connection.end_by_reset()

    def fail(self) -> None:
        """After a mistake of ours: an answer if there is none, an unclean end if it has begun."""
        if self._answering is _STREAMING:
            self.cut(b"")
        elif self._answering is _NOT_YET:
            self.respond(500, PLAIN, OWN_MISTAKE)

    def _finish(self) -> None:
        """The answer has its end: give back everything."""
        self._answering = _ENDED
        self._transport = self._gone = None
        self._release_body()

    def _release_body(self) -> None:
        self.body = None
        self.collected = _NOTHING
        if self._held:
            self._front.bodies_held -= self._held
            self._held = 0

    # Client

    def on_gone(self, callback: Callable[[], None] | None) -> None:
        self._gone = callback
        if callback is not None and self._transport is None and self._answering is not _ENDED:
            self._front.loop.call_soon(self.client_left)

    def client_left(self) -> None:
        """The connection is lost before the answer's end."""
        self._transport = None
        self._refuse_body(BodyCut(left=True))
        callback, self._gone = self._gone, None
        if callback is not None:
            callback()

    def unsent_since(self) -> bool:
        return self._transport is not None and self._connection.unsent


#: Stands where nothing is collected; nobody writes to it.
_NOTHING = bytearray()
