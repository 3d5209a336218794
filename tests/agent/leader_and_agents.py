"""A stand-in for the leader, and real agents as processes, for tests over a real Redis."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import redis

from orchestrator.wire.codec import encode
from orchestrator.wire.keys import MESSAGE_FIELD, Keys
from orchestrator.wire.reports import Full, Report, ShardReport, read_report
from orchestrator.wire.want import Command, ShardWant, Want, WantChanged
from tests.fakes.redis_server import RedisServer, free_port

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 40.0  # seconds; only ever waited for when something is broken
EPOCH = 5

T = TypeVar("T", bound=msgspec.Struct)


def wait_for(
    look: Callable[[], T | None], what: str, agents: list[AgentProcess] | None = None
) -> T:
    """The first answer that is one; an error naming ``what`` and the agents' logs when none comes."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        answer = look()
        if answer is not None:
            return answer
        time.sleep(0.02)
    logs = "\n".join(agent.log.read_text()[-3000:] for agent in agents or [])
    raise AssertionError(f"{what} did not come\n{logs}")


class AgentProcess:
    """One agent, its state folder, and its log."""

    def __init__(self, server: RedisServer, cluster: str, node: str, folder: Path) -> None:
        self.node = node
        self.folder = folder
        self.log = folder / "agent.log"
        self._url_file = folder / "redis-url"
        self._cluster = cluster
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        self._url_file.write_text(server.url)
        first = 20_000 + free_port() % 1_200 * 10  # below the ports of outgoing connections
        self.config = f"ports: {{first: {first}, last: {first + 399}}}\n"

    def start(self, *flags: str) -> None:
        """Begins a run of it."""
        config = self.folder / "agent.yaml"
        config.write_text(self.config)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "agent", "--redis-file", str(self._url_file)),
                    *("--node", self.node, "--cluster", self._cluster, "--config", str(config)),
                    *("--state", str(self.folder / "state"), "--metrics-bind", "127.0.0.1:0"),
                    *flags,
                ],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """A clean end; the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(how)
        return process.wait(20)

    def engine_log(self, generation: int) -> str:
        """What an engine of it has written."""
        return (self.folder / "state" / "engines" / str(generation) / "log").read_text()


class Leader:
    """Writes wants and commands and reads what agents report."""

    def __init__(self, server: RedisServer, cluster: str) -> None:
        self.keys = Keys(cluster)
        self.client: redis.Redis = server.client()
        self.revision = 0
        self.agents: list[AgentProcess] = []

    def want(self, node: str, *shards: ShardWant, revision: int | None = None) -> Want:
        """Writes a node's whole want (the next revision) and its notice."""
        if revision is None:
            self.revision += 1
        new = Want(EPOCH, self.revision if revision is None else revision, list(shards))
        self.client.set(self.keys.want(node), encode(new))
        self.command(node, WantChanged(EPOCH, new.revision))
        return new

    def command(self, node: str, command: Command) -> None:
        """Sends a notice or a question."""
        self.client.xadd(self.keys.cmd(node), {MESSAGE_FIELD: encode(command)})

    def reports(self, node: str) -> list[Report]:
        """Everything that node has said, oldest first."""
        entries: Any = self.client.xrange(self.keys.reports)
        said = [read_report(fields[MESSAGE_FIELD]) for _, fields in entries]
        return [report for report in said if getattr(report, "node", None) == node]

    def last(self, node: str, kind: type[T]) -> T | None:
        """The newest report of a kind."""
        return next((r for r in reversed(self.reports(node)) if isinstance(r, kind)), None)

    def full(self, node: str) -> Full:
        """The newest Full."""
        return wait_for(lambda: self.last(node, Full), f"a Full of {node}", self.agents)

    def forget_reports(self) -> None:
        """Everything from now on is new."""
        self.client.delete(self.keys.reports)

    def shard(self, node: str, state: str, generation: int = 7) -> ShardReport:
        """Waits until the newest Full has the shard in that state."""

        def look() -> ShardReport | None:
            full = self.last(node, Full)
            for shard in [] if full is None else full.shards:
                if shard.generation == generation and shard.state == state:
                    return shard
            return None

        return wait_for(look, f"{state} of generation {generation} on {node}", self.agents)
