"""HTTP/1.1 to engines: one pool per endpoint generation, connections as asyncio protocols.

A connection carries one request at a time and tells its receiver what arrives from ``data_received``
itself, without a task between. What a failure means for the request is the receiver's business; the
pool only says what happened and whether a byte of the answer had come.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import httptools

from ext.answer import read_whole_answer

CONNECT_LIMIT_S = 2.0
IDLE_KEPT = 32
#: Engines close idle connections at 5 s: ours are gone before.
IDLE_LIMIT_S = 4.0
#: Larger bodies are not copied to be written in one piece with their head.
JOINED_SIZE = 64 * 1024
#: A head of an engine's answer that is longer than this is none.
LONGEST_HEAD = 64 * 1024

#: content-type ("" where there is none), content-encoding or None, body.
WholeAnswer = tuple[str, str | None, bytes]


class Fault(enum.Enum):
    """What went wrong with a connection, by name."""

    REFUSED = "connect_refused"
    CONNECT_TIMEOUT = "connect_timeout"
    RESET = "reset"
    #: Bytes that are no HTTP/1.1 answer.
    GARBLED = "garbled"
    #: The body ended before its announced length or last chunk.
    SHORT = "short_body"
    #: Our own lack (no file descriptor, no route): says nothing about the engine.
    LOCAL = "local_resource"


class _Refused(Exception):
    """What an engine sends is HTTP, and not to be borne: too long a head, an answer too many."""


class Receiver(Protocol):
    """Who is told about one request's answer. Called in this order; after ``on_fault`` nothing more."""

    def on_connected(self, connection: Connection) -> None:
        """A fresh connection is there; write to it."""
        ...

    def on_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Status and headers (names in lower case) of the final answer."""
        ...

    def on_body(self, data: bytes) -> None:
        """A piece of the body, as it came."""
        ...

    def on_answer(self, answer: WholeAnswer) -> None:
        """Instead of ``on_head``, ``on_body`` and ``on_whole``: a 200 that came in one piece."""
        ...

    def on_whole(self) -> None:
        """The answer is complete as HTTP counts it."""
        ...

    def on_fault(self, fault: Fault, *, untouched: bool) -> None:
        """It failed. ``untouched``: a reused connection died before any byte of an answer."""
        ...


class Connection(asyncio.Protocol):
    """One connection to an engine."""

    def __init__(self, pool: EnginePool) -> None:
        self._pool = pool
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        #: Whether an answer was read whole on it before.
        self.reused = False
        #: Loop time from which it is too old to be used again.
        self.stale_at = 0.0
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_size = 0
        self._status = 0
        self._touched = False
        self._sized = False
        self._complete = False
        self._keepable = False
        self._paused = False
        self._keep_for = IDLE_LIMIT_S

    @property
    def unsized(self) -> bool:
        """Whether only its end can tell that the present answer is whole."""
        return not self._sized

    @property
    def usable(self) -> bool:
        """Whether it is open."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, head: bytes, body: bytes, receiver: Receiver) -> None:
        """Write one request; its answer goes to ``receiver``."""
        transport = self._transport
        assert transport is not None
        self._receiver = receiver
        self._touched = self._complete = False
        if len(body) <= JOINED_SIZE:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)

    def abort(self) -> None:
        """Close now; the receiver hears nothing more."""
        self._receiver = None
        self._pool.forget(self)
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Read nothing until ``resume``: the client is slower than the engine."""
        if not self._paused and self.usable and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._paused:
            self._paused = False
            if self.usable and self._transport is not None:
                self._transport.resume_reading()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._receiver is None:
            # Nobody asked for anything: an engine that talks out of turn is not to be used again.
            self.abort()
            return
        if not self._touched:
            self._touched = True
            answer = read_whole_answer(data)
            if answer is not None:
                self._hand_over(answer)
                return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Nobody asked for another protocol.
            self._fail(Fault.GARBLED)
            return
        except httptools.HttpParserError as error:
            self._fail(Fault.GARBLED)
            if not isinstance(error.__context__, _Refused | None):
                # Raised by a receiver: a mistake of ours, which the loop reports.
                raise
            return
        if self._complete:
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._pool.forget(self)
        if self._receiver is None:
            return
        if self._status and not self._sized and exc is None:
            # Without length and chunks the end of the connection is the end of the body.
            receiver, self._receiver = self._receiver, None
            receiver.on_whole()
            return
        self._fail(Fault.SHORT if self._status else Fault.RESET)

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self._complete:
            # A second answer to one request: whoever sends it is not to be asked again.
            self._complete = self._keepable = False
            raise _Refused
        self._headers = []
        self._head_size = 0
        self._status = 0
        self._sized = False
        self._keep_for = IDLE_LIMIT_S

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_size += len(name) + len(value)
        if self._head_size > LONGEST_HEAD:
            raise _Refused
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self._sized = True
        elif name == b"keep-alive":
            self._keep_for = min(self._keep_for, keep_alive_seconds(value))
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 and self._receiver is not None:
            self._status = status
            self._receiver.on_head(status, self._headers)

    def on_body(self, data: bytes) -> None:
        if self._receiver is not None:
            self._receiver.on_body(data)

    def on_message_complete(self) -> None:
        # An interim answer (1xx) is a message of its own and ends nothing.
        self._complete = self._status != 0
        self._keepable = self._parser.should_keep_alive()

    def _hand_over(self, answer: WholeAnswer) -> None:
        receiver, self._receiver = self._receiver, None
        self.reused = True
        self._pool.keep(self, IDLE_LIMIT_S)
        if receiver is not None:
            receiver.on_answer(answer)

    def _finish(self) -> None:
        receiver, self._receiver = self._receiver, None
        self._status = 0
        if receiver is None:
            return
        if self._keepable:
            self.resume()
            self.reused = True
            self._pool.keep(self, self._keep_for)
        else:
            self._pool.forget(self)
            if self._transport is not None:
                self._transport.close()
        receiver.on_whole()

    def _fail(self, fault: Fault) -> None:
        receiver, self._receiver = self._receiver, None
        untouched = self.reused and not self._touched
        self.abort()
        if receiver is not None:
            receiver.on_fault(fault, untouched=untouched)


def keep_alive_seconds(value: bytes) -> float:
    """How long a connection may idle by the engine's ``keep-alive: timeout=N``: a second less."""
    for part in value.split(b","):
        name, _, number = part.strip().partition(b"=")
        if name.lower() == b"timeout" and number.strip().isdigit():
            return max(float(number) - 1.0, 0.0)
    return IDLE_LIMIT_S


class EnginePool:
    """All connections to one endpoint generation."""

    def __init__(self, url: str, loop: asyncio.AbstractEventLoop) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None:
            raise ValueError(f"an engine's url is http://HOST:PORT, not {parts.scheme}://...")
        self._host = parts.hostname
        self._port = parts.port or 80
        #: What stands in the ``host`` header.
        self.authority = parts.netloc.rpartition("@")[2]
        self._loop = loop
        self._idle: deque[Connection] = deque()
        self._all: set[Connection] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def connections(self) -> int:
        """Open connections, idle and busy."""
        return len(self._all)

    @property
    def idle(self) -> int:
        """Open connections that wait for a request."""
        return len(self._idle)

    def take(self) -> Connection | None:
        """An idle connection, the newest; None when a fresh one is needed."""
        now = self._loop.time()
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and now < connection.stale_at:
                return connection
            connection.abort()
        return None

    def connect(self, receiver: Receiver) -> asyncio.Task[None]:
        """Open a connection and hand it to ``receiver.on_connected``; cancel the task to give up."""
        task = self._loop.create_task(self._connect(receiver))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return task

    async def _connect(self, receiver: Receiver) -> None:
        try:
            async with asyncio.timeout(CONNECT_LIMIT_S):
                _, connection = await self._loop.create_connection(
                    lambda: Connection(self), self._host, self._port
                )
        except TimeoutError:
            receiver.on_fault(Fault.CONNECT_TIMEOUT, untouched=False)
            return
        except (ConnectionError, OSError) as error:
            fault = Fault.REFUSED if _is_engines(error) else Fault.LOCAL
            receiver.on_fault(fault, untouched=False)
            return
        self._all.add(connection)
        if self._closed:
            connection.abort()
            receiver.on_fault(Fault.LOCAL, untouched=False)
            return
        receiver.on_connected(connection)

    def keep(self, connection: Connection, seconds: float) -> None:
        """Take back a connection whose answer was read whole."""
        if self._closed or seconds <= 0:
            connection.abort()
            return
        connection.stale_at = self._loop.time() + seconds
        self._idle.append(connection)
        if len(self._idle) > IDLE_KEPT:
            self._idle.popleft().abort()

    def forget(self, connection: Connection) -> None:
        """A connection is closed."""
        self._all.discard(connection)
        if self._idle and not connection.usable:
            try:
                self._idle.remove(connection)
            except ValueError:
                pass

    def sweep(self) -> None:
        """Close what has idled too long."""
        now = self._loop.time()
        while self._idle and now >= self._idle[0].stale_at:
            self._idle.popleft().abort()

    def close(self, *, busy: bool = False) -> None:
        """Close the idle connections and take none back; with ``busy`` all of them."""
        self._closed = True
        while self._idle:
            self._idle.pop().abort()
        if busy:
            for task in tuple(self._connecting):
                task.cancel()
            for connection in tuple(self._all):
                connection.abort()


#: Errors of ours while connecting: too many files, no memory, no local port or buffer.
_LOCAL_ERRNOS = frozenset({12, 23, 24, 99, 105})


def _is_engines(error: OSError) -> bool:
    return error.errno not in _LOCAL_ERRNOS
