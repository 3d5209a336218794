"""One client's connection in HTTP/1.1: it reads requests, one after the other, and ends.

What it is at is its ``Reading``; what comes too early waits in a bounded buffer. Answers are written by the exchange
(``http1_exchange``), which tells the connection when its answer has ended. It has no timer: ``deadline`` is looked at
by the front's sweep.
"""

from __future__ import annotations

import asyncio
import enum
import math
import os
from typing import TYPE_CHECKING, Any, cast

from router.answer_head import head_bytes, header_lines
from router.chunked_body import BrokenChunks, ChunkedBody
from router.client_socket import reset_after_arrival
from router.error_answers import body_of, headers_of
from router.errors import Overloaded, RouterError
from router.front import DISCARD_BYTES, DISCARD_S, HEAD_LIMIT
from router.http1_exchange import HELD_UNASKED, Http1Exchange
from router.request_head import CHUNKED, HeadRefused, RequestHead, read_head

if TYPE_CHECKING:
    from router.http1_front import Http1Front

#: An idle connection is closed after this.
KEEP_ALIVE_S = 75.0
#: A head must be whole so long after its first byte.
HEAD_TIME_S = 30.0
_NEVER = math.inf


class Reading(enum.Enum):
    """What the next bytes are."""

    HEAD = "head"
    BODY = "body"
    #: Of a later request: the present one is whole.
    EARLY = "early"
    #: Nothing that is looked at: the last answer was given, and the client may still be writing.
    LATE = "late"


_HEAD, _BODY, _EARLY, _LATE = Reading.HEAD, Reading.BODY, Reading.EARLY, Reading.LATE


class Http1Connection(asyncio.Protocol):
    """What asyncio calls, and what an exchange does to its connection."""

    __slots__ = (
        "_buffer", "_chunks", "_discarded", "_exchange", "_front", "_missing", "_reading",
        "_transport", "_unsent", "client", "deadline", "unsent",
    )  # fmt: skip

    def __init__(self, front: Http1Front) -> None:
        self._front = front
        self._transport: Any = None
        self._exchange: Http1Exchange | None = None
        self._reading = _HEAD
        #: The begin of a head, or what came too early.
        self._buffer = bytearray()
        self._chunks: ChunkedBody | None = None
        self._missing = 0
        self._discarded = 0
        self._unsent = 0
        self.client = ""
        #: Loop time at which the sweep calls ``on_deadline``.
        self.deadline = _NEVER
        #: Whether more waits to be taken by the client than should.
        self.unsent = False

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if peer:
            host, port = peer[:2]
            self.client = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.deadline = self._front.loop.time() + KEEP_ALIVE_S
        self._front.connection_made(self)

    def data_received(self, data: bytes) -> None:
        if self._reading is _HEAD and not self._buffer:
            end = data.find(b"\r\n\r\n") + 4
            if 4 < end <= HEAD_LIMIT and data[0] != 13:
                # The usual case: a head in one read, mostly with its body.
                head = self._read_head(data if len(data) == end else data[:end])
                if head is not None:
                    self._begin(head, data, end)
                return
        self._take(data)

    def pause_writing(self) -> None:
        self.unsent = True

    def resume_writing(self) -> None:
        self.unsent = False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._reading = _LATE
        self._buffer.clear()
        exchange, self._exchange = self._exchange, None
        self._front.connection_lost(self)
        if exchange is not None:
            exchange.client_left()

    # Reading.

    def _take(self, data: bytes) -> None:
        match self._reading:
            case Reading.HEAD:
                self._take_of_head(data)
            case Reading.BODY:
                self._take_of_body(data)
            case Reading.EARLY:
                self._buffer += data
                if len(self._buffer) > HELD_UNASKED and self._transport is not None:
                    self._transport.pause_reading()
            case Reading.LATE:
                self._discard(len(data))

    def _take_of_head(self, data: bytes) -> None:
        buffer = self._buffer
        if not buffer:
            self.deadline = self._front.loop.time() + HEAD_TIME_S
        seen = max(0, len(buffer) - 3)
        buffer += data
        self._look_for_head(seen)

    def _look_for_head(self, seen: int) -> None:
        buffer = self._buffer
        # Empty lines before a request are an old habit of clients.
        while buffer.startswith(b"\r\n"):
            del buffer[:2]
            seen = 0
        end = buffer.find(b"\r\n\r\n", seen) + 4
        if end > HEAD_LIMIT or (end == 3 and len(buffer) > HEAD_LIMIT):
            self.refuse(431, f"the head is longer than {HEAD_LIMIT} bytes")
        elif end > 3 and (head := self._read_head(bytes(buffer[:end]))) is not None:
            # Only its own bytes are taken out: many small requests in one read are not copied each time.
            size = len(buffer) if head.length == CHUNKED else end + head.length
            data = bytes(buffer[:size])
            del buffer[:size]
            self._begin(head, data, end)

    def _read_head(self, raw: bytes) -> RequestHead | None:
        try:
            return read_head(raw)
        except HeadRefused as refused:
            self.refuse(refused.status, refused.why)
            return None

    def _begin(self, head: RequestHead, data: bytes, end: int) -> None:
        """A request whose head ends at ``end``; what follows there is its body, and perhaps more."""
        front = self._front
        exchange = Http1Exchange(self, front, self._transport, head)
        self._exchange = exchange
        self.deadline = _NEVER
        self._reading = _EARLY
        length = head.length
        whole = end + length
        if length == CHUNKED:
            self._reading = _BODY
            self._chunks = ChunkedBody()
            exchange.collected = bytearray()
            self._take_of_body(data[end:])
        elif whole <= len(data):
            if length:
                exchange.body = data[end:whole]
            if whole < len(data):
                self._buffer += data[whole:]
        else:
            self._reading = _BODY
            self._missing = length
            exchange.collected = bytearray()
            if end < len(data):
                self._take_of_body(data[end:])
        front.begin(exchange)

    def _take_of_body(self, data: bytes) -> None:
        exchange = self._exchange
        wanted = exchange is not None and not exchange.body_refused
        into = exchange.collected if exchange is not None and wanted else bytearray()
        rest: bytes | None = None
        if self._chunks is not None:
            try:
                rest = self._chunks.feed(data, into)
            except BrokenChunks:
                self._body_broken()
                return
        elif len(data) < self._missing:
            self._missing -= len(data)
            into += data
        else:
            missing, self._missing = self._missing, 0
            rest = data[missing:]
            if wanted and exchange is not None and not into:
                exchange.body = data if not rest else data[:missing]
            else:
                into += data[:missing]
        if rest is not None:
            self._chunks = None
            self._reading = _EARLY
            self._buffer += rest
        if exchange is None:
            # Answered already: what comes is thrown away.
            if rest is None:
                self._discard(len(data))
            else:
                self._await_request()
        elif wanted:
            exchange.body_grew(whole=rest is not None)

    def _body_broken(self) -> None:
        """What follows has no meaning any more: the present answer is the last one."""
        self._chunks = None
        self._reading = _LATE
        exchange = self._exchange
        if exchange is None:
            self._end_after_answer()
        else:
            exchange.body_broke()

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > DISCARD_BYTES:
            self.abort()

    def pause_body(self) -> None:
        """Read no more of a body that nobody has asked for."""
        self._transport.pause_reading()

    def resume_body(self) -> None:
        """Somebody asks for it now."""
        if self._transport is not None:
            self._transport.resume_reading()

    # The end of an answer, and of the connection.

    def answer_ended(self, *, last: bool) -> None:
        """The exchange has written all; ``last``: the client was told that the connection ends."""
        self._exchange = None
        self._discarded = 0
        if self._transport is None:
            return
        if last or self._reading is _LATE:
            self._end_after_answer()
        elif self._reading is _EARLY:
            self._await_request()
        else:
            self._transport.resume_reading()
            self.deadline = self._front.loop.time() + DISCARD_S

    def end_by_reset(self) -> None:
        """The same after an answer that is not whole and has no other way to show it."""
        self._exchange = None
        self._reading = _LATE
        self._buffer.clear()
        if self._transport is not None:
            self.deadline = self._front.loop.time() + DISCARD_S
            self._front.run(reset_after_arrival(self._transport))

    @property
    def body_open(self) -> bool:
        """Whether the body of the present request has not come whole."""
        return self._reading is _BODY

    @property
    def broken(self) -> bool:
        """Whether nothing that the client sends is understood any more."""
        return self._reading is _LATE

    def _await_request(self) -> None:
        self.deadline = self._front.loop.time() + KEEP_ALIVE_S
        if self._buffer:
            # By the loop, not from here: a row of small requests must not become a deep stack.
            self._front.loop.call_soon(self._begin_early)
        else:
            self._reading = _HEAD
            if self._front.closing:
                self._transport.close()

    def _begin_early(self) -> None:
        """The next request, from what came too early."""
        if self._transport is None:
            return
        self._reading = _HEAD
        self.deadline = self._front.loop.time() + HEAD_TIME_S
        self._look_for_head(0)
        if len(self._buffer) <= HELD_UNASKED and self._transport is not None:
            self._transport.resume_reading()
        if self._front.closing:
            self.close_idle()

    def _end_after_answer(self) -> None:
        """End the connection so that the client gets to read its answer.

        Closed with unread bytes, the kernel would send a reset, and that can overtake the answer: if the client
        may be writing, our side is ended only, and what still comes is thrown away for a while.
        """
        transport = self._transport
        self.deadline = self._front.loop.time() + DISCARD_S
        if self._reading is _EARLY and not self._buffer:
            transport.close()
        else:
            transport.write_eof()
            transport.resume_reading()
            self._discarded = 0
            self._buffer.clear()
        self._reading = _LATE

    def refuse(self, status: int, why: str) -> None:
        """Answer what is no request of anybody's, in the usual form, and end the connection."""
        request_id = f"req-{os.urandom(8).hex()}"
        error = RouterError(why, hopeless=status > 500)
        if status == 503:
            error = Overloaded(why, retry_after=1.0)
        body = body_of(error, "openai", request_id)
        lines = header_lines([("x-request-id", request_id), *headers_of(error)])
        head = f"{self._front.heads.begin(status)}{lines}content-length: {len(body)}\r\n"
        if status == 405:
            head += "allow: GET, HEAD, POST\r\n"
        self._transport.write(head_bytes(f"{head}connection: close\r\n\r\n") + body)
        self._reading = _LATE
        self._end_after_answer()

    def on_deadline(self, now: float) -> None:
        """The sweep: it is over, unless the client still takes what was written for it."""
        transport = self._transport
        if transport is None:
            return
        if self._reading is _HEAD and self._buffer:
            self.refuse(408, f"the head did not arrive within {HEAD_TIME_S:g} s")
            return
        left = transport.get_write_buffer_size()
        if left and left != self._unsent:
            self._unsent = left
            self.deadline = now + (KEEP_ALIVE_S if self._reading is _HEAD else DISCARD_S)
        else:
            transport.abort()

    def close_idle(self) -> None:
        """Close when no request is being answered."""
        if self._transport is not None and self._exchange is None and self._reading is _HEAD:
            self._transport.close()

    def abort(self) -> None:
        """End at once."""
        if self._transport is not None:
            self._transport.abort()
