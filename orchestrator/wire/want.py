"""Leader to agent: the node's whole wanted state, the notice that it changed, and questions.

The agent obeys the highest (epoch, revision) it has seen; a lost, repeated, reordered or trimmed
notice changes nothing. Only the goal ``stop`` stops.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from orchestrator.wire.codec import PROTOCOL, Reader
from orchestrator.wire.profile import Adapter, Profile

#: Within one generation a goal moves in this order and never back.
Goal = Literal["prepare", "run", "stop"]
GOALS: tuple[Goal, ...] = ("prepare", "run", "stop")
Origin = Literal["declared", "stored"]


class MetricNames(msgspec.Struct, frozen=True, omit_defaults=True):
    """An engine's names for the three numbers (R82-R84). Names separated by ``|`` are tried in order."""

    running: str | UnsetType = UNSET
    waiting: str | UnsetType = UNSET
    cache_use: str | UnsetType = UNSET


class ShardWant(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rank of one replica on one node.

    memory and disk are bytes, grace seconds. ``rank`` is never defaulted. ``head_address`` is rank
    0's ``host:port`` on the fabric, unset until rank 0 has reported it and on world size 1.
    """

    replica: str
    generation: int
    model: str
    origin: str
    fingerprint: str
    rank: int
    world_size: int
    goal: str
    profile: Profile
    served_name: str
    slots: int
    context: int | UnsetType = UNSET
    metrics: MetricNames | UnsetType = UNSET
    adapters: list[Adapter] = []
    cards: list[str] = []
    cores: int | UnsetType = UNSET
    memory: int | UnsetType = UNSET
    disk: int | UnsetType = UNSET
    head_address: str | UnsetType = UNSET
    grace: float = 30.0
    engine_key: str = ""


class Want(msgspec.Struct, frozen=True):
    """Everything that should be on one node, a pure function of the records."""

    epoch: int
    revision: int
    shards: list[ShardWant]
    protocol: int = PROTOCOL


class WantChanged(msgspec.Struct, frozen=True, tag="want"):
    """``want:<node>`` is at (epoch, revision)."""

    epoch: int
    revision: int


class SendReport(msgspec.Struct, frozen=True, tag="report"):
    """Send a Full."""

    epoch: int
    id: str


class ReadLog(msgspec.Struct, frozen=True, tag="log"):
    """The last ``limit`` bytes (at most 64 KiB) of a shard's log; ``which``: now, first failure."""

    epoch: int
    id: str
    replica: str
    rank: int
    which: Literal["now", "first"] = "now"
    limit: int = 65536


class SessionTaken(msgspec.Struct, frozen=True, tag="taken"):
    """Another, newer agent session speaks for this node name; the session named here is not heard."""

    epoch: int
    session: str


Command = WantChanged | SendReport | ReadLog | SessionTaken

read_want = Reader(Want)
read_command: Reader[Command] = Reader(Command)  # type: ignore[arg-type]
