"""An orchestrator inside the test's own loop, with times short enough to wait for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from orchestrator.admin.listener import AdminListener
from orchestrator.cluster_file import FileOnDisk
from orchestrator.config import Settings, Times
from orchestrator.instance import Instance, read_and_check
from orchestrator.run_together import end_all
from tests.fakes.redis_server import RedisServer
from tests.fakes.scripted_agent import ScriptedAgent

QUICK = Times(
    lease=1.5,
    renewal=0.3,
    campaign=0.1,
    echo=0.2,
    pass_gap=0.02,
    pass_limit=0.2,
    presences=0.1,
    known_after=0.5,
    cluster_file=0.1,
    follow=0.1,
    retry_first=0.02,
    retry_last=0.2,
    change=3.0,
)


def simulated(name: str, **more: Any) -> dict[str, Any]:
    """A small model on the sim engine."""
    return {
        "name": name,
        "scaling": {"min": 1, "max": 1},
        "profiles": [{"engine": "sim", "min_memory_gb": 0.1, "slots": 4}],
        **more,
    }


async def until(what: str, is_true: Callable[[], Any], limit: float = 20.0) -> Any:
    """The first true value of ``is_true()`` (which may be a coroutine function)."""
    async with asyncio.timeout(limit):
        while True:
            found = is_true()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.02)


class LocalOrchestrator:
    """A running instance with its admin API."""

    def __init__(self, instance: Instance, port: int, cluster_file: Path) -> None:
        self.instance = instance
        self.port = port
        self.cluster_file = cluster_file

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def declare(self, *models: dict[str, Any], **more: Any) -> None:
        """Replaces cluster.yaml."""
        side = self.cluster_file.with_suffix(".part")
        side.write_bytes(msgspec.yaml.encode({"models": list(models), **more}))
        side.replace(self.cluster_file)

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """A call as ctl makes it: (status, JSON)."""
        async with (
            aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as session,
            session.request(
                method, self.url + path, data=None if body is None else msgspec.json.encode(body)
            ) as answer,
        ):
            raw = await answer.read()
            return answer.status, msgspec.json.decode(raw)

    async def items(self, what: str) -> list[dict[str, Any]]:
        status, found = await self.call("GET", f"/api/{what}")
        return found["items"] if status == 200 else []

    async def leads(self) -> None:
        await until("it leads", lambda: self.instance.term is not None)

    async def model_is(self, name: str, state: str) -> dict[str, Any]:
        """Waits for a model's state."""

        async def found() -> dict[str, Any] | None:
            for item in await self.items("models"):
                if item["name"] == name and item["state"] == state:
                    return item
            return None

        item: dict[str, Any] = await until(f"{name} is {state}", found)
        return item


def _written(folder: Path, content: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "cluster.yaml"
    file.write_bytes(msgspec.yaml.encode(content))
    return file


@contextlib.asynccontextmanager
async def running_orchestrator(
    redis_server: RedisServer,
    folder: Path,
    *models: dict[str, Any],
    name: str = "one",
    times: Times = QUICK,
    **more: Any,
) -> AsyncIterator[LocalOrchestrator]:
    """One instance, ended cleanly afterwards."""
    cluster_file = _written(folder, {"models": list(models), **more})
    settings = Settings(
        redis_url=redis_server.url, state=folder / "state", cluster_file=cluster_file, times=times
    )
    on_disk = FileOnDisk(cluster_file)
    instance = Instance(settings, name, on_disk, read_and_check(on_disk))
    listener = AdminListener(instance, None)
    port = await listener.open("127.0.0.1", 0)
    work = asyncio.ensure_future(instance.run())
    try:
        yield LocalOrchestrator(instance, port, cluster_file)
    finally:
        await end_all([work])
        await listener.close()


@contextlib.asynccontextmanager
async def running_agent(
    redis_server: RedisServer, node: str = "n1"
) -> AsyncIterator[ScriptedAgent]:
    """A scripted node, gone afterwards."""
    async with redis_server.async_client() as client:
        agent = ScriptedAgent(client, node)
        work = asyncio.ensure_future(agent.run())
        try:
            yield agent
        finally:
            await end_all([work])
