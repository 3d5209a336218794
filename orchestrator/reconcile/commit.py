"""What changed since the last pass, as one fenced write."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from orchestrator.reconcile.actions import Action, Commit
from orchestrator.reconcile.cluster_state import ClusterState
from orchestrator.reconcile.endpoints import Publisher
from orchestrator.reconcile.wants import write_wants
from orchestrator.wire.presence import Version


def take_commit(state: ClusterState, publisher: Publisher) -> list[Action]:
    """At most one Commit, then what is to be said; both are forgotten here."""
    snapshot = publisher.next(state)
    _note_withdrawals(state, publisher.version)
    touched = [*state.touched_nodes]
    touched += [
        node.name for node in state.nodes.by_name.values() if node.heard and not node.written
    ]
    wants = write_wants(state, dict.fromkeys(touched))
    commit = Commit(
        records=tuple(state.records[one] for one in state.changed if one in state.records),
        deleted=tuple(state.deleted),
        models={name: state.models[name] for name in state.models_changed},
        wants=tuple(wants),
        notices=tuple(state.notices),
        endpoints=snapshot,
    )
    actions: list[Action] = [] if commit == Commit() else [commit]
    actions += state.said
    state.changed = {}
    state.deleted = {}
    state.models_changed = {}
    state.touched_nodes = {}
    state.notices = []
    state.said = []
    return actions


def _note_withdrawals(state: ClusterState, version: int) -> None:
    """A draining copy remembers the first snapshot that says so: its drain waits for the routers to
    have applied that one."""
    if not version:
        return
    for record in list(state.records.values()):
        if record.state == "draining" and record.withdrawn is UNSET:
            withdrawn = Version(state.epoch, version)
            state.put(msgspec.structs.replace(record, withdrawn=withdrawn))
