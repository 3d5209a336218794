"""One try of one request at one engine: what is sent, what comes back, and how it ended.

The engine's status and headers are held back until the first event of the body that is no SSE comment.
Until then another engine may be tried; from then on the bytes belong to the client, and an engine that
breaks is shown as broken. A stream passes event by event: what is no whole event yet waits, so that an
error event of ours never lands inside one of the engine's.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable

import msgspec

from ext.sse import EventScanner
from orchestrator.wire.snapshots import Timeouts
from router.bookings import Booking
from router.exchange import Exchange
from router.rename import NameSplicer, keep_whole_events, names_other, rename_body
from router.routes import Terminator
from router.upstream import Connection, EnginePool, Fault, WholeAnswer

MIB = 1024 * 1024
#: Of an engine's error body, which is neither logged nor kept.
ERROR_BODY_CAP = 64 * 1024
#: An unfinished event above this passes as it is.
HELD_EVENT_CAP = MIB
#: After each of these the client's socket is asked whether it keeps up.
CHECKED_EVERY = MIB
SLOW_LOOK_S = 0.05
#: An engine that says it cannot now: another one is asked.
RETRIED_STATUSES = frozenset({429, 502, 503, 504})
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")


class Ending(enum.Enum):
    """How a try ended."""

    #: The answer is whole: a stream has been sent and wants its end, any other has its body here.
    WHOLE = "whole"
    #: Nothing reached the client; another engine may be tried.
    FAILED = "failed"
    #: The client has a part; it is to be told that the rest does not come.
    BROKEN = "broken"
    #: The client left, or reads too slowly to be waited for.
    GONE = "client_gone"
    #: A limit passed before the first byte.
    LATE = "timeout"
    #: The router ends, and the client has nothing yet.
    STOPPED = "stopping"


class Sending:
    """What is sent, and how the answer is to be read.

    ``asked``: what the client called the model, as the answer must. ``rename``: the engine is known to
    answer under another name. ``limits`` count from ingress to the first byte and in all, and between
    bytes. ``headers``: gives those of ours on a streamed answer.
    """

    __slots__ = ("asked", "body", "head", "headers", "limits", "rename", "terminator")

    def __init__(
        self,
        head: bytes,
        body: bytes,
        asked: str,
        rename: bool,
        terminator: Terminator,
        limits: Timeouts,
        headers: Callable[[], list[tuple[str, str]]],
    ) -> None:
        self.head = head
        self.body = body
        self.asked = asked
        self.rename = rename
        self.terminator = terminator
        self.limits = limits
        self.headers = headers


class Relay:
    """A receiver of one answer. ``ended`` is called once, in the step in which the try has ended."""

    # Defaults are on the class: most of them never change in a request that does not stream.
    ending: Ending | None = None
    #: A named reason of every ending but WHOLE.
    reason = ""
    #: The ending says nothing about the engine.
    undecided = False
    status = 0
    content_type = ""
    content_encoding: str | None = None
    retry_after: str | None = None
    truncated = False
    #: Loop time at which the first byte of the answer's body came.
    first_byte: float | None = None
    #: Reads along while the answer is a stream of events.
    scanner: EventScanner | None = None
    _connection: Connection | None = None
    _connecting: asyncio.Task[None] | None = None
    _replayed = False
    _stream = False
    #: A stream that cannot be read (encoded): passed as it comes.
    _opaque = False
    _began_passing = False
    _size = 0
    _tail = b""
    _splicer: NameSplicer | None = None
    #: The scanner's ``feed`` once the stream has begun and passes as it is.
    _feed: Callable[[bytes], int] | None = None
    _checked = 0
    _slow_since: float | None = None
    #: Counts pieces of the body; the sweep compares it with what it saw last.
    _progress = 0
    _seen_progress = 0
    _seen_progress_at = 0.0

    def __init__(
        self,
        exchange: Exchange,
        loop: asyncio.AbstractEventLoop,
        pool: EnginePool,
        booking: Booking,
        sending: Sending,
        ended: Callable[[Relay], None],
    ) -> None:
        self._exchange = exchange
        self._loop = loop
        self._pool = pool
        self._sending = sending
        self._ended = ended
        self.booking = booking
        #: Loop time at which the request was sent.
        self.sent_at = loop.time()
        self._parts: list[bytes] = []
        if sending.rename:
            self._splicer = NameSplicer(sending.asked)

    @property
    def streaming(self) -> bool:
        """Whether the client's answer has begun."""
        return self._began_passing

    def start(self) -> None:
        """Send on an idle connection, or open one first."""
        connection = self._pool.take()
        if connection is None:
            self._connecting = self._pool.connect(self)
        else:
            self._send_on(connection)

    def client_left(self) -> None:
        """The client is gone: the engine's connection is closed at once."""
        self._end(Ending.GONE, "client_gone", undecided=True)

    def abandon(self) -> None:
        """The request is given up from outside (the process ends); its client is told."""
        ending = Ending.BROKEN if self._began_passing else Ending.STOPPED
        self._end(ending, "stopping", undecided=True)

    def drop(self) -> None:
        """The try is given up by whoever began it; ``ended`` is not called."""
        self._ended = _unheard
        self._end(Ending.GONE, "dropped", undecided=True)

    def body(self) -> bytes:
        """The body of a WHOLE answer that was not streamed, under the name the client asked for."""
        whole = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        if self.status == 200 and self.content_encoding is None:
            return rename_body(whole, self._sending.asked)
        return whole

    def sweep(self, now: float, lenient: bool) -> None:
        """Ends what passed a limit. ``lenient``: this process slept, nobody else is to blame."""
        limits = self._sending.limits
        since = now - self._exchange.began
        if since >= limits.total:
            self._late("total_limit", undecided=True)
            return
        if self.first_byte is None:
            if since >= limits.first_byte:
                self._late("first_byte_limit", undecided=lenient)
            elif now >= self.sent_at + self.booking.seconds:
                # As predicted its prompt is worked off; a stream shows it by its first byte sooner.
                self.booking.answered()
            return
        if self._progress != self._seen_progress or self._slow_since is not None:
            self._seen_progress = self._progress
            self._seen_progress_at = now
        elif now - self._seen_progress_at >= limits.idle:
            self._late("idle_limit", undecided=lenient)

    # What the pool and the connection call.

    def on_connected(self, connection: Connection) -> None:
        self._connecting = None
        self._send_on(connection)

    def on_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        for name, value in headers:
            if name == b"content-type":
                self.content_type = value.decode("latin-1")
            elif name == b"content-encoding":
                self.content_encoding = value.decode("latin-1")
            elif name == b"retry-after":
                self.retry_after = value.decode("latin-1")
        if status in RETRIED_STATUSES:
            self._end(Ending.FAILED, f"status_{status}")
        elif status == 200 and self.content_type[:17].lower() == "text/event-stream":
            self._stream = True
            self._opaque = self.content_encoding is not None
            self.scanner = EventScanner()

    def on_body(self, data: bytes) -> None:
        self._progress += 1
        feed = self._feed
        if feed is not None:
            # The usual chunk: whole events of a stream that passes as it is.
            feed(data)
            if not self._tail and data.endswith(_EVENT_ENDS):
                self._pass(data)
            else:
                self._pass_whole_events(self._tail + data)
            return
        if not self._stream:
            self._collect(data)
            return
        scanner = self.scanner
        assert scanner is not None
        if not self._opaque:
            scanner.feed(data)
        if not self._began_passing:
            data = self._tail + data
            if not (self._opaque or _has_event(scanner) or len(data) > HELD_EVENT_CAP):
                self._tail = data
                return
            self._tail = b""
            self._begin_passing(data)
            if self._splicer is None and not self._opaque:
                self._feed = scanner.feed
        if self._opaque:
            self._pass(data)
        else:
            self._pass_whole_events(self._tail + data)

    def _pass_whole_events(self, data: bytes) -> None:
        whole, self._tail = keep_whole_events(data)
        if len(self._tail) > HELD_EVENT_CAP:
            whole, self._tail = data, b""
        if whole:
            self._pass(whole if self._splicer is None else self._splicer.splice(whole))

    def on_answer(self, answer: WholeAnswer) -> None:
        self.status = 200
        self.content_type, self.content_encoding, body = answer
        self.first_byte = self._loop.time()
        if body:
            self._parts.append(body)
            self._end(Ending.WHOLE, "")
        else:
            self._end(Ending.FAILED, "empty_body")

    def on_whole(self) -> None:
        scanner = self.scanner
        if scanner is None:
            self._end_collected()
            return
        if self._opaque:
            self._end(Ending.WHOLE, "")
            return
        if not self._began_passing:
            # A part of an event is none, and the client has nothing of it.
            self._end(Ending.FAILED, "empty_stream")
            return
        scanner.close()
        if scanner.ended or (self._sending.terminator is Terminator.NONE and not scanner.failed):
            if self._tail:
                tail, self._tail = self._tail, b""
                self._pass(tail if self._splicer is None else self._splicer.splice(tail))
            self._end(Ending.WHOLE, "")
        else:
            self._end(Ending.BROKEN, "engine_error" if scanner.failed else "no_terminator")

    def on_fault(self, fault: Fault, *, untouched: bool) -> None:
        self._connection = self._connecting = None
        if untouched and not self._replayed:
            # The engine closed an idle connection just as it was taken: no failure of anybody.
            self._replayed = True
            self._connecting = self._pool.connect(self)
            return
        self._end(
            Ending.BROKEN if self._began_passing else Ending.FAILED,
            fault.value,
            undecided=fault is Fault.LOCAL,
        )

    # Within.

    def _send_on(self, connection: Connection) -> None:
        self._connection = connection
        self.sent_at = self._loop.time()
        connection.send(self._sending.head, self._sending.body, self)

    def _begin_passing(self, data: bytes) -> None:
        self._began_passing = True
        self.first_byte = self._seen_progress_at = self._loop.time()
        self.booking.answered()
        if self._splicer is None and not self._opaque and names_other(data, self._sending.asked):
            self._splicer = NameSplicer(self._sending.asked)
        # Hundreds of kilobytes for each of a thousand streams, and never to be sent again.
        self._sending.body = b""
        headers = [
            ("content-type", self.content_type),
            ("cache-control", "no-cache"),
            ("x-accel-buffering", "no"),
            *self._sending.headers(),
        ]
        if self.content_encoding is not None:
            headers.append(("content-encoding", self.content_encoding))
        self._exchange.start(200, headers)

    def _pass(self, data: bytes) -> None:
        if not self._exchange.send(data):
            self.client_left()
            return
        self._checked += len(data)
        if self._checked >= CHECKED_EVERY:
            self._checked = 0
            if self._slow_since is None and self._exchange.unsent_since():
                self._slow_since = self._loop.time()
                self._pause_for_client()

    def _pause_for_client(self) -> None:
        if self._connection is not None:
            self._connection.pause()
            self._loop.call_later(SLOW_LOOK_S, self._look_at_client)

    def _look_at_client(self) -> None:
        if self.ending is not None or self._slow_since is None:
            return
        if not self._exchange.unsent_since():
            self._slow_since = None
            if self._connection is not None:
                self._connection.resume()
        elif self._loop.time() - self._slow_since >= self._sending.limits.idle:
            self._end(Ending.GONE, "slow_reader", undecided=True)
        else:
            self._loop.call_later(SLOW_LOOK_S, self._look_at_client)

    def _collect(self, data: bytes) -> None:
        if self.first_byte is None:
            self.first_byte = self._seen_progress_at = self._loop.time()
            self.booking.answered()
        if self.status >= 400 and self._size + len(data) > ERROR_BODY_CAP:
            self._parts.append(data[: ERROR_BODY_CAP - self._size])
            self.truncated = True
            self._end(Ending.WHOLE, "")
            return
        self._size += len(data)
        self._parts.append(data)

    def _end_collected(self) -> None:
        if self.status == 200:
            if not self._parts:
                # No route has nothing to say.
                self._end(Ending.FAILED, "empty_body")
                return
            connection = self._connection
            if connection is not None and connection.unsized and self._is_cut():
                self._end(Ending.FAILED, Fault.SHORT.value)
                return
        self._end(Ending.WHOLE, "")

    def _is_cut(self) -> bool:
        """Of a body that ends with its connection: whether it was cut, as far as JSON shows it."""
        if self.content_encoding is not None or "json" not in self.content_type.lower():
            return False
        return not _is_json(b"".join(self._parts))

    def _late(self, reason: str, *, undecided: bool) -> None:
        ending = Ending.BROKEN if self._began_passing else Ending.LATE
        self._end(ending, reason, undecided=undecided)

    def _end(self, ending: Ending, reason: str, *, undecided: bool = False) -> None:
        if self.ending is not None:
            return
        self.ending = ending
        self.reason = reason
        self.undecided = undecided
        connection, self._connection = self._connection, None
        if connection is not None and (ending is not Ending.WHOLE or self.truncated):
            connection.abort()
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        self._ended(self)


def _unheard(relay: Relay) -> None:
    """The end of a try that nobody waits for."""


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True


def _has_event(scanner: EventScanner) -> bool:
    """Whether more than comments has come: a whole event, which also tells the model's name."""
    return scanner.first_data or scanner.ended or scanner.failed


#: What makes the head of a request to an engine: (name, value) pairs of the caller that may pass.
PASSED_ON = ("accept", "traceparent", "tracestate")
PASSED_ON_ANTHROPIC = (*PASSED_ON, "anthropic-version", "anthropic-beta")

HeaderOf = Callable[[str], str | None]


def request_head(
    prefix: bytes, header: HeaderOf, passed: tuple[str, ...], request_id: str, length: int
) -> bytes:
    """The head of a request to an engine; ``prefix`` is what all requests to its path share."""
    own = b"x-request-id: %b\r\ncontent-length: %d\r\n\r\n" % (request_id.encode(), length)
    lines = b""
    for name in passed:
        value = header(name)
        if value is not None and value.isascii() and value.isprintable():
            lines += f"{name}: {value}\r\n".encode()
    return prefix + lines + own


def head_prefix(path: str, authority: str, engine_key: str) -> bytes:
    """The lines that all requests to one path of one engine share."""
    key = f"authorization: Bearer {engine_key}\r\n" if engine_key else ""
    return (
        f"POST {path} HTTP/1.1\r\nhost: {authority}\r\ncontent-type: application/json\r\n{key}"
    ).encode()
