"""An application for the front's tests: what it does is in the path."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any

import msgspec

from router.access_log import AccessLog
from router.body_errors import BodiesHeld, BodyCut, BodyTooLarge, BodyTooSlow
from router.config import RouterConfig, WorkerIdentity
from router.errors import StaticFileError
from router.exchange import Exchange
from router.metrics import Metrics

TEXT = [("content-type", "text/plain")]
STATUS: dict[type[Exception], int] = {
    BodyTooLarge: 413, BodyTooSlow: 408, BodyCut: 400, BodiesHeld: 503,
}  # fmt: skip


class FakeApplication:
    def __init__(
        self, config: RouterConfig, worker: WorkerIdentity, metrics: Metrics, log: AccessLog
    ) -> None:
        self.config = config
        self.worker = worker
        self.metrics = metrics
        self.log = log
        self.running: set[asyncio.Task[None]] = set()
        self.notes: list[str] = []
        self.release = asyncio.Event()
        metrics.set_models(["greek"])

    async def start(self) -> None:
        if self.config.static_file is not None and self.config.static_file.endswith("broken.yaml"):
            raise StaticFileError("broken.yaml: line 1: no endpoints")

    def ready(self) -> str | None:
        return None

    def begin_drain(self) -> None:
        self.notes.append("drain")

    async def close(self, limit: float) -> None:
        if self.running:
            await asyncio.wait(self.running, timeout=limit)

    def begin(self, exchange: Exchange) -> Coroutine[Any, Any, None] | None:
        if exchange.path == "/at_once":
            body = exchange.whole_body()
            exchange.respond(200, TEXT, b"it is not here" if body is None else body)
            return None
        return self.handle(exchange)

    async def handle(self, exchange: Exchange) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.running.add(task)
        try:
            await getattr(self, exchange.path[1:].partition("/")[0])(exchange)
        finally:
            self.running.discard(task)
            self.metrics.request_ended("/fake", "greek", 200, "ok", 0.02, tokens_out=3)
            self.metrics.gauge("requests_in_flight", ("greek",), len(self.running))

    async def echo(self, exchange: Exchange) -> None:
        try:
            body = await exchange.read_body(self.config.body_cap)
        except (BodyTooLarge, BodyTooSlow, BodyCut, BodiesHeld) as error:
            self.notes.append(type(error).__name__)
            exchange.respond(STATUS[type(error)], TEXT, type(error).__name__.encode())
            return
        exchange.respond(200, TEXT, body)

    async def size(self, exchange: Exchange) -> None:
        body = await exchange.read_body(self.config.body_cap)
        exchange.respond(200, TEXT, b"%d" % len(body))

    async def unread(self, exchange: Exchange) -> None:
        exchange.respond(401, TEXT, b"unread")

    async def pid(self, exchange: Exchange) -> None:
        exchange.respond(200, TEXT, b"%d" % os.getpid())

    async def head(self, exchange: Exchange) -> None:
        seen = [exchange.method, exchange.path, exchange.client, exchange.header("x-one")]
        exchange.respond(200, TEXT, msgspec.json.encode(seen))

    async def stream(self, exchange: Exchange) -> None:
        """Three chunks, the last after ``release``."""
        exchange.start(200, TEXT)
        exchange.send(b"one ")
        exchange.send(b"two ")
        while not self.release.is_set():
            if not exchange.send(b"."):
                self.notes.append("stream gone")
                exchange.end()
                return
            await asyncio.sleep(0.02)
        exchange.send(b" three")
        exchange.end()

    async def ended(self, exchange: Exchange) -> None:
        """The end reaches the client before the handler ends."""
        exchange.start(200, TEXT)
        exchange.send(b"all")
        exchange.end()
        await self.release.wait()

    async def let(self, exchange: Exchange) -> None:
        self.release.set()
        exchange.respond(200, TEXT, b"released")
        await asyncio.sleep(0)

    async def cut(self, exchange: Exchange) -> None:
        exchange.start(200, TEXT)
        count = int(exchange.path.rpartition("/")[2])
        for number in range(count):
            exchange.send(b"data: %d\n\n" % number)
        exchange.cut(b"data: error\n\n")

    async def wait(self, exchange: Exchange) -> None:
        """Until the client has left."""
        gone = asyncio.Event()
        exchange.on_gone(gone.set)
        self.notes.append("waiting")
        await gone.wait()
        self.notes.append("gone")
        exchange.respond(499, TEXT, b"")

    async def flood(self, exchange: Exchange) -> None:
        """Hand over 64 MiB; says how much was handed over when bytes were first unsent."""
        exchange.start(200, TEXT)
        for _ in range(64):
            exchange.send(bytes(1 << 20))
            await asyncio.sleep(0.01)
            if exchange.unsent_since():
                self.notes.append(f"unsent {exchange.sent >> 20}")
                break
        else:
            self.notes.append("all sent")
        exchange.end()

    async def headers(self, exchange: Exchange) -> None:
        """An answer with values that an engine could have sent."""
        exchange.respond(200, [("x-bad", "a\r\nx-evil: b\x00\x7f"), ("x-good", "é")], b"")

    async def seen(self, exchange: Exchange) -> None:
        exchange.respond(200, TEXT, msgspec.json.encode(self.notes))

    async def mistake(self, exchange: Exchange) -> None:
        raise ValueError(exchange.header("x-secret"))

    async def late_mistake(self, exchange: Exchange) -> None:
        exchange.start(200, TEXT)
        exchange.send(b"begun")
        raise ValueError(exchange.header("x-secret"))
