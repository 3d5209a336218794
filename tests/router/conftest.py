"""A whole data path in this process: fake engines on sockets, the real application, a fake front."""

from __future__ import annotations

import asyncio
import json

import pytest
import uvloop

from router.access_log import AccessLog
from router.admit import check
from router.application import Application
from router.config import RouterConfig, WorkerIdentity
from router.metrics import Metrics
from tests.router.fake_engine import FakeEngine, answer_chat
from tests.router.fake_exchange import FakeExchange

PATIENCE_S = 20.0


class KeptLog(AccessLog):
    """An access log that keeps its lines."""

    def __init__(self):
        super().__init__("-")
        self.lines = []

    def add(self, line):
        self.lines.append(line)


async def eventually(look):
    """The first true value of ``look``."""
    async with asyncio.timeout(PATIENCE_S):
        while not (value := look()):  # noqa: ASYNC110 - what is looked at knows no event
            await asyncio.sleep(0.005)
    return value


class Path:
    """An application with its engines."""

    def __init__(self, folder):
        self.folder = folder
        self.engines = []
        self.log = KeptLog()
        self.metrics = Metrics("w-0", 0, 1)
        self.application = None
        self._tasks = set()

    async def engine(self, behave=answer_chat):
        engine = await FakeEngine(behave).start()
        self.engines.append(engine)
        return engine

    async def start(self, file=None, **options):
        """Static mode from a value for the YAML file, else what ``options`` say."""
        if file is not None:
            path = self.folder / "router.yaml"
            path.write_text(json.dumps(file))
            options["static_file"] = str(path)
        config = RouterConfig(run_dir=str(self.folder), **options)
        self.application = Application(config, WorkerIdentity("w-0", 0, 1), self.metrics, self.log)
        await self.application.start()
        return self.application

    async def start_with(self, *engines, **model):
        """One model, ``m``, on these engines."""
        endpoints = [
            {"url": engine.url, "slots": 8, **model.pop("endpoint", {})} for engine in engines
        ]
        return await self.start({"models": [{"name": "m", "endpoints": endpoints, **model}]})

    def begin(self, exchange):
        """Handle a request beside the test."""
        task = asyncio.ensure_future(self.application.handle(exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def ask(self, body=None, **options):
        """Handle one request to its end."""
        exchange = FakeExchange(body=chat() if body is None else body, **options)
        async with asyncio.timeout(PATIENCE_S):
            await self.application.handle(exchange)
        return exchange

    async def close(self):
        try:
            await self._close_application()
        finally:
            for engine in self.engines:
                await engine.stop()

    async def _close_application(self):
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.application is not None:
            engines = self.application._engines
            check(engines.gates.values())
            await eventually(lambda: not self.application._dispatch.relays)
            for place in engines.places():
                numbers = (place.in_flight, place.unanswered, place.uncached)
                assert numbers == (0, 0, 0), f"{place.key} keeps {numbers}"
            await self.application.close(0.0)


def chat(model="m", *, stream=False, **members):
    return {
        "model": model,
        "messages": [{"role": "user", "content": "What is the capital of Sweden?"}],
        "stream": stream,
        **members,
    }


@pytest.fixture
async def path(tmp_path):
    built = Path(tmp_path)
    try:
        yield built
    finally:
        await built.close()


def pytest_asyncio_loop_factories(config, item):
    """The loop that serves; the front's tests run its parent, which has Python's own."""
    if "front" in item.path.parts:
        return {"asyncio": asyncio.new_event_loop}
    return {"uvloop": uvloop.new_event_loop}
