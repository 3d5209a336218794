"""granian as the router's front, for HTTP/2: the one module that knows it.

granian parses in a thread of its own and calls ``__rsgi__`` in the loop's thread, one task per request.
What it does not give is made here, and tests hold each of its habits that this leans on:

- A body: ``await proto()`` reads it whole and has neither cap nor limit of time. Read piecewise, one empty
  piece ends a whole body, a second one means that it was cut (or that trailers came).
- An answer to an unread body resets the connection before a client that is still writing has read it:
  the rest is taken and thrown away for a while after the answer.
- ``send_bytes`` puts a chunk into granian's channel at the call; the value it returns need not be awaited,
  but it is of another class when the client has left.
- ``client_disconnect`` costs too much to be asked for each request: one sweep asks for those that are older than
  100 ms. It knows of a client that left before it was asked.
- A stream ends with a clean last chunk whatever happens: an unclean end goes by the socket.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import granian._signals
from granian._granian import RSGIProtocolClosed, SocketHolder, WorkerSignal
from granian.constants import HTTPModes, Loops, RuntimeModes, TaskImpl
from granian.http import HTTP1Settings, HTTP2Settings
from granian.log import LogLevels
from granian.server.mp import MPServer

from router.body_errors import BodyCut, BodyTooLarge, BodyTooSlow
from router.client_socket import ClientSockets, has_unsent, shut, wait_until_arrived, written
from router.config import CONNECTIONS_CAP, MIB, RouterConfig
from router.exchange import Headers
from router.front import (
    BACKLOG,
    DISCARD_BYTES,
    DISCARD_S,
    HEAD_LIMIT,
    OWN_MISTAKE,
    PLAIN,
    Answer,
    Application,
    Front,
    Serving,
    say_mistake,
)
from router.metrics import Metrics

#: granian's one limit for an idle connection and for a head that is not whole yet.
KEEP_ALIVE_MS = 75_000
#: Requests that are older than this are asked whether their client is still there.
WATCH_AFTER_S = 0.1
#: A stream's socket is looked for only when this much was handed over.
UNSENT_FROM = MIB


class GranianFront(Front):
    """The RSGI application of one worker."""

    def __init__(self, config: RouterConfig, application: Application, metrics: Metrics) -> None:
        super().__init__(config, application, metrics)
        #: Running requests in order of arrival until they are older than WATCH_AFTER_S.
        self.young: dict[GranianExchange, None] = {}
        #: Older ones whose body is still being read.
        self.reading: set[GranianExchange] = set()
        self.sockets: ClientSockets

    def serve(self, listener: socket.socket, process: Serving) -> None:
        _serve(self, listener, process)

    def open(self, loop: asyncio.AbstractEventLoop, port: int) -> None:
        """Before the first request."""
        self.sockets = ClientSockets(loop, port)
        self.begin_sweeps(loop)

    async def __rsgi__(self, scope: Any, proto: Any) -> None:
        path = scope.path
        own = self.own.get(path)
        if own is not None:
            self._answer_own(own(scope.method), proto)
            return
        exchange = GranianExchange(self, scope, proto, path)
        self.young[exchange] = None
        try:
            await self.application.handle(exchange)
            await exchange.cut_ended()
            if not exchange.answered or exchange.open_stream:
                raise RuntimeError(f"{scope.method} was left without an end of its answer")
            if not exchange.body_read:
                await exchange.discard_body()
        except Exception as error:
            say_mistake(error)
            await exchange.fail()
        finally:
            exchange.finish()

    def _answer_own(self, answer: Answer, proto: Any) -> None:
        headers = [*answer.headers, ("connection", "close")] if self.draining else answer.headers
        proto.response_bytes(answer.status, headers, answer.body)

    def sweep(self, now: float) -> None:
        grown = []
        for exchange in self.young:
            if exchange.began > now - WATCH_AFTER_S:
                break
            grown.append(exchange)
        for exchange in grown:
            del self.young[exchange]
            exchange.grown_up()
        self.reading = {each for each in self.reading if not each.reading_ended(now)}


def _serve(front: GranianFront, listener: socket.socket, process: Serving) -> None:
    """granian's own worker function; its positional arguments are held by a test."""
    http2 = front.config.http2

    def take_over_signals(loop: asyncio.AbstractEventLoop) -> WorkerSignal:
        # granian would close the listener at the first signal.
        signal = WorkerSignal()
        process.on_loop(loop, signal.set)
        return signal

    def on_start(loop: asyncio.AbstractEventLoop) -> None:
        process.on_start()
        listener.listen(BACKLOG)
        front.open(loop, listener.getsockname()[1])

    target = _Target(front.__rsgi__, on_start, lambda loop: process.on_end())
    granian._signals.set_loop_signals = take_over_signals
    # Its stub does not tell the constructor: descriptor, whether it is a Unix socket, backlog.
    holder = SocketHolder(listener.fileno(), False, BACKLOG)  # type: ignore[call-arg]
    MPServer._spawn_rsgi_worker(
        1,  # worker id
        None,  # process name
        lambda: target,
        ((None, holder), listener),
        None,  # ipc
        Loops.uvloop,
        True,  # log enabled
        LogLevels.warning,
        None,  # log config
        (),  # env files
        RuntimeModes.st,
        1,  # runtime threads
        4,  # runtime blocking threads
        1,  # blocking threads
        30,  # their idle timeout
        CONNECTIONS_CAP,
        TaskImpl.asyncio,
        HTTPModes.auto if http2 else HTTPModes.http1,
        HTTP1Settings(header_read_timeout=KEEP_ALIVE_MS, max_buffer_size=HEAD_LIMIT),
        HTTP2Settings(max_headers_size=HEAD_LIMIT) if http2 else None,
        False,  # websockets
        None,  # static files
        None,  # access log
        (False, None, None, None, "tls1.3", None, [], False),
        {},  # scope options
        (None, None),  # metrics
    )


class _Target:
    """The names that granian looks for."""

    def __init__(
        self,
        answer: Callable[[Any, Any], Awaitable[None]],
        start: Callable[[asyncio.AbstractEventLoop], None],
        end: Callable[[asyncio.AbstractEventLoop], None],
    ) -> None:
        self.__rsgi__ = answer
        self.__rsgi_init__ = start
        self.__rsgi_del__ = end


class GranianExchange:
    """One request; implements ``router.exchange.Exchange``."""

    __slots__ = (
        "_client_socket", "_cutting", "_front", "_gone", "_grown", "_headers", "_held", "_look_at", "_pieces", "_proto",
        "_read", "_scope", "_stream", "_too_slow", "_watch", "answered", "began", "body_read",
        "client", "method", "path", "sent",
    )  # fmt: skip

    def __init__(self, front: GranianFront, scope: Any, proto: Any, path: str) -> None:
        self._front = front
        self._scope = scope
        self._proto = proto
        self.method: str = scope.method
        self.path = path
        self.client: str = scope.client
        self.began = front.loop.time()
        self.sent = 0
        self.answered = False
        #: False as long as the client may still be writing what nobody takes.
        self.body_read = False
        self._headers: Any = None
        self._held = 0
        self._read: Any = None
        self._pieces: Any = None
        self._too_slow = False
        self._stream: Any = None
        self._gone: Callable[[], None] | None = None
        self._grown = False
        self._watch: Any = None
        self._client_socket: socket.socket | None = None
        self._cutting: asyncio.Task[None] | None = None
        self._look_at = UNSENT_FROM

    def header(self, name: str) -> str | None:
        headers = self._headers
        if headers is None:
            headers = self._headers = self._scope.headers
        value: str | None = headers.get(name)
        return value

    # Body

    def whole_body(self) -> bytes | None:
        return None

    async def read_body(self, cap: int) -> bytes:
        # One function for the common case: each call counts here.
        headers = self._headers
        if headers is None:
            headers = self._headers = self._scope.headers
        announced = headers.get("content-length")
        if announced is None or not (announced.isascii() and announced.isdigit()):
            return await self._read_pieces(cap) if self._has_body() else b""
        length = int(announced)
        if length > cap:
            raise BodyTooLarge(cap, length)
        if not length:
            self.body_read = True
            return b""
        self._hold(length)
        self.body_read = True
        self._read = self._proto()
        if self._grown:
            self._front.reading.add(self)
        try:
            body: bytes = await self._read
        except asyncio.CancelledError:
            if self._too_slow:
                raise BodyTooSlow(self._front.time_for(length)) from None
            raise
        except RSGIProtocolClosed:
            raise BodyCut from None
        finally:
            self._read = None
        if len(body) != length:
            raise BodyCut
        return body

    def _has_body(self) -> bool:
        """Whether the head lets a body follow."""
        length = self.header("content-length")
        if length is not None:
            # Two equal lengths pass granian as "5, 5": not "0", and such a body is counted.
            return length != "0"
        # HTTP/2 needs neither.
        return self.header("transfer-encoding") is not None or self._scope.http_version[0] != "1"

    def _hold(self, size: int) -> None:
        self._front.hold(size)
        self._held += size

    async def _read_pieces(self, cap: int) -> bytes:
        front = self._front
        pieces: list[bytes] = []
        empty = 0
        limit = front.time_for(0)
        try:
            async with asyncio.timeout_at(self.began + limit) as timeout:
                async for piece in self._body_pieces():
                    if not piece:
                        empty += 1
                        continue
                    self._hold(len(piece))
                    if self._held > cap:
                        raise BodyTooLarge(cap, None)
                    pieces.append(piece)
                    limit = front.time_for(self._held)
                    timeout.reschedule(self.began + limit)
        except TimeoutError:
            self.body_read = True
            raise BodyTooSlow(limit) from None
        except RSGIProtocolClosed:
            self.body_read = True
            raise BodyCut from None
        self.body_read = True
        if empty > 1:
            raise BodyCut
        return b"".join(pieces)

    async def _body_pieces(self) -> AsyncIterator[bytes]:
        """What is left of the body; granian begins to give it once only."""
        if self._pieces is None:
            self._pieces = aiter(self._proto)
        with suppress(StopAsyncIteration):
            while True:
                yield await anext(self._pieces)

    def reading_ended(self, now: float) -> bool:
        """Whether the body needs no more watching; one whose time is over is given up."""
        if self._read is not None and now >= self.began + self._front.time_for(self._held):
            self._too_slow = True
            self._read.cancel()
            return True
        return self._read is None

    async def discard_body(self) -> None:
        """Take what the client still writes, so that it gets to read its answer."""
        if not self._has_body() or self.header("expect") is not None:
            return
        taken = 0
        with suppress(TimeoutError, RSGIProtocolClosed):
            async with asyncio.timeout(DISCARD_S):
                async for piece in self._body_pieces():
                    taken += len(piece)
                    if taken > DISCARD_BYTES:
                        return

    # Answer

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        self.answered = True
        self.sent = len(body)
        self._proto.response_bytes(status, self._with_close(headers), body)

    def start(self, status: int, headers: Headers) -> None:
        self.answered = True
        # A stream may last for minutes, and its request is not kept for it.
        self._release_body()
        self._stream = self._proto.response_stream(status, self._with_close(headers))

    def _with_close(self, headers: Headers) -> Headers:
        return [*headers, ("connection", "close")] if self._front.draining else headers

    def send(self, chunk: bytes) -> bool:
        if not chunk:
            return True
        result = self._stream.send_bytes(chunk)
        self.sent += len(chunk)
        taken = _TAKEN.get(result.__class__)
        return _learn(result) if taken is None else taken

    def end(self) -> None:
        # The channel closes with its last holder.
        self._stream = None

    @property
    def open_stream(self) -> bool:
        """Whether a stream was begun and has not ended."""
        return self._stream is not None

    def cut(self, last: bytes) -> None:
        self._cutting = self._front.run(self._cut(last))

    async def _cut(self, last: bytes) -> None:
        connection = self._client_socket or await self._front.sockets.find(self.client)
        self._client_socket = connection
        try:
            if connection is None:
                # Its client has left already.
                return
            before = written(connection)
            if self.send(last):
                await wait_until_arrived(connection, before + len(last))
        except OSError:
            return
        finally:
            if connection is not None:
                shut(connection)
            self._stream = None

    async def cut_ended(self) -> None:
        """After ``cut``: until it is done."""
        if self._cutting is not None:
            await self._cutting

    async def fail(self) -> None:
        """After a mistake of ours: an answer if there is none, an unclean end if it has begun."""
        if self._cutting is None and self._stream is not None:
            self.cut(b"")
            await self.cut_ended()
        elif not self.answered:
            self.respond(500, PLAIN, OWN_MISTAKE)

    # Client

    def on_gone(self, callback: Callable[[], None] | None) -> None:
        self._gone = callback
        if callback is not None and self._grown and self._watch is None:
            self._start_watch()

    def grown_up(self) -> None:
        """Older than WATCH_AFTER_S: worth a watch."""
        self._grown = True
        if self._gone is not None:
            self._start_watch()
        if self._read is not None:
            self._front.reading.add(self)

    def _start_watch(self) -> None:
        self._watch = self._proto.client_disconnect()
        self._watch.add_done_callback(self._left)

    def _left(self, watch: Any) -> None:
        callback, self._gone = self._gone, None
        if callback is not None and not watch.cancelled():
            callback()

    def unsent_since(self) -> bool:
        if self.sent < self._look_at:
            return False
        if self._client_socket is None:
            self._client_socket = self._front.sockets.find_now(self.client)
            if self._client_socket is None:
                return False
        try:
            unsent = has_unsent(self._client_socket)
        except OSError:
            return False
        if not unsent:
            self._look_at = self.sent + UNSENT_FROM
        return unsent

    def _release_body(self) -> None:
        if self._held:
            self._front.bodies_held -= self._held
            self._held = 0

    def finish(self) -> None:
        """Give back everything, on every way out."""
        if not self._grown:
            self._front.young.pop(self, None)
        self._gone = None
        self._stream = None
        self._release_body()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._client_socket is not None:
            self._client_socket.close()
            self._client_socket = None


#: Classes of what ``send_bytes`` returns -> whether the chunk was taken.
_TAKEN: dict[type, bool] = {}


def _learn(result: Any) -> bool:
    """Run a result of a class not seen yet; it is complete already."""
    steps: Iterator[Any] = result.__await__()
    try:
        next(steps)
    except StopIteration:
        taken = True
    except RSGIProtocolClosed:
        taken = False
    else:
        raise RuntimeError(f"granian's send_bytes returned {result!r}, which has to wait")
    _TAKEN[result.__class__] = taken
    return taken
