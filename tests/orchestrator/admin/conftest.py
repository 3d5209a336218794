from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.fakes.local_orchestrator import LocalOrchestrator, running_orchestrator, simulated
from tests.fakes.redis_server import RedisServer, running_redis


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    with running_redis(tmp_path / "redis") as server:
        yield server


@pytest.fixture
async def orchestrator(
    redis_server: RedisServer, tmp_path: Path
) -> AsyncIterator[LocalOrchestrator]:
    """A leader that declares the model ``greek``."""
    async with running_orchestrator(redis_server, tmp_path / "one", simulated("greek")) as running:
        await running.leads()
        yield running
