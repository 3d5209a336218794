"""One Redis for all tests of a file, one cluster in it per test."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.engine_cgroup import sweep_cgroups
from agent.process_facts import MARK_VARIABLE
from tests.agent.leader_and_agents import AgentProcess, Leader
from tests.fakes.redis_server import RedisServer, running_redis

_numbers = itertools.count()


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def leader(redis_server: RedisServer) -> Iterator[Leader]:
    leader = Leader(redis_server, f"test-{next(_numbers)}")
    yield leader
    leader.client.close()


@pytest.fixture
def agent(
    redis_server: RedisServer, leader: Leader, tmp_path: Path
) -> Iterator[Callable[..., AgentProcess]]:
    """Makes agents (not started); they and their engines are gone afterwards."""

    def make(node: str = "n1", config: str = "") -> AgentProcess:
        made = AgentProcess(redis_server, leader.keys.cluster, node, tmp_path / node)
        made.config += config
        leader.agents.append(made)
        return made

    yield make
    for made in leader.agents:
        made.kill()
    for made in leader.agents:
        kill_engines_of(made)


def engines_of(agent: AgentProcess) -> list[int]:
    """Every process that carries the mark of this agent's engines."""
    with contextlib.suppress(FileNotFoundError):
        mark = f"{MARK_VARIABLE}={(agent.folder / 'state/node_id').read_text()}:".encode()
        return [pid for pid in _pids() if _has(pid, mark)]
    return []


def kill_engines_of(agent: AgentProcess) -> None:
    for pid in engines_of(agent):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    node_id = agent.folder / "state/node_id"
    end = time.monotonic() + 5
    while node_id.exists() and time.monotonic() < end:
        if not engines_of(agent) and sweep_cgroups(node_id.read_text(), ()):
            break
        time.sleep(0.02)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _has(pid: int, mark: bytes) -> bool:
    try:
        if any(v.startswith(mark) for v in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            return state != "Z"
    except OSError:
        pass
    return False
