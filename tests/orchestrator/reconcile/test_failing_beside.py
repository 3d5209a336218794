"""A copy that fails while another serves, or while two are wanted (FO14); drains without room."""

from __future__ import annotations

from orchestrator.reconcile.events import NodeDrained
from tests.fakes.cluster import Cluster
from tests.orchestrator.reconcile.models import always


def half_broken() -> Cluster:
    """Two copies wanted, one card on each of two nodes, of which b breaks every engine."""
    cluster = Cluster(always())
    for name in "ab":
        cluster.node(name, cards=1)
    cluster.agents["b"].breaks = lambda shard: "bad driver"
    cluster.lead()
    cluster.until(lambda: cluster.states("m") == ["ready"], 60)
    assert cluster.only("m").nodes == ["a"]
    return cluster


def test_a_copy_that_has_served_for_long_does_not_forgive_the_one_that_fails():
    cluster = half_broken()
    cluster.advance(700)
    tried = len(cluster.agents["b"].launches)
    cluster.change_catalog(always(least=2))
    cluster.advance(600)
    assert 3 <= len(cluster.agents["b"].launches) - tried <= 8, "it backs off"
    cluster.advance(2400)
    assert cluster.models["m"].failures >= 8
    assert len(cluster.agents["b"].launches) - tried <= 11, "needs a change: one try per 30 min"
    assert len(cluster.of("m", "ready")) == 1


def test_a_failing_model_is_started_one_copy_at_a_time():
    cluster = Cluster(always(least=3))
    agent = cluster.node("a", cards=3)
    agent.breaks = lambda shard: "CUDA error"
    cluster.lead()
    cluster.until(lambda: cluster.models.get("m") and cluster.models["m"].failures >= 3, 60)
    for _ in range(600):
        cluster.advance(0.5)
        assert len(cluster.of("m", "preparing", "starting")) <= 1
    assert cluster.models["m"].failures >= 4


def test_after_a_failure_the_others_follow_the_first_that_serves():
    cluster = Cluster(always(least=3))
    agent = cluster.node("a", cards=3)
    agent.breaks = lambda shard: "CUDA error" if len(agent.launches) <= 3 else ""
    cluster.lead()
    cluster.until(lambda: cluster.models.get("m") and cluster.models["m"].failures == 3, 60)
    starting = 0
    for _ in range(240):
        cluster.advance(0.5)
        starting = max(starting, len(cluster.of("m", "preparing", "starting")))
    assert cluster.states("m") == ["ready"] * 3
    assert starting == 2, "once one serves the rest need not wait for one another"


def test_a_drain_without_room_ends_for_every_copy_one_at_a_time():
    cluster = Cluster(always(least=2))
    cluster.node("a", cards=2)
    cluster.lead()
    cluster.settle_at("m", 2)
    cluster.advance(20)
    cluster.handle(NodeDrained("a", True))
    (row,) = cluster.reconciler.view(cluster.now).nodes
    assert row.age == 0, "it is draining since now, not since it was first heard"

    def gone() -> bool:
        assert len(cluster.of("m", "draining")) <= 1
        return not cluster.records

    cluster.until(gone, 60)


def test_a_drain_waits_for_a_replacement_that_fails_at_first():
    """Room there is: the copy that serves is kept while its successor's start is retried."""
    cluster = Cluster(always())
    for name in "ab":
        cluster.node(name, cards=1)
    cluster.lead()
    cluster.until(lambda: cluster.states("m") == ["ready"])
    cluster.advance(5)
    (old,) = cluster.only("m").nodes
    other = cluster.agents["b" if old == "a" else "a"]
    other.breaks = lambda shard: "slow disk" if len(other.launches) <= 3 else ""
    cluster.handle(NodeDrained(old, True))

    def moved() -> bool:
        assert cluster.serving(), "nothing served during the drain"
        return [one.nodes for one in cluster.of("m")] == [[other.name]]

    cluster.until(moved, 200)


def test_a_drain_ends_after_its_patience_though_the_replacement_fails():
    cluster = Cluster(always())
    for name in "ab":
        cluster.node(name, cards=1)
    cluster.lead()
    cluster.until(lambda: cluster.states("m") == ["ready"])
    (old,) = cluster.only("m").nodes
    cluster.agents["b" if old == "a" else "a"].breaks = lambda shard: "bad driver"
    cluster.handle(NodeDrained(old, True))
    cluster.advance(1700)
    assert cluster.of("m", "ready")
    cluster.until(lambda: not cluster.of("m", "ready", "draining"), 200)


def test_after_a_lost_store_the_first_node_heard_does_not_speak_for_the_others():
    cluster = Cluster(always(least=2))
    for name in "ab":
        cluster.node(name, cards=1)
    cluster.lead()
    cluster.settle_at("m", 2)
    cluster.node("c", cards=2)
    cluster.advance(5)
    cluster.raw_records.clear()
    cluster.hellos.clear()
    # b's next beat comes late, within its two seconds.
    for name, at in (("a", 0.0), ("b", 1.9), ("c", 0.0)):
        cluster.agents[name]._next_beat = cluster.now + at
    cluster.events.clear()
    cluster.endpoints = None
    cluster.lead()
    for _ in range(40):
        cluster.advance(0.5)
        assert cluster.endpoints is None or len(cluster.endpoint_states("m")) == 2
    assert "preparing" not in [event.what for event in cluster.events], "nothing was started twice"
    assert cluster.states("m") == ["ready", "ready"]
    assert all(record.adopted for record in cluster.records.values())
