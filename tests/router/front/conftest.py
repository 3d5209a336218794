"""Routers for the front's tests."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from router.config import GRANIAN, HTTPTOOLS
from tests.router.front.running_router import RunningRouter


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], AbstractEventLoop]]:
    """The front is tried on the loop that the workers have."""
    return {"uvloop": uvloop.new_event_loop}


Starter = Callable[..., RunningRouter]


@pytest.fixture(scope="module", params=[HTTPTOOLS, GRANIAN])
def front(request: pytest.FixtureRequest) -> str:
    """What holds for one front holds for both."""
    return str(request.param)


@pytest.fixture
def start_router(tmp_path: Path, front: str) -> Iterator[Starter]:
    """Starts routers that are gone when the test ends."""
    started: list[RunningRouter] = []

    def start(*options: str, workers: int = 1, patch: str | None = None) -> RunningRouter:
        folder = tmp_path / f"router{len(started)}"
        folder.mkdir()
        started.append(
            RunningRouter(folder, "--front", front, *options, workers=workers, patch=patch)
        )
        return started[-1]

    yield start
    for router in started:
        router.stop()


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory, front: str) -> Iterator[RunningRouter]:
    """One worker with small caps, shared by the tests of a module."""
    running = RunningRouter(
        tmp_path_factory.mktemp("router"),
        "--front",
        front,
        "--body-cap",
        "1",
        "--bodies-held",
        "2",
        "--body-time",
        "1",
    )
    yield running
    running.stop()
