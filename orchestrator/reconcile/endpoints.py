"""The endpoints snapshot: who answers for which model, and why nobody does."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import UNSET

from orchestrator.catalog.catalog import CatalogModel
from orchestrator.reconcile.backoff import needs_change, wait_ms
from orchestrator.reconcile.cluster_state import ClusterState
from orchestrator.reconcile.records import Record
from orchestrator.wire.snapshots import (
    Absence,
    AbsenceKind,
    Endpoint,
    EndpointsSnapshot,
    EndpointState,
    External,
)


class _Gap(NamedTuple):
    """An absence with absolute times, so that a second's passing is no change."""

    model: str
    kind: AbsenceKind
    text: str = ""
    since_ms: int | None = None
    ready_at_ms: int | None = None
    next_try_ms: int | None = None

    def absence(self, now_ms: int) -> Absence:
        """As it is sent: times count from now."""
        return Absence(
            self.model,
            self.kind,
            self.text,
            UNSET if self.since_ms is None else self.since_ms,
            UNSET if self.ready_at_ms is None else max(0.0, (self.ready_at_ms - now_ms) / 1000),
            UNSET if self.next_try_ms is None else max(0.0, (self.next_try_ms - now_ms) / 1000),
        )


class Publisher:
    """Makes a snapshot when the content differs from the last one of this epoch."""

    def __init__(self) -> None:
        self.version = 0
        self._last: tuple[list[Endpoint], list[_Gap]] | None = None

    def next(self, state: ClusterState) -> EndpointsSnapshot | None:
        """The next snapshot, or None where nothing changed or it is too early to say anything."""
        if not state.settled and not state.had_records:
            return None
        content = (endpoints(state), _gaps(state))
        if content == self._last:
            return None
        self._last = content
        self.version += 1
        absences = [gap.absence(state.ms()) for gap in content[1]]
        return EndpointsSnapshot(state.epoch, self.version, content[0], absences)


def endpoints(state: ClusterState) -> list[Endpoint]:
    """One per copy that answers, and one per external model with its key; by id."""
    made = []
    for record in state.records.values():
        said = _endpoint_state(state, record)
        if said is not None and record.head.seen is not UNSET:
            made.append(_endpoint(record, said))
    for name, model in state.catalog.models.items():
        external = model.definition.external
        if external is not UNSET and name in state.external_keys:
            made.append(
                Endpoint(
                    id=f"external:{name}",
                    generation=0,
                    model=name,
                    url=external.url,
                    engine="external",
                    served_name=external.model,
                    external=External(external.url, external.model, state.external_keys[name]),
                )
            )
    return sorted(made, key=lambda endpoint: endpoint.id)


def _endpoint_state(state: ClusterState, record: Record) -> EndpointState | None:
    """None where the copy is not for routers: not serving yet or no more, its model removed (R59), or
    Lost with a replacement that serves."""
    if record.model not in state.catalog.models and record.model not in state.catalog.skipped:
        return None
    if record.state == "ready":
        return "ready"
    if record.state == "draining":
        return "draining"
    if record.state != "lost":
        return None
    model = state.catalog.models.get(record.model)
    wanted = 1 if model is None else max(1, model.definition.least)
    serving = sum(other.state == "ready" for other in state.of_model(record.model))
    return "unconfirmed" if serving < wanted else None


def _endpoint(record: Record, said: EndpointState) -> Endpoint:
    seen = record.head.seen
    assert seen is not UNSET
    assert seen.url is not UNSET
    return Endpoint(
        id=record.id,
        generation=record.generation,
        model=record.model,
        url=seen.url,
        engine=record.profile.engine,
        served_name=record.served_name if seen.served_name is UNSET else seen.served_name,
        state=said,
        engine_key=record.engine_key,
        slots=record.slots if seen.slots is UNSET else seen.slots,
        context=record.context if seen.context is UNSET else seen.context,
        adapters=dict(seen.adapter_names),
        fabric=record.fabric,
        hardware="cpu" if record.profile.gpu is UNSET else record.profile.gpu,
        prefill_rate=record.profile.prefill_rate,
    )


def _gaps(state: ClusterState) -> list[_Gap]:
    gaps = []
    for name, model in sorted(state.catalog.models.items()):
        if any(record.state == "ready" for record in state.of_model(name)):
            continue
        gap = _gap(state, name, model)
        if gap is not None:
            gaps.append(gap)
    return gaps


def _gap(state: ClusterState, name: str, model: CatalogModel) -> _Gap | None:
    known = state.model_state(name)
    definition = model.definition
    if definition.external is not UNSET:
        if name in state.external_keys:
            return None
        return _Gap(
            name, "failed", f"no key for the provider in {definition.external.api_key_file}"
        )
    if known.stopped:
        return _Gap(name, "off", "stopped by an operator")
    if definition.most == 0:
        return _Gap(name, "off", "switched off")
    for record in state.of_model(name):
        if record.state in ("preparing", "starting"):
            return _Gap(name, "loading", "", record.made_ms, ready_at_ms(state, record))
    failure = "" if known.last_failure is UNSET else known.last_failure.text
    if known.failures and needs_change(known, state.limits):
        return _Gap(name, "needs_change", failure, next_try_ms=known.next_try_ms)
    if wait_ms(known, state.ms()):
        return _Gap(name, "failed", failure, next_try_ms=known.next_try_ms)
    pending = state.pending.get(name)
    if pending is None and definition.on_demand:
        return _Gap(name, "idle")
    if not state.settled:
        return _Gap(name, "loading", "the orchestrator is hearing the nodes")
    if pending is not None and pending.kind == "no_room":
        return _Gap(name, "no_room", pending.text)
    return _Gap(name, "loading", "about to be placed")


def ready_at_ms(state: ClusterState, record: Record) -> int | None:
    """When the copy should serve, by the last measured load on that class; None where none was."""
    hardware = "cpu" if record.profile.gpu is UNSET else record.profile.gpu
    seconds = state.model_state(record.model).load_seconds.get(hardware)
    return None if seconds is None else record.made_ms + int(seconds * 1000)
