"""The table itself: what is in it happens, what is not raises and changes nothing."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest

from orchestrator.catalog.build import build
from orchestrator.errors import IllegalTransition, NotTakenOver
from orchestrator.reconcile.cluster_state import ClusterState
from orchestrator.reconcile.events import CatalogChanged, TookOver
from orchestrator.reconcile.limits import DEFAULTS
from orchestrator.reconcile.reconciler import Reconciler
from orchestrator.reconcile.records import (
    Record,
    ReplicaState,
    ShardRecord,
    decode_record,
    encode_record,
)
from orchestrator.reconcile.transitions import LIVE, TABLE, WAY_BACK, Cause
from orchestrator.wire.profile import Profile
from tests.orchestrator.reconcile.models import always

STATES = get_args(ReplicaState)
CAUSES = get_args(Cause)


def record_in(state: ReplicaState) -> Record:
    return Record(
        id="r",
        generation=7,
        model="m",
        origin="declared",
        fingerprint="1:x",
        profile=Profile(engine="sim"),
        served_name="m",
        slots=1,
        state=state,
        since_ms=1,
        made_ms=1,
        shards=[ShardRecord(0, "a", goal="run"), ShardRecord(1, "b", goal="run")],
    )


def state_with(record: Record) -> ClusterState:
    event = TookOver(1, 1_000_000, build([always()], {}), records=[record])
    return ClusterState(event, 10.0, DEFAULTS, lambda: "key", lambda: 0.0)


@pytest.mark.parametrize(("state", "cause"), list(itertools.product(STATES, CAUSES)))
def test_every_pair(state, cause):
    record = record_in(state)
    cluster = state_with(record)
    row = TABLE.get((state, cause))
    if row is None:
        with pytest.raises(IllegalTransition):
            cluster.move(record, cause, "why")
        assert cluster.records == {"r": record}
        assert not cluster.changed
        assert not cluster.models_changed
        return
    cluster.move(record, cause, "why", "a")
    failures = cluster.model_state("m").failures
    assert failures == (1 if row.charged else 0)
    if row.to == "gone":
        assert cluster.records == {}
        assert "r" in cluster.deleted
        return
    moved = cluster.records["r"]
    assert (moved.state, moved.why, moved.detail) == (row.to, cause, "why")
    assert moved.failed == row.failed
    assert moved.generation == 7, "a record has one generation for life"
    goals = {shard.goal for shard in moved.shards}
    assert goals == ({"stop"} if row.to == "stopping" else {"run"})
    if row.to == "draining" and state != "draining":
        assert moved.drain_until_ms == 1_060_000


def test_only_failures_of_its_own_are_charged():
    charged = {pair for pair, row in TABLE.items() if row.charged}
    assert charged == {
        ("preparing", "failed"),
        ("preparing", "stalled"),
        ("starting", "failed"),
        ("starting", "stalled"),
        ("ready", "failed"),
        ("ready", "absent"),
    }


def test_a_serving_copy_stops_only_by_draining_or_because_it_serves_no_more():
    """Invariant 4: never by a leader change, a lost command or silence below Lost."""
    to_stop = {
        cause for (state, cause), row in TABLE.items() if state == "ready" and row.to == "stopping"
    }
    assert to_stop == {"failed", "excused", "absent", "not_serving", "rank_lost"}


def test_nothing_leaves_stopping_but_the_end():
    assert {cause for state, cause in TABLE if state == "stopping"} == {"gone"}


def test_a_way_back_exists_for_draining_by_our_own_choice_only():
    assert {"surplus", "idle"} == WAY_BACK
    assert set(LIVE) == {"preparing", "starting", "ready"}


def test_a_record_survives_the_store():
    record = record_in("ready")
    assert decode_record(encode_record(record)) == record


def test_a_newer_records_unknown_keys_are_ignored():
    raw = encode_record(record_in("ready")).replace(b'{"id"', b'{"newer": 1, "id"', 1)
    assert decode_record(raw) == record_in("ready")


def test_generations_grow_and_are_never_given_twice():
    cluster = state_with(record_in("ready"))
    drawn = [cluster.draw_generation() for _ in range(3)]
    assert drawn == [1_000_000, 1_000_001, 1_000_002]
    cluster.note_generation(5_000_000)
    assert cluster.draw_generation() == 5_000_001


def test_the_first_event_is_the_take_over():
    reconciler = Reconciler(lambda: "key", lambda: 0.0)
    with pytest.raises(NotTakenOver):
        reconciler.handle(CatalogChanged(build([], {})), 1.0)
    with pytest.raises(NotTakenOver):
        reconciler.decide(1.0)
