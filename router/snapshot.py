"""The present state of the world as a router knows it: built whole, never changed, swapped by reference.

Catalog, endpoints and access each have an (epoch, version); a request takes the state once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import UNSET

from orchestrator.wire.names import build_names
from orchestrator.wire.presence import Version
from orchestrator.wire.snapshots import (
    Absence,
    AccessSnapshot,
    CatalogSnapshot,
    Endpoint,
    EndpointsSnapshot,
    KeyEntry,
    ModelEntry,
)


class Snapshots(NamedTuple):
    """The three as they came."""

    catalog: CatalogSnapshot
    endpoints: EndpointsSnapshot
    access: AccessSnapshot


@dataclass(frozen=True, slots=True)
class Served:
    """A model with what serves it now.

    ``endpoints`` take new requests: the ready ones, else those whose nodes are Lost. ``window`` is the
    largest context of one request that any of them takes, ``smallest_window`` the least; None: unknown.
    """

    entry: ModelEntry
    endpoints: tuple[Endpoint, ...]
    absence: Absence | None
    window: int | None
    smallest_window: int | None


class Named(NamedTuple):
    """What a client's name means."""

    served: Served
    adapter: str | None


@dataclass(frozen=True, slots=True)
class State:
    """Everything a request is judged by. ``keys``: hex SHA-256 of a key -> its entry."""

    versions: Mapping[str, Version]
    names: Mapping[str, Named]
    models: Mapping[str, Served]
    #: Every endpoint of the snapshot by id, draining ones too.
    endpoints: Mapping[str, Endpoint]
    keys: Mapping[str, KeyEntry]
    keys_required: bool


def build_state(snapshots: Snapshots, *, keys_required: bool) -> State:
    """The state these snapshots make; NameClash when two things of the catalog want one name."""
    catalog, endpoints, access = snapshots
    targets = build_names(catalog.models)
    absences = {absence.model: absence for absence in endpoints.absences}
    by_model: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints.endpoints:
        by_model.setdefault(endpoint.model, []).append(endpoint)
    models = {
        entry.name: _serve(entry, by_model.get(entry.name, []), absences.get(entry.name))
        for entry in catalog.models
    }
    return State(
        versions={
            "catalog": Version(catalog.epoch, catalog.version),
            "endpoints": Version(endpoints.epoch, endpoints.version),
            "access": Version(access.epoch, access.version),
        },
        names={
            name: Named(models[target.model.name], target.adapter)
            for name, target in targets.items()
        },
        models=models,
        endpoints={endpoint.id: endpoint for endpoint in endpoints.endpoints},
        keys=access.keys,
        keys_required=keys_required,
    )


def _serve(entry: ModelEntry, endpoints: list[Endpoint], absence: Absence | None) -> Served:
    # External providers speak TLS and hold a foreign key; they are not reached by the engines' pool.
    own = [endpoint for endpoint in endpoints if endpoint.external is UNSET]
    taking = [endpoint for endpoint in own if endpoint.state == "ready"]
    if not taking:
        taking = [endpoint for endpoint in own if endpoint.state == "unconfirmed"]
    declared = None if entry.context_length is UNSET else entry.context_length
    windows = [
        declared if endpoint.context is UNSET else endpoint.context for endpoint in taking
    ] or [declared]
    known = [window for window in windows if window is not None]
    return Served(
        entry=entry,
        endpoints=tuple(taking),
        absence=absence,
        window=max(known) if len(known) == len(windows) else None,
        smallest_window=min(known) if known else None,
    )
