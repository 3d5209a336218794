"""Starts one shard's process: port band, files, mark, record, in this order, and none twice."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import UNSET

from agent.config import AgentConfig
from agent.engine_cgroup import engine_cgroup
from agent.engine_process import EngineProcess, launch
from agent.engines.adapters import ADAPTERS
from agent.engines.launch_plan import LaunchPlan, NodeFacts, Paths
from agent.marks import EngineRecord, StateFolder, write_durably
from agent.ports import Band, PortTable
from agent.process_facts import Identity
from agent.shard_row import ShardRow
from agent.want_state import Refusal

log = logging.getLogger("agent")

#: Of the agent's own environment: what ties a process to systemd is not an engine's.
_NOT_INHERITED = ("NOTIFY_SOCKET", "LISTEN_", "WATCHDOG_", "JOURNAL_STREAM", "INVOCATION_ID")
#: Nor are our own addresses and secrets.
_OURS = "LLMGW_"
_SECRET_WORDS = ("URL", "KEY", "PASSWORD", "TOKEN", "SECRET")


class EngineStarter:
    """Everything that a start needs of the node."""

    def __init__(
        self, folder: StateFolder, config: AgentConfig, node: NodeFacts, node_id: str, start: int
    ) -> None:
        self.node = node
        self._folder = folder
        self._node_id = node_id
        self.ports = PortTable(config.ports.first, config.ports.last, start)
        #: Sockets that hold a multi-node shard's ports until its process takes them.
        self._held: dict[int, list[socket.socket]] = {}

    def plan(self, row: ShardRow, band: Band) -> LaunchPlan:
        """The row's process, on these ports."""
        folder = self._folder.engine_folder(row.generation)
        paths = Paths(str(folder), row.weights or None, row.adapter_paths)
        return ADAPTERS[row.shard.profile.engine].plan(row.shard, self.node, band, paths)

    def reserve(self, row: ShardRow, now: float) -> Refusal | None:
        """Holds a band for a multi-node shard by binding it; its address on the fabric is noted."""
        fabric = self.node.fabric
        if fabric is None:
            return Refusal("no-fabric", "several nodes need a fabric; agent.yaml names none")
        head = row.shard.head_address
        told = None if head is UNSET or row.shard.rank != 0 else int(head.rpartition(":")[2])

        def fits(band: Band) -> bool:
            # The other ranks were told an address: after a restart it must be that one again.
            return told in (None, band.meeting) and can_bind(self.node.address, band)

        band = self.ports.choose(row.generation, now, fits)
        if band is None:
            if told is not None:
                return Refusal(
                    "address-in-use", f"port {told}, which the other ranks know, is taken"
                )
            return Refusal("no-ports", "no band of ten free ports is left")
        try:
            self._held[row.generation] = [bind(fabric.address, band.meeting)]
        except OSError as error:
            self.ports.release(row.generation, now)
            return Refusal("no-ports", f"{fabric.address}:{band.meeting}: {error.strerror}")
        row.band = band
        row.fabric_address = authority(fabric.address, band.meeting)
        return None

    def let_go(self, row: ShardRow, now: float) -> None:
        """The row's ports are nobody's any more."""
        self._unhold(row.generation)
        self.ports.release(row.generation, now)
        row.band = None

    def start(self, row: ShardRow, mark: Callable[[], None]) -> Refusal | None:
        """Starts the process; a refusal when there is no port. ``mark`` is called before anything runs.

        Raises LaunchFailed, or OSError of the state folder; then nothing was started.
        """
        now = time.monotonic()
        if row.band is None:
            row.band = self.ports.choose(
                row.generation, now, lambda b: can_bind(self.node.address, b)
            )
        if row.band is None:
            return Refusal("no-ports", "no band of ten free ports is left")
        plan, folder = self.plan(row, row.band), self._folder.engine_folder(row.generation)
        if plan.dropped_env:
            log.warning(
                "%s of %s: the profile's env may not set %s: dropped",
                *(row.shard.replica, row.shard.model, ", ".join(plan.dropped_env)),
            )
        for name, content in plan.files.items():
            write_durably(folder / name, content.encode())
        mark()
        self._unhold(row.generation)
        row.process = self._launch(row, plan, folder)
        return None

    def _launch(self, row: ShardRow, plan: LaunchPlan, folder: Path) -> EngineProcess:
        assert row.band is not None
        cgroup = engine_cgroup(self._node_id, row.generation)
        record = EngineRecord(
            shard=row.shard,
            identity=Identity(0, 0, "", "", ""),
            ports=row.band.ports,
            launched_ms=int(time.time() * 1000),
            url=UNSET
            if plan.probes is None
            else f"http://{authority(self.node.address, row.band.http)}",
            fabric_address=row.fabric_address,
            digest=row.digest,
            cgroup="" if cgroup is None else str(cgroup),
            adapter_paths=row.adapter_paths,
            probes=plan.probes,
        )

        def keep(identity: Identity) -> None:
            row.record = msgspec.structs.replace(record, identity=identity)
            self._folder.keep_engine(row.record)

        env = {**base_environment(), **plan.env}
        mark = f"{self._node_id}:{row.generation}:{row.shard.rank}"
        return launch(plan.argv, env, folder, mark, cgroup, keep)

    def _unhold(self, generation: int) -> None:
        for held in self._held.pop(generation, []):
            held.close()

    def close(self) -> None:
        """Lets go of every held port."""
        for generation in list(self._held):
            self._unhold(generation)


def base_environment() -> dict[str, str]:
    """What an engine inherits: the agent's own environment without what is ours alone."""
    return {
        k: v for k, v in os.environ.items() if not (k.startswith(_NOT_INHERITED) or _is_secret(k))
    }


def _is_secret(name: str) -> bool:
    return name.startswith(_OURS) and any(word in name for word in _SECRET_WORDS)


def authority(address: str, port: int) -> str:
    """``host:port``, an IPv6 address in brackets."""
    return (
        f"[{address}]:{port}" if ipaddress.ip_address(address).version == 6 else f"{address}:{port}"
    )


def bind(address: str, port: int, *, reuse: bool = False) -> socket.socket:
    """A TCP socket bound there; OSError where it is taken."""
    family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if reuse:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address, port))
    except OSError:
        bound.close()
        raise
    return bound


def can_bind(address: str, band: Band) -> bool:
    """Whether nobody listens on any port of the band. Old connections in TIME_WAIT do not matter."""
    for port in band.ports:
        try:
            with bind(address, port, reuse=True) as probe:
                probe.listen(1)
        except OSError:
            return False
    return True
