"""The router's front in HTTP/1.1: asyncio's transport, llhttp for heads, and little between.

Each request costs one read, one search for the end of its head, and one write. What makes it cheap is what is not
done: headers are looked up when they are asked for (``request_head``), a body that came with its head is cut out
once, an answer is one write with its head. A request whose body is there begins in the very read that brought it; a
task is made only for one that has to wait for more. Neither requests nor connections have timers: one sweep
every 50 ms looks at bodies that are awaited, one a second at the connections' deadlines.

A connection reads one request at a time (``http1_connection``). Since each end of a message is decided in one place,
what follows it is the next request, which waits in a bounded buffer until the answer before it has ended.
Whatever is not understood ends the connection, after an answer that says so.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Coroutine
from typing import Any

import uvloop

from router.answer_head import AnswerHeads
from router.config import CONNECTIONS_CAP, RouterConfig
from router.front import BACKLOG, Application, Front, Serving, say_mistake
from router.http1_connection import Http1Connection
from router.http1_exchange import Http1Exchange
from router.metrics import Metrics

CONNECTIONS_EVERY_S = 1.0
#: Connections above the cap that are told so; any more are closed without a word.
REFUSED_AT_ONCE = 256


class Http1Front(Front):
    """The connections of one worker."""

    def __init__(self, config: RouterConfig, application: Application, metrics: Metrics) -> None:
        super().__init__(config, application, metrics)
        self.heads = AnswerHeads(time.time())
        #: Exchanges whose body is being waited for.
        self.reading: set[Http1Exchange] = set()
        self.closing = False
        self._connections: set[Http1Connection] = set()
        self._server: asyncio.Server
        self._ended: asyncio.Future[None]
        self._look_at_connections = 0.0

    def serve(self, listener: socket.socket, process: Serving) -> None:
        loop = uvloop.new_event_loop()
        asyncio.set_event_loop(loop)
        process.on_loop(loop, self.close)
        process.on_start()
        loop.run_until_complete(self.open(listener))
        loop.run_until_complete(self._ended)
        process.on_end()

    async def open(self, listener: socket.socket) -> None:
        """Begin to accept on a bound socket, in the running loop."""
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        self.begin_sweeps(loop)
        self._server = await loop.create_server(
            lambda: Http1Connection(self), sock=listener, backlog=BACKLOG
        )

    def close(self) -> None:
        """Accept nothing more; what idles is closed, what runs may run out."""
        self.closing = self.draining = True
        self._server.close()
        for connection in tuple(self._connections):
            connection.close_idle()
        self._end_when_empty()

    # What a connection calls.

    def connection_made(self, connection: Http1Connection) -> None:
        """Take it in, or refuse it when there are too many."""
        number = len(self._connections)
        self._connections.add(connection)
        if number >= CONNECTIONS_CAP + REFUSED_AT_ONCE:
            connection.abort()
        elif number >= CONNECTIONS_CAP:
            connection.refuse(503, f"this router has {CONNECTIONS_CAP} connections; try again")
        elif self.closing:
            connection.close_idle()

    def connection_lost(self, connection: Http1Connection) -> None:
        """It is closed."""
        self._connections.discard(connection)
        if self.closing:
            self._end_when_empty()

    def begin(self, exchange: Http1Exchange) -> None:
        """A request whose head is there."""
        own = self.own.get(exchange.path)
        if own is not None:
            exchange.respond(*own(exchange.method))
            return
        try:
            rest = self.application.begin(exchange)
        except Exception as error:
            say_mistake(error)
            exchange.fail()
            return
        if rest is not None:
            self.run(self._finish(exchange, rest))

    async def _finish(self, exchange: Http1Exchange, rest: Coroutine[Any, Any, None]) -> None:
        try:
            await rest
        except Exception as error:
            say_mistake(error)
            exchange.fail()

    # Within.

    def sweep(self, now: float) -> None:
        self.heads.tick(time.time())
        for exchange in tuple(self.reading):
            exchange.check_body_time(now)
        if now >= self._look_at_connections:
            self._look_at_connections = now + CONNECTIONS_EVERY_S
            for connection in [each for each in self._connections if each.deadline <= now]:
                connection.on_deadline(now)

    def _end_when_empty(self) -> None:
        if not (self._connections or self._ended.done()):
            self._ended.set_result(None)
