"""What the shell tells the reconciler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.catalog.catalog import Catalog
from orchestrator.reconcile.records import ModelState, Record
from orchestrator.wire.presence import Presence
from orchestrator.wire.reports import Hello, Report


@dataclass(frozen=True, slots=True)
class TookOver:
    """First event of a reconciler's life. ``epoch`` is one that no reconciler had before (after a
    failed Commit the lease is given back and taken anew). ``clock_ms`` is Redis's clock now. The
    shell notes the end of ``reports`` before it reads ``known_nodes`` and reads on from there."""

    epoch: int
    clock_ms: int
    catalog: Catalog
    records: Sequence[Record] = ()
    model_states: Mapping[str, ModelState] = field(default_factory=dict)
    known_nodes: Sequence[Hello] = ()
    drained_nodes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CatalogChanged:
    """Another catalog is in force."""

    catalog: Catalog


@dataclass(frozen=True, slots=True)
class ReportRead:
    """One entry of ``reports`` (agents' and the leader's own Echo), in the stream's order."""

    report: Report


@dataclass(frozen=True, slots=True)
class PresenceSeen:
    """All live router workers. ``known``: no read of Redis has failed for 15 s, and the take-over is
    at least 15 s ago."""

    presences: Mapping[str, Presence]
    known: bool


@dataclass(frozen=True, slots=True)
class WantedHeard:
    """A router holds a request for a model without an endpoint."""

    model: str


@dataclass(frozen=True, slots=True)
class ExternalKeysRead:
    """API keys of external models, as read from their files; a model not named has none to send."""

    keys: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """The drain flag of a node was set or taken away."""

    node: str
    drained: bool


@dataclass(frozen=True, slots=True)
class NodeForgotten:
    """An operator says the node will not return. UnknownSubject where it is ready or not known."""

    node: str


@dataclass(frozen=True, slots=True)
class NodeLostByOperator:
    """An operator says the silent node is Lost, brake or not. UnknownSubject where it is ready."""

    node: str


@dataclass(frozen=True, slots=True)
class RestartAsked:
    """An operator wants a successor for this replica. UnknownSubject where there is none such."""

    replica: str


@dataclass(frozen=True, slots=True)
class ModelStopped:
    """``model stop|start``: run-time state, allowed on any model of the catalog."""

    model: str
    stopped: bool


Event = (
    TookOver
    | CatalogChanged
    | ReportRead
    | PresenceSeen
    | WantedHeard
    | ExternalKeysRead
    | NodeDrained
    | NodeForgotten
    | NodeLostByOperator
    | RestartAsked
    | ModelStopped
)
