"""One worker: takes its order from standard input, serves, drains, ends.

The order comes by a pipe that the parent keeps open: its end is the parent's death, after which a worker
drains and ends like after a signal. Its one file a second is its metrics and its heartbeat.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import signal
import sys
import traceback
from enum import Enum
from typing import Any

import msgspec

from router.access_log import AccessLog
from router.config import (
    ENDED_BY_INTERRUPT,
    GRANIAN,
    OVERTIME_S,
    RouterConfig,
    worker_identity,
)
from router.errors import StaticFileError
from router.front import Application, Front
from router.listeners import bound_listener
from router.metrics import Metrics, encode_worker_file, write_worker_file
from router.orders import ORDER_FD, WorkerOrder, read_order

BEAT_EVERY_S = 1.0
#: What connections may take to end after the application has closed.
LINGER_S = 2.0
#: Objects before a young collection, and how many of these before an older one.
GC_THRESHOLDS = (20_000, 20, 50)
CANNOT_START = 1


class Phase(Enum):
    STARTING = "starting"
    SERVING = "serving"
    #: Serves, and asks balancers and clients to go elsewhere.
    DRAINING = "draining"
    #: The listener is closed; what runs may run out.
    CLOSING = "closing"


class Worker:
    """The life of this process after its order."""

    def __init__(self, order: WorkerOrder) -> None:
        config = order.config
        self.config = config
        self.identity = worker_identity(order.index)
        self.metrics = Metrics(self.identity.id, self.identity.index, self.identity.pid)
        self.log = AccessLog(config.access_log)
        factory = _load(config.application)
        self.application: Application = factory(config, self.identity, self.metrics, self.log)
        self.front = _front(config, self.application, self.metrics)
        self.phase = Phase.STARTING
        self._starting: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._complained = False
        self._dropped = self.metrics.counter("access_log_lines_dropped")

    def run(self) -> None:
        """Serve until drained. Raises OSError when the address or the log cannot be had."""
        self.log.open()
        with bound_listener(self.config.bind_host, self.config.bind_port) as listener:
            self.front.serve(listener, self)

    def on_loop(self, loop: asyncio.AbstractEventLoop, close_listener: Any) -> None:
        self._loop = loop
        self._close_connections = close_listener
        loop.add_signal_handler(signal.SIGTERM, self.stop)
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        loop.add_reader(ORDER_FD, self._parent_ended)

    def on_start(self) -> None:
        self._starting = self._loop.create_task(self.application.start())
        try:
            self._loop.run_until_complete(self._starting)
        except asyncio.CancelledError:
            self._end_now(0)
        except StaticFileError as error:
            sys.stderr.write(f"router: {error}\n")
            self._end_now(CANNOT_START)
        except Exception:
            traceback.print_exc()
            self._end_now(CANNOT_START)
        self.phase = Phase.SERVING
        # What is there now stays; requests make few cycles, and a collection holds them all up.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        self._loop.call_soon(self._beat)

    def on_end(self) -> None:
        if self._closing is not None:
            self._loop.run_until_complete(self._closing)
        self._end_now(0)

    def stop(self) -> None:
        """First call: drain. Later ones change nothing."""
        if self.phase is Phase.STARTING:
            if self._starting is not None:
                self._starting.cancel()
            else:
                self._end_now(0)
        elif self.phase is Phase.SERVING:
            self.phase = Phase.DRAINING
            self.front.draining = True
            self.application.begin_drain()
            self._loop.call_later(self.config.grace, self._close)

    def _interrupted(self) -> None:
        if self.phase in (Phase.STARTING, Phase.SERVING):
            self.stop()
        else:
            self._end_now(ENDED_BY_INTERRUPT)

    def _parent_ended(self) -> None:
        if not os.read(ORDER_FD, 4096):
            self._loop.remove_reader(ORDER_FD)
            self.stop()

    def _close(self) -> None:
        self.phase = Phase.CLOSING
        limit = self.config.stop_limit
        self._closing = self._loop.create_task(self.application.close(limit))
        self._closing.add_done_callback(self._closed)
        self._loop.call_later(limit + OVERTIME_S, self._end_now, 0)
        self._close_connections()

    def _closed(self, closing: asyncio.Task[None]) -> None:
        if not closing.cancelled() and (error := closing.exception()) is not None:
            sys.stderr.write(f"router: closing: {type(error).__name__}: {error}\n")
        self._loop.call_later(LINGER_S, self._end_now, 0)

    def _beat(self) -> None:
        self._loop.call_later(BEAT_EVERY_S, self._beat)
        # Encoded by the loop, since a heartbeat of another thread would prove nothing; written by
        # a thread, since a disk that hangs must not hold requests.
        if self._writing is None or self._writing.done():
            self._writing = self._loop.run_in_executor(None, self._write, self._snapshot())

    def _snapshot(self) -> bytes:
        self._dropped[0] = self.log.dropped
        return encode_worker_file(self.metrics.snapshot())

    def _write(self, body: bytes) -> None:
        try:
            write_worker_file(self.config.metrics_dir, self.identity.index, self.identity.pid, body)
        except OSError as error:
            if not self._complained:
                self._complained = True
                sys.stderr.write(f"router: metrics cannot be written: {error}\n")

    def _end_now(self, code: int) -> None:
        """The exit of this process, threads or not: granian's know no other."""
        if self.phase is not Phase.STARTING:
            self._write(self._snapshot())
        self.log.close()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _front(config: RouterConfig, application: Application, metrics: Metrics) -> Front:
    # Imported when it is used: each worker is spared the other's memory.
    if config.front == GRANIAN:
        from router.http_server import GranianFront

        return GranianFront(config, application, metrics)
    from router.http1_front import Http1Front

    return Http1Front(config, application, metrics)


def _load(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def main() -> None:
    order = msgspec.json.decode(read_order(), type=WorkerOrder)
    try:
        Worker(order).run()
    except OSError as error:
        sys.stderr.write(f"router: worker {order.index} cannot start: {error}\n")
        raise SystemExit(CANNOT_START) from None


if __name__ == "__main__":
    main()
