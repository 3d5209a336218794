"""Nodes that fall silent, are lost, come back; the leader that changes meanwhile."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import UNSET

from orchestrator.catalog.build import build
from orchestrator.errors import IllegalTransition, UnknownSubject
from orchestrator.reconcile.events import NodeForgotten, NodeLostByOperator, ReportRead
from orchestrator.reconcile.nodes import NODE_TABLE, Node
from orchestrator.wire.reports import Beat, Echo
from tests.fakes.cluster import Cluster
from tests.orchestrator.reconcile.models import always, big
from tests.orchestrator.reconcile.test_life import serving


def node_state(cluster: Cluster, name: str) -> str | None:
    rows = cluster.reconciler.view(cluster.now).nodes
    return next((row.state for row in rows if row.name == name), None)


@pytest.mark.parametrize("state", ["unheard", "ready", "unreachable", "lost"])
@pytest.mark.parametrize("cause", ["full", "silent", "long_silent", "operator"])
def test_the_node_table(state, cause):
    node = Node("a", 0.0)
    node.state = state
    if (state, cause) in NODE_TABLE:
        node.turn(cause, 5.0)
        assert (node.state, node.since) == (NODE_TABLE[state, cause], 5.0)
    else:
        with pytest.raises(IllegalTransition):
            node.turn(cause, 5.0)
        assert (node.state, node.since) == (state, 0.0)


def test_a_blip_moves_nothing():
    """R54, R55."""
    cluster = serving("a", "b", "c")
    before = cluster.only("m")
    (name,) = before.nodes
    cluster.agents[name].linked = False
    cluster.until(lambda: node_state(cluster, name) == "unreachable", 40)
    cluster.advance(200)
    assert cluster.only("m").id == before.id
    assert cluster.endpoint_states("m") == ["ready"]
    cluster.agents[name].linked = True
    cluster.until(lambda: node_state(cluster, name) == "ready", 10)
    assert cluster.launches() == 1


def test_an_unreachable_node_is_no_candidate():
    cluster = serving("a", "b", "c")
    for name in "ab":
        cluster.agents[name].linked = False
    cluster.advance(40)
    cluster.change_catalog(always(), always("other"))
    cluster.until(lambda: cluster.states("other") == ["ready"])
    assert cluster.only("other").nodes == ["c"]


def test_a_lost_node_moves_its_replicas_and_on_return_one_survives():
    """R190, FO02."""
    cluster = serving("a", "b", "c")
    old = cluster.only("m")
    (name,) = old.nodes
    cluster.agents[name].linked = False
    cluster.until(lambda: node_state(cluster, name) == "lost", 340)
    assert cluster.endpoint_states("m") == ["unconfirmed"]
    cluster.until(lambda: len(cluster.of("m", "ready")) == 1)
    cluster.advance(1)
    assert cluster.endpoint_states("m") == ["ready"]
    assert old.id in cluster.serving(), "nothing stops an engine that cannot be reached"
    cluster.agents[name].linked = True
    cluster.until(lambda: cluster.states("m") == ["ready"])
    assert cluster.only("m").id != old.id, "of two that serve the older generation drains"
    cluster.until(lambda: cluster.serving() == {cluster.only("m").id})
    assert any(
        event.what == "ready" and event.reason.startswith("its nodes") for event in cluster.events
    )


def test_a_node_that_returns_before_the_replacement_serves_keeps_its_copy():
    """FO02: keep the one that serves."""
    cluster = serving("a", "b", "c")
    old = cluster.only("m")
    for agent in cluster.agents.values():
        agent.load_time = 100
    cluster.agents[old.nodes[0]].linked = False
    cluster.until(lambda: cluster.of("m", "starting"), 340)
    cluster.agents[old.nodes[0]].linked = True
    cluster.until(lambda: cluster.states("m") == ["ready"])
    assert cluster.only("m").id == old.id
    assert cluster.models["m"].failures == 0


def test_a_lost_node_that_comes_back_empty_gives_its_copy_up():
    cluster = serving("a", "b", "c")
    old = cluster.only("m")
    agent = cluster.agents[old.nodes[0]]
    agent.linked = False
    cluster.until(lambda: cluster.of("m", "lost"), 340)
    agent.reboot()
    agent.linked = True
    cluster.until(lambda: old.id not in cluster.records)
    assert cluster.models.get("m") is None or cluster.models["m"].failures == 0


def test_a_machine_set_up_anew_has_none_of_its_old_shards():
    cluster = serving("a")
    old = cluster.only("m")
    cluster.agents["a"].set_up_anew()
    cluster.until(lambda: cluster.states("m") == ["ready"] and cluster.only("m").id != old.id)


def test_routers_as_witnesses_move_a_replica_of_a_silent_node_at_once():
    cluster = serving("a", "b", "c", routers=2)
    old = cluster.only("m")
    cluster.agents[old.nodes[0]].linked = False
    for router in cluster.routers.values():
        router.used.add(old.id)
    cluster.routers["w0"].down.add(old.id)
    cluster.advance(60)
    assert cluster.states("m") == ["ready"], "one of them still uses it"
    cluster.routers["w1"].down.add(old.id)
    cluster.advance(1)
    assert cluster.records[old.id].state == "stopping"
    cluster.until(lambda: len(cluster.of("m", "ready")) == 1)
    assert cluster.models.get("m") is None or cluster.models["m"].failures == 0


def test_routers_that_say_down_of_a_node_that_is_heard_decide_nothing():
    cluster = serving("a")
    record = cluster.only("m")
    cluster.routers["w0"].used.add(record.id)
    cluster.routers["w0"].down.add(record.id)
    cluster.advance(30)
    assert cluster.only("m").state == "ready"


def test_the_brake_holds_while_half_of_the_nodes_are_silent():
    """FO01: a fault of ours looks like this."""
    cluster = serving("a", "b", "c", "d", models=(always(least=4),))
    ids = {one.id for one in cluster.of("m")}
    for name in "ab":
        cluster.agents[name].linked = False
    cluster.advance(700)
    assert node_state(cluster, "a") == node_state(cluster, "b") == "unreachable"
    assert cluster.reconciler.view(cluster.now).mass_silence
    assert any(event.what == "mass silence" for event in cluster.events)
    assert {one.id for one in cluster.of("m", "ready")} == ids
    cluster.agents["b"].linked = True
    cluster.until(lambda: node_state(cluster, "a") == "lost", 10)
    assert not cluster.reconciler.view(cluster.now).mass_silence


def test_after_the_brake_nodes_are_lost_one_at_a_time():
    cluster = serving(*"abcdef", models=(always(least=1),))
    for name in "abc":
        cluster.agents[name].linked = False
    cluster.advance(400)
    cluster.agents["c"].linked = True
    cluster.until(lambda: "lost" in (node_state(cluster, "a"), node_state(cluster, "b")), 10)
    cluster.advance(5)
    assert {node_state(cluster, "a"), node_state(cluster, "b")} == {"lost", "unreachable"}
    cluster.until(lambda: node_state(cluster, "b") == "lost", 10)


def test_an_operator_declares_a_silent_node_lost_in_spite_of_the_brake():
    cluster = serving("a", "b")
    old = cluster.only("m")
    with pytest.raises(UnknownSubject, match="is ready"):
        cluster.handle(NodeLostByOperator(old.nodes[0]))
    for agent in cluster.agents.values():
        agent.linked = False
    cluster.advance(40)
    cluster.handle(NodeLostByOperator(old.nodes[0]))
    cluster.until(lambda: cluster.states("m") == ["lost"], 5)


def test_a_forgotten_node_takes_its_records_with_it():
    cluster = serving("a", "b", "c")
    old = cluster.only("m")
    name = old.nodes[0]
    cluster.agents[name].linked = False
    cluster.until(lambda: cluster.of("m", "lost"), 340)
    cluster.until(lambda: cluster.of("m", "ready"))
    cluster.handle(NodeForgotten(name))
    cluster.until(lambda: old.id not in cluster.records, 5)
    assert name not in [row.name for row in cluster.reconciler.view(cluster.now).nodes]
    with pytest.raises(UnknownSubject, match="no node"):
        cluster.handle(NodeForgotten("nobody"))
    cluster.agents[name].linked = True
    cluster.until(lambda: node_state(cluster, name) == "ready", 5)
    cluster.until(lambda: cluster.states("m") == ["ready"] and len(cluster.serving()) == 1)


def test_a_pause_of_ours_is_nobodys_silence():
    """FO01: frozen for ten minutes, with and without reports that lie unread."""
    cluster = serving("a", "b", "c")
    old = cluster.only("m")
    cluster.leading = False
    cluster.advance(600)
    cluster.leading = True
    cluster.advance(10)
    assert cluster.only("m").id == old.id
    assert {node_state(cluster, name) for name in "abc"} == {"ready"}


def test_a_gap_in_the_echoes_sets_silence_to_zero():
    cluster = serving("a", "b", "c")
    cluster.agents["a"].linked = False
    cluster.advance(24)
    cluster.handle(ReportRead(Echo("o1", cluster.epoch, 10_000)))
    cluster._echo = 10_000
    cluster.advance(20)
    assert node_state(cluster, "a") == "ready"
    cluster.until(lambda: node_state(cluster, "a") == "unreachable", 15)


def test_the_clock_of_an_agent_is_shown_and_used_for_nothing():
    """FO03."""
    cluster = serving("a")
    beat = cluster.agents["a"].beat()
    ahead = 1_800_000_000_000 + int(cluster.now * 1000) + 7_200_000
    cluster.agents["a"].linked = False
    cluster.handle(ReportRead(Beat("a", beat.session, beat.applied, clock_ms=ahead)))
    row = cluster.reconciler.view(cluster.now).nodes[0]
    assert row.skew == pytest.approx(7200, abs=2)
    assert row.state == "ready"


def test_of_two_agents_of_one_name_the_newer_is_heard():
    cluster = serving("a")
    agent = cluster.agents["a"]
    for old in (agent.beat(), agent.hello()):
        before = len(cluster.events)
        agent.restart()
        cluster.advance(10)
        cluster.report(old)
        cluster.advance(1)
        assert any(event.what == "two agents" for event in cluster.events[before:])
    assert cluster.only("m").state == "ready"


def test_a_node_that_does_not_obey_is_no_candidate_and_its_start_is_taken_away():
    cluster = Cluster(always())
    cluster.node("a", cards=1)
    cluster.lead()
    cluster.agents["a"].obeys = False
    cluster.until(lambda: cluster.states("m") == ["preparing"])
    cluster.advance(50)
    assert cluster.states("m") == ["preparing"]
    cluster.node("b", cards=1)
    cluster.until(lambda: cluster.of("m", "ready"), 30)
    assert cluster.of("m", "ready")[0].nodes == ["b"]
    row = next(row for row in cluster.reconciler.view(cluster.now).nodes if row.name == "a")
    assert "does not obey" in row.notes
    assert cluster.models["m"].failures == 0


def test_a_report_older_than_the_want_says_nothing_about_what_it_does_not_list():
    """wire.md: a Full whose `applied` does not know the entry is no absence."""
    cluster = serving("a")
    stale = cluster.agents["a"].full()
    cluster.agents["a"].obeys = False
    cluster.change_catalog(always(), always("other"))
    cluster.until(lambda: cluster.states("other") == ["preparing"])
    cluster.report(stale)
    cluster.advance(5)
    assert cluster.states("other") == ["preparing"]
    cluster.agents["a"].obeys = True
    cluster.until(lambda: cluster.states("other") == ["ready"])


# -- two nodes


def test_tp8_goes_over_two_nodes_of_one_fabric_workers_first():
    """R32, R51, R193."""
    cluster = Cluster(big())
    for name, fabric in (("a", "ib-a"), ("b", "ib-b"), ("c", "ib-a"), ("d", None)):
        cluster.node(name, cards=4, fabric=fabric)
    cluster.lead()
    cluster.until(lambda: cluster.states("big") == ["starting"])
    record = cluster.only("big")
    assert sorted(record.nodes) == ["a", "c"]
    assert record.fabric == "ib-a"
    assert [shard.goal for shard in record.shards] == ["prepare", "run"]
    seen = record.head.seen
    assert seen is not UNSET
    assert record.head_address == seen.fabric_address
    head, worker = (cluster.agents[name] for name in record.nodes)
    assert not head.launches
    cluster.until(lambda: cluster.states("big") == ["ready"])
    assert head.launches
    assert worker.launches
    assert [endpoint.id for endpoint in cluster.published()] == [record.id]


def test_a_model_over_two_nodes_is_never_split_over_two_fabrics():
    cluster = Cluster(big())
    for name, fabric in (("a", "ib-a"), ("b", "ib-b"), ("c", None)):
        cluster.node(name, cards=4, fabric=fabric)
    cluster.lead()
    cluster.advance(20)
    assert not cluster.records
    assert "fabric" in cluster.absence("big").text


def two_nodes() -> Cluster:
    cluster = Cluster(big())
    for name in "abcd":
        cluster.node(name, cards=4, fabric="ib-a")
    cluster.lead()
    cluster.until(lambda: cluster.states("big") == ["ready"])
    return cluster


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_fails_the_whole_and_all_is_rebuilt(rank):
    """R52, FO15."""
    cluster = two_nodes()
    old = cluster.only("big")
    cluster.agents[old.nodes[rank]].kill(old.id, rank)
    cluster.until(lambda: cluster.records[old.id].state == "stopping", 2)
    cluster.advance(0.5)
    assert cluster.endpoint_states("big") == []
    cluster.until(lambda: cluster.states("big") == ["ready"])
    assert cluster.models["big"].failures == 1
    ranks = [key for agent in cluster.agents.values() for key in agent.shards]
    assert {replica for replica, _ in ranks} == {cluster.only("big").id}


def test_no_engine_runs_while_another_rank_still_fetches():
    """FO16."""
    cluster = Cluster(big())
    for name in "ab":
        cluster.node(name, cards=4, fabric="ib-a")
    cluster.agents["b"].fetch_time = 120
    cluster.lead()
    cluster.advance(100)
    assert cluster.launches() == 0
    cluster.until(lambda: cluster.states("big") == ["ready"])
    assert cluster.models.get("big") is None or cluster.models["big"].failures == 0


def test_a_lost_rank_stops_the_reachable_ones_and_the_whole_is_rebuilt():
    cluster = two_nodes()
    old = cluster.only("big")
    cluster.agents[old.nodes[1]].linked = False
    cluster.advance(400)
    assert cluster.only("big").id == old.id, "a node of a multi-node replica has 600 s"
    cluster.until(lambda: cluster.records[old.id].state == "stopping", 300)
    cluster.until(lambda: len(cluster.of("big", "ready")) == 1)
    assert old.nodes[1] not in cluster.of("big", "ready")[0].nodes


# -- leader change


def test_a_new_leader_takes_everything_over_and_stops_nothing():
    cluster = serving("a", "b", models=(always(least=2), always("n")))
    before = {one.id: one.state for one in cluster.records.values()}
    launches = cluster.launches()
    for _ in range(3):
        cluster.lead()
        cluster.advance(3)
    cluster.advance(60)
    assert {one.id: one.state for one in cluster.records.values()} == before
    assert cluster.launches() == launches
    assert cluster.serving() == set(before)


def test_a_leader_change_in_the_middle_of_a_load_and_of_a_drain():
    cluster = serving("a", models=(always(), always("n")))
    cluster.routers["w0"].held[cluster.only("n").id] = 1
    cluster.agents["a"].fetch_time = 10
    cluster.change_catalog(always(least=2))
    cluster.until(lambda: len(cluster.of("m", "preparing")) == 1 and cluster.of("n", "draining"))
    cluster.lead()
    cluster.until(lambda: cluster.states("m") == ["ready", "ready"])
    assert cluster.launches() == 3
    assert cluster.states("n") == ["draining"]
    cluster.until(lambda: cluster.states("n") == [], 70)


def test_records_that_are_lost_are_rebuilt_from_what_agents_report():
    """R60, R65."""
    cluster = serving("a", "b", models=(always(least=2),))
    before = cluster.records
    key = cluster.of("m")[0].engine_key
    cluster.raw_records.clear()
    cluster.hellos.clear()
    cluster.endpoints = None
    for router in cluster.routers.values():
        router.version = type(router.version)()
    cluster.lead()
    cluster.until(lambda: len(cluster.records) == 2, 40)
    cluster.advance(5)
    after = cluster.records
    assert set(after) == set(before)
    for name, record in after.items():
        assert (record.state, record.adopted) == ("ready", True)
        assert record.generation == before[name].generation
        assert record.head.cards == before[name].head.cards
        assert record.engine_key == key
    assert cluster.endpoint_states("m") == ["ready", "ready"]
    assert cluster.launches() == 2


def test_an_adopted_replica_over_two_nodes_has_all_its_ranks():
    cluster = two_nodes()
    old = cluster.only("big")
    cluster.raw_records.clear()
    cluster.lead()
    cluster.until(lambda: cluster.states("big") == ["ready"], 40)
    assert cluster.only("big").id == old.id
    assert [shard.rank for shard in cluster.only("big").shards] == [0, 1]
    assert cluster.only("big").nodes == old.nodes


def test_an_engine_of_a_model_that_is_unknown_is_stopped_after_five_minutes():
    """R58."""
    cluster = serving("a")
    old = cluster.only("m")
    cluster.raw_records.clear()
    cluster.catalog = type(cluster.catalog)({})
    cluster.lead()
    cluster.advance(290)
    assert old.id in cluster.serving()
    cluster.until(lambda: not cluster.serving(), 30)
    cluster.until(lambda: not cluster.records)


def test_ranks_that_stay_missing_are_stopped_and_the_late_one_too():
    cluster = two_nodes()
    old = cluster.only("big")
    cluster.agents[old.nodes[0]].linked = False
    cluster.raw_records.clear()
    cluster.lead()
    cluster.until(lambda: old.id in cluster.records, 360)
    assert cluster.records[old.id].state == "stopping"
    cluster.agents[old.nodes[0]].linked = True
    cluster.until(
        lambda: (
            not any(
                old.id == key[0] and shard.alive
                for agent in cluster.agents.values()
                for key, shard in agent.shards.items()
            )
        ),
        60,
    )


def test_an_engine_of_another_origin_is_stopped():
    cluster = serving("a")
    old = cluster.only("m")
    cluster.raw_records.clear()
    shard = cluster.agents["a"].shards[old.id, 0]
    shard.want = msgspec.structs.replace(shard.want, origin="stored")
    cluster.lead()
    cluster.until(lambda: cluster.states("m") == ["ready"] and cluster.only("m").id != old.id, 60)


def test_a_silent_node_delays_settling_by_thirty_seconds_at_most():
    cluster = serving("a", "b")
    cluster.agents["b"].linked = False
    cluster.lead()
    cluster.change_catalog(always(), always("late"))
    cluster.advance(25)
    assert not cluster.reconciler.settled
    assert cluster.states("late") == []
    cluster.until(lambda: cluster.states("late") == ["ready"], 20)


def test_an_agent_restart_changes_nothing():
    cluster = serving("a")
    before = cluster.only("m")
    cluster.agents["a"].restart()
    cluster.advance(60)
    assert cluster.only("m").id == before.id
    assert cluster.launches() == 1


def test_the_cards_of_an_engine_that_no_record_knows_are_not_handed_out():
    """FO02."""
    cluster = serving("a", cards=2)
    old = cluster.only("m")
    cluster.raw_records.clear()
    cluster.catalog = build([always("other", least=2)], {})
    cluster.lead()
    cluster.until(lambda: cluster.states("other") == ["ready"], 40)
    cluster.advance(30)
    assert cluster.states("other") == ["ready"]
    assert cluster.only("other").head.cards != old.head.cards
    cluster.until(lambda: cluster.states("other") == ["ready", "ready"], 400)


def test_that_a_node_does_not_obey_is_said_once_and_so_is_the_end():
    cluster = serving("a")
    cluster.agents["a"].obeys = False
    cluster.change_catalog(always(least=2))
    cluster.advance(150)
    assert [event.what for event in cluster.events].count("does not obey") == 1
    cluster.agents["a"].obeys = True
    cluster.advance(5)
    assert [event.what for event in cluster.events].count("obeys again") == 1


def test_a_drain_of_a_node_that_is_not_known_holds_when_it_appears():
    cluster = Cluster(always())
    cluster.drained = {"a"}
    cluster.lead()
    cluster.advance(5)
    assert cluster.reconciler.settled
    cluster.node("a", cards=1)
    cluster.advance(5)
    assert cluster.reconciler.view(cluster.now).nodes[0].drained
    assert not cluster.records
