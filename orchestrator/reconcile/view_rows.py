"""Rows for people: states with ages and reasons. Unknown is None. Ages are seconds, sizes bytes."""

from __future__ import annotations

import msgspec


class NodeRow(msgspec.Struct, frozen=True):
    """A node. ``seen`` is seconds of silence, memory and disk bytes, None unknown; ``age`` is that of
    its state, or of its drain flag where that is younger.

    ``state``: unheard | ready | unreachable | lost. ``cards`` is type -> [held, total].
    """

    name: str
    state: str
    age: float
    seen: float | None
    drained: bool
    drain_done: bool
    obeying: bool
    simulated: bool
    address: str | None
    fabric: str | None
    cards: dict[str, list[int]]
    cores: int | None
    cores_reserved: int
    memory: int | None
    memory_reserved: int
    memory_available: int | None
    disk_free: int | None
    engines: list[str]
    labels: dict[str, str] | None
    weights: list[str]
    replicas: list[str]
    version: str
    protocol: int | None
    load: float | None
    skew: float | None
    notes: list[str]


class ShardRow(msgspec.Struct, frozen=True):
    """One rank: ``state`` as the agent last said, None when it has not; ``done`` of ``total`` bytes of
    a fetch."""

    rank: int
    node: str
    goal: str
    state: str | None
    reason: str
    gone: str
    cards: list[str]
    url: str | None
    ports: list[int]
    pid: int | None
    done: int | None
    total: int | None


class ReplicaRow(msgspec.Struct, frozen=True):
    """A replica. ``stale`` None: its fingerprint is unknown. ``failures`` are its model's in a row."""

    id: str
    generation: int
    model: str
    state: str
    shown: str
    age: float
    why: str
    detail: str
    nodes: list[str]
    cards: list[list[str]]
    engine: str
    hardware: str
    url: str | None
    fabric: str | None
    slots: int
    context: int | None
    running: int | None
    waiting: int | None
    stale: bool | None
    stuck: bool
    adopted: bool
    failures: int
    shards: list[ShardRow]
    first_failure: str | None
    last_failure: str | None


class ModelRow(msgspec.Struct, frozen=True):
    """A model. ``state``: off | idle | external | loading | ready | scaling | draining | pending |
    failing | needs_change | lost | refused | removed; ``reason`` says why in words."""

    name: str
    state: str
    reason: str
    klass: str
    origin: str
    simulated: bool
    external: bool
    owner: str | None
    description: str | None
    aliases: list[str]
    context_length: int | None
    source: str | None
    min: int
    max: int
    stopped: bool
    wanted: int
    ready: int
    replicas: list[str]
    in_flight: int | None
    waiting: int | None
    pending_for: float | None
    next_try: float | None
    eta: float | None
    failures: int
    first_failure: str | None
    last_failure: str | None


class Problem(msgspec.Struct, frozen=True):
    """What needs a person: tone red or amber, and the verb that explains it."""

    tone: str
    subject: str
    what: str
    why: str
    verb: str


class ClusterView(msgspec.Struct, frozen=True):
    """The whole, for status, nodes, models and replicas. ``problems`` are worst first."""

    epoch: int
    settled: bool
    mass_silence: bool
    routers: int | None
    endpoints_version: int
    nodes: list[NodeRow]
    models: list[ModelRow]
    replicas: list[ReplicaRow]
    problems: list[Problem]


class ExplainRow(msgspec.Struct, frozen=True):
    """One node and one failed filter, or one node that fits."""

    node: str
    verdict: str
    needs: str
    has: str


class Explanation(msgspec.Struct, frozen=True):
    """Why a model is as it is; rows per profile and node, nodes that fit first. ``next_try`` in
    seconds, None while nothing is waited for."""

    model: str
    state: str
    reason: str
    failures: int
    next_try: float | None
    profiles: list[list[ExplainRow]]
