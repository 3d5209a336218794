"""The reconciler's actions as commands of one fenced write each, the record first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.publish import endpoints_write
from orchestrator.reconcile.actions import Action, Commit, SayEvent
from orchestrator.reconcile.records import encode_record
from orchestrator.store import Command, SnapshotWrite, Store
from orchestrator.wire.codec import encode


class FencedWrite(NamedTuple):
    """The commands of one write, and the snapshot that goes with them."""

    commands: list[Command]
    snapshot: SnapshotWrite | None = None


def event_text(event: SayEvent, at_ms: int) -> str:
    """One line of ``events``."""
    return json.dumps(
        {
            "at_ms": at_ms,
            "level": event.level,
            "subject": event.subject,
            "what": event.what,
            "reason": event.reason,
        },
        ensure_ascii=False,
    )


def writes_of(actions: Sequence[Action], store: Store, at_ms: int) -> list[FencedWrite]:
    """One write per Commit, in order; what is said goes with the write before it."""
    writes: list[FencedWrite] = []
    for action in actions:
        if isinstance(action, Commit):
            writes.append(_commit_write(action, store))
            continue
        if not writes:
            writes.append(FencedWrite([]))
        writes[-1].commands.append(store.event_entry(event_text(action, at_ms)))
    return writes


def _commit_write(commit: Commit, store: Store) -> FencedWrite:
    keys = store.keys
    commands: list[Command] = [
        ["HSET", keys.replicas, record.id, encode_record(record)] for record in commit.records
    ]
    if commit.deleted:
        commands.append(["HDEL", keys.replicas, *commit.deleted])
    commands += [
        ["HSET", keys.models, name, encode_record(state)] for name, state in commit.models.items()
    ]
    commands += [["SET", keys.want(node), encode(want)] for node, want in commit.wants]
    commands += [store.node_command(node, encode(notice)) for node, notice in commit.notices]
    snapshot = None if commit.endpoints is None else endpoints_write(commit.endpoints)
    return FencedWrite(commands, snapshot)
