"""The channel ``feed``: notices that may be lost, each only making something quicker."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from orchestrator.wire.codec import Reader


class SnapshotNotice(msgspec.Struct, frozen=True, tag="snapshot"):
    """A snapshot has a new version."""

    name: str
    epoch: int
    version: int


class ReplicaLoad(msgspec.Struct, frozen=True, omit_defaults=True):
    """One ready replica as its engine counts it; ``age`` of the scrape in seconds.

    Listed with unset numbers: alive but unmeasured. Not listed: gone.
    """

    id: str
    generation: int
    age: float
    running: int | UnsetType = UNSET
    waiting: int | UnsetType = UNSET
    cache_use: float | UnsetType = UNSET
    slots: int | UnsetType = UNSET
    prompt_tokens: int | UnsetType = UNSET
    generated_tokens: int | UnsetType = UNSET
    adapters: list[str] = []


class Load(msgspec.Struct, frozen=True, tag="load"):
    """One agent's ready replicas, every 500 ms."""

    node: str
    session: str
    replicas: list[ReplicaLoad]


class Wanted(msgspec.Struct, frozen=True, tag="wanted"):
    """A router holds a request for a model that has no endpoint: load it."""

    model: str
    worker: str


Feed = SnapshotNotice | Load | Wanted

read_feed: Reader[Feed] = Reader(Feed)  # type: ignore[arg-type]
