"""Agent to leader: who I am, that I live, and everything that runs here.

An unset number is unknown; silence of a field is never read as zero or "no" (R185). A report says
nothing about a shard whose want entry is newer than the report's ``applied``.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from orchestrator.wire.codec import PROTOCOL, Reader
from orchestrator.wire.profile import Adapter, Profile

ShardState = Literal[
    "fetching", "prepared", "up", "ready", "hung", "stopping", "ended", "stuck", "refused"
]


class Applied(msgspec.Struct, frozen=True, order=True):
    """The highest want an agent has obeyed."""

    epoch: int = 0
    revision: int = 0


class Fabric(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fast network a node is in. ``address`` is the node's own on it."""

    name: str
    address: str
    interface: str | UnsetType = UNSET


class Card(msgspec.Struct, frozen=True, omit_defaults=True):
    """One accelerator. Memory in bytes; ``ours`` used by our engines, ``foreign`` by strangers."""

    uuid: str
    type: str
    memory: int | UnsetType = UNSET
    free: int | UnsetType = UNSET
    ours: int | UnsetType = UNSET
    foreign: int | UnsetType = UNSET
    foreign_pids: list[int] = []
    healthy: bool = True
    problem: str = ""


class Disk(msgspec.Struct, frozen=True):
    """A file system an agent may fetch to or looks in. Bytes."""

    path: str
    total: int
    free: int


class Engine(msgspec.Struct, frozen=True, omit_defaults=True):
    """An engine found on the node; the flags are those its ``--help`` knows."""

    kind: str
    version: str | UnsetType = UNSET
    command: str = ""


class Inventory(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a node has. Memory in bytes."""

    address: str
    cpus: int | UnsetType = UNSET
    memory: int | UnsetType = UNSET
    memory_available: int | UnsetType = UNSET
    disks: list[Disk] | UnsetType = UNSET
    cards: list[Card] = []
    engines: list[Engine] = []
    labels: dict[str, str] | UnsetType = UNSET
    fabric: Fabric | UnsetType = UNSET
    simulated: bool = False
    kernel: str = ""
    driver: str | UnsetType = UNSET


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why something failed: a stable kind, the words for a person, the agent's clock in ms."""

    kind: str
    text: str
    at_ms: int | UnsetType = UNSET


class Weights(msgspec.Struct, frozen=True, omit_defaults=True):
    """Weights seen on a node: complete, and whether its file system is shared (unknown is local)."""

    source: str
    complete: bool
    shared: bool = False
    size: int | UnsetType = UNSET
    digest: str | UnsetType = UNSET


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of a fetch: bytes done and, where known, in all; bytes per second."""

    done: int
    total: int | UnsetType = UNSET
    rate: float | UnsetType = UNSET


class ShardReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """One shard as it is: enough to rebuild its record from nothing.

    ages and grace in seconds, memory in bytes, ``pid_start`` in clock ticks since boot (/proc/PID/stat).
    ``reason`` is a stable word for the state, ``failure_*`` the words for a person.
    """

    replica: str
    generation: int
    model: str
    origin: str
    fingerprint: str
    rank: int
    world_size: int
    state: str
    age: float
    profile: Profile | UnsetType = UNSET
    served_name: str | UnsetType = UNSET
    slots: int | UnsetType = UNSET
    context: int | UnsetType = UNSET
    reason: str = ""
    detail: str = ""
    charged: bool = True
    pid: int | UnsetType = UNSET
    pid_start: int | UnsetType = UNSET
    cards: list[str] = []
    cores: int | UnsetType = UNSET
    memory: int | UnsetType = UNSET
    memory_measured: int | UnsetType = UNSET
    card_memory_measured: dict[str, int] | UnsetType = UNSET
    url: str | UnsetType = UNSET
    ports: list[int] = []
    fabric_address: str | UnsetType = UNSET
    adapters: list[Adapter] = []
    adapter_names: dict[str, str | int] = {}
    engine_key: str = ""
    digest: str | UnsetType = UNSET
    progress: Progress | UnsetType = UNSET
    on_cards: bool | UnsetType = UNSET
    first_failure: Failure | UnsetType = UNSET
    last_failure: Failure | UnsetType = UNSET


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A new session of an agent. ``node_id`` is kept on disk and tells a re-imaged machine."""

    node: str
    session: str
    node_id: str
    started_ms: int
    inventory: Inventory
    version: str
    protocol: int = PROTOCOL


class ReplicaUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of one ready replica since the last beat; our own probes are not use."""

    generation: int
    busy: bool
    running: int | UnsetType = UNSET
    waiting: int | UnsetType = UNSET


class Beat(msgspec.Struct, frozen=True, tag="beat", omit_defaults=True):
    """The light sign of life, every 2 s."""

    node: str
    session: str
    applied: Applied
    clock_ms: int | UnsetType = UNSET
    cpus: int | UnsetType = UNSET
    load: float | UnsetType = UNSET
    use: list[ReplicaUse] = []


class Full(msgspec.Struct, frozen=True, tag="full", omit_defaults=True):
    """Every shard of the newest want and everything that runs."""

    node: str
    session: str
    node_id: str
    applied: Applied
    inventory: Inventory
    shards: list[ShardReport]
    version: str
    weights: list[Weights] = []
    clock_ms: int | UnsetType = UNSET
    protocol: int = PROTOCOL


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """A shard of want that this agent will not obey, by name of the reason."""

    node: str
    session: str
    replica: str
    generation: int
    rank: int
    reason: str
    detail: str


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """The one answer to a question."""

    node: str
    session: str
    id: str
    ok: bool
    text: str


class Bye(msgspec.Struct, frozen=True, tag="bye"):
    """A clean end of a session; engines stay."""

    node: str
    session: str


class Echo(msgspec.Struct, frozen=True, tag="echo"):
    """The leader's own mark in ``reports`` every 2 s: a node's silence is counted in these."""

    instance: str
    epoch: int
    number: int


Report = Hello | Beat | Full | Refused | Answer | Bye | Echo

read_report: Reader[Report] = Reader(Report)  # type: ignore[arg-type]
read_hello = Reader(Hello)
