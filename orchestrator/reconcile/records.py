"""What the leader keeps of a replica and of a model, as JSON in the hashes ``replicas`` and ``models``.

A record is one attempt with one generation for life (wire.md); everything that a successor of this
leader needs is in it. Times end in ``_ms`` and are Redis's clock.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from orchestrator.wire.presence import Version
from orchestrator.wire.profile import Adapter, Profile
from orchestrator.wire.reports import Applied, ShardReport
from orchestrator.wire.want import Goal, MetricNames, Origin

SCHEMA = 1

ReplicaState = Literal["preparing", "starting", "ready", "draining", "stopping", "lost"]
#: Why a shard is no more: the agent verified its end; a Full that knew it did not list it (or the
#: machine was set up anew); an operator forgot its node.
Gone = Literal["", "ended", "absent", "forgotten"]


class ShardSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the agent last said of a shard; ages and measurements are left out, they would rewrite
    the record at every report."""

    state: str
    reason: str = ""
    detail: str = ""
    charged: bool = True
    url: str | UnsetType = UNSET
    ports: list[int] = []
    fabric_address: str | UnsetType = UNSET
    digest: str | UnsetType = UNSET
    adapter_names: dict[str, str | int] = {}
    served_name: str | UnsetType = UNSET
    slots: int | UnsetType = UNSET
    context: int | UnsetType = UNSET
    on_cards: bool | UnsetType = UNSET
    pid: int | UnsetType = UNSET

    @classmethod
    def of(cls, report: ShardReport) -> ShardSeen:
        """The lasting part of a report."""
        return cls(**{name: getattr(report, name) for name in cls.__struct_fields__})


class ShardRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rank on one node. ``memory`` and ``disk`` are the booked bytes.

    ``entered`` is the first want that named the shard: a report whose ``applied`` is older says
    nothing about it.
    """

    rank: int
    node: str
    node_id: str = ""
    goal: Goal = "prepare"
    cards: list[str] = []
    cores: int | UnsetType = UNSET
    memory: int | UnsetType = UNSET
    disk: int | UnsetType = UNSET
    entered: Applied | UnsetType = UNSET
    seen: ShardSeen | UnsetType = UNSET
    gone: Gone = ""


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """One copy of a model: one generation, its shards in rank order.

    ``why`` is the cause of the last change (a word of transitions.py), ``detail`` the words for a
    person. ``withdrawn`` is the endpoints snapshot that first said draining. ``failed`` marks a
    stop after a failure.
    """

    id: str
    generation: int
    model: str
    origin: Origin
    fingerprint: str
    profile: Profile
    served_name: str
    slots: int
    state: ReplicaState
    since_ms: int
    made_ms: int
    shards: list[ShardRecord]
    context: int | UnsetType = UNSET
    metrics: MetricNames | UnsetType = UNSET
    adapters: list[Adapter] = []
    engine_key: str = ""
    fabric: str | UnsetType = UNSET
    head_address: str | UnsetType = UNSET
    why: str = ""
    detail: str = ""
    failed: bool = False
    stuck: bool = False
    adopted: bool = False
    returned: bool = False
    drain_until_ms: int | UnsetType = UNSET
    withdrawn: Version | UnsetType = UNSET
    ready_ms: int | UnsetType = UNSET
    schema: int = SCHEMA

    @property
    def nodes(self) -> list[str]:
        """Its nodes in rank order."""
        return [shard.node for shard in self.shards]

    @property
    def head(self) -> ShardRecord:
        """Rank 0, which answers."""
        return self.shards[0]


class FailureNote(msgspec.Struct, frozen=True):
    """A failure kept on the model, in words."""

    at_ms: int
    replica: str
    node: str
    text: str


class ModelState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Run-time state of a model that outlives its replicas (R53).

    ``failures`` are charged ones in a row. ``profiles`` are the fingerprints that failed: another
    set means edited, which ends the back-off. ``passed_over`` counts failures in a row per
    fingerprint; ``node_failures`` the times of charged failures per node; ``avoided`` ends per node.
    ``load_seconds`` is the last measured load per hardware class.
    """

    stopped: bool = False
    failures: int = 0
    next_try_ms: int = 0
    first_failure: FailureNote | UnsetType = UNSET
    last_failure: FailureNote | UnsetType = UNSET
    profiles: list[str] = []
    profile_failures: dict[str, int] = {}
    node_failures: dict[str, list[int]] = {}
    avoided: dict[str, int] = {}
    load_seconds: dict[str, float] = {}
    schema: int = SCHEMA


def encode_record(record: Record | ModelState) -> bytes:
    """The document as JSON."""
    return msgspec.json.encode(record)


_record_decoder = msgspec.json.Decoder(Record)
_model_decoder = msgspec.json.Decoder(ModelState)


def decode_record(raw: bytes) -> Record:
    """The record in ``raw``; msgspec.MsgspecError says what does not fit."""
    return _record_decoder.decode(raw)


def decode_model_state(raw: bytes) -> ModelState:
    """The model's state in ``raw``; msgspec.MsgspecError says what does not fit."""
    return _model_decoder.decode(raw)
