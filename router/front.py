"""What every front has in common: its own two paths, its accounts of bodies, and when it is ready.

A front takes requests from the network, shows each to the application as an ``Exchange``, and ends when it
is told to. There are two: ``http1_front`` (the default) and ``http_server`` (granian, for HTTP/2).
"""

from __future__ import annotations

import asyncio
import socket
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from router.body_errors import BodiesHeld
from router.config import MIB, RouterConfig
from router.exchange import Exchange, Headers
from router.metrics import Metrics

#: Connections waiting to be accepted.
BACKLOG = 4_096
SWEEP_EVERY_S = 0.05
#: A longer head of a request is answered 431.
HEAD_LIMIT = 64 * 1024
#: After an answer to an unread body: at most so long and so much of it is thrown away.
DISCARD_S = 5.0
DISCARD_BYTES = 256 * MIB

PLAIN = [("content-type", "text/plain; charset=utf-8"), ("cache-control", "no-store")]
OWN_MISTAKE = b"the router made a mistake; it is in its log\n"


class Application(Protocol):
    """What stands behind the front."""

    async def start(self) -> None: ...

    def begin(self, exchange: Exchange) -> Coroutine[Any, Any, None] | None:
        """Answer a request; its end shows on the exchange. What has to wait is left to the coroutine."""

    async def handle(self, exchange: Exchange) -> None:
        """The same, and it lasts until the answer has its end."""

    def ready(self) -> str | None: ...
    def begin_drain(self) -> None: ...
    async def close(self, limit: float) -> None: ...


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: Headers
    body: bytes


class Serving(Protocol):
    """What a front tells the process it runs in."""

    def on_loop(self, loop: asyncio.AbstractEventLoop, close_listener: Callable[[], None]) -> None:
        """The loop is there and does not run yet. ``close_listener`` also lets connections end."""

    def on_start(self) -> None:
        """Last thing before requests come; the listener is not listening yet."""

    def on_end(self) -> None:
        """All connections have ended, the loop stands still."""


class Front(ABC):
    """One worker's front; a subclass brings the network."""

    def __init__(self, config: RouterConfig, application: Application, metrics: Metrics) -> None:
        self.config = config
        self.application = application
        self._metrics = metrics
        self._lag = metrics.histogram("loop_lag_seconds")
        self.bodies_held = 0
        self.draining = False
        self.loop: asyncio.AbstractEventLoop
        self._due = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        #: Paths that the front answers itself.
        self.own: dict[str, Callable[[str], Answer]] = {
            "/healthz": self._health,
            "/readyz": self._readiness,
        }
        metrics.refresh_with(self._refresh)

    @abstractmethod
    def serve(self, listener: socket.socket, process: Serving) -> None:
        """Serve on a bound socket until ``close_listener`` was called and all requests have ended."""

    @abstractmethod
    def sweep(self, now: float) -> None:
        """Every SWEEP_EVERY_S: what no timer of its own watches."""

    def run(self, steps: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run what has to wait, in a task that is held until it has ended."""
        task = self.loop.create_task(steps)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def begin_sweeps(self, loop: asyncio.AbstractEventLoop) -> None:
        """Before the first request."""
        self.loop = loop
        self._due = loop.time() + SWEEP_EVERY_S
        loop.call_later(SWEEP_EVERY_S, self._sweep)

    def why_not_ready(self) -> str | None:
        """None when new requests are welcome."""
        return "draining" if self.draining else self.application.ready()

    def hold(self, size: int) -> None:
        """Account for bytes of a body. BodiesHeld when there is no room for them."""
        if self.bodies_held + size > self.config.bodies_held_cap:
            raise BodiesHeld(self.bodies_held, self.config.bodies_held_cap)
        self.bodies_held += size

    def time_for(self, size: int) -> float:
        """Seconds that a body of ``size`` bytes may take."""
        return self.config.body_time + self.config.body_time_per_mib * (size / MIB)

    def _health(self, method: str) -> Answer:
        return _own_answer(method, 200, b"ok\n")

    def _readiness(self, method: str) -> Answer:
        why = self.why_not_ready()
        if why is None:
            return _own_answer(method, 200, b"ready\n")
        return _own_answer(method, 503, f"not ready: {why}\n".encode())

    def _sweep(self) -> None:
        now = self.loop.time()
        # First: a mistake below must not end all sweeps.
        self.loop.call_later(SWEEP_EVERY_S, self._sweep)
        self._lag.observe(max(0.0, now - self._due))
        self._due = now + SWEEP_EVERY_S
        self.sweep(now)

    def _refresh(self) -> None:
        self._metrics.draining = self.draining
        self._metrics.not_ready = self.why_not_ready()
        self._metrics.gauge("bodies_held_bytes", (), self.bodies_held)


def say_mistake(error: BaseException) -> None:
    """Class and place of a mistake of ours, without its text, which may quote a request."""
    lines = "".join(traceback.format_tb(error.__traceback__))
    sys.stderr.write(f"router: a request failed\n{type(error).__name__}\n{lines}")


def _own_answer(method: str, status: int, body: bytes) -> Answer:
    if method in ("GET", "HEAD"):
        return Answer(status, PLAIN, body)
    return Answer(405, [*PLAIN, ("allow", "GET, HEAD")], b"method not allowed\n")
