"""A copy's life: placed, ready, drained, failed, rebuilt."""

from __future__ import annotations

import msgspec
import pytest

from orchestrator.errors import UnknownSubject
from orchestrator.reconcile.events import ExternalKeysRead, ModelStopped, NodeDrained, RestartAsked
from orchestrator.wire.reports import Refused
from tests.fakes.cluster import Cluster
from tests.orchestrator.reconcile.models import always


def serving(*nodes: str, models=(), routers: int = 1, **has) -> Cluster:
    """A cluster whose every model serves; without any named, one called m."""
    models = models or (always(),)
    cluster = Cluster(*models, routers=routers)
    for node in nodes:
        cluster.node(node, **{"cards": 8, **has})
    cluster.lead()
    for model in models:
        wanted = model["scaling"]["min"]
        name = model["name"]
        cluster.settle_at(name, wanted)
    cluster.advance(2)
    return cluster


def test_a_model_below_its_minimum_is_placed_and_becomes_ready():
    cluster = serving("a")
    record = cluster.only("m")
    assert record.nodes == ["a"]
    assert record.head.cards == ["a-gpu0"]
    assert cluster.endpoint_states("m") == ["ready"]
    assert cluster.absence("m") is None
    assert cluster.launches() == 1


def test_before_anything_runs_routers_are_told_that_it_loads():
    cluster = Cluster(always())
    cluster.node("a", cards=1)
    cluster.lead()
    cluster.until(lambda: cluster.states("m") == ["preparing"])
    cluster.advance(1)
    assert cluster.absence("m").kind == "loading"


def test_the_second_load_has_an_estimate():
    cluster = serving("a")
    cluster.agents["a"].kill(cluster.only("m").id)
    cluster.until(lambda: cluster.states("m")[-1:] == ["preparing"])
    cluster.advance(0.5)
    assert 0 < cluster.absence("m").eta < 10


def test_one_copy_is_placed_per_pass_and_no_card_twice():
    cluster = serving("a", models=(always(least=8),))
    cards = [card for one in cluster.of("m") for card in one.head.cards]
    assert len(set(cards)) == 8


def test_no_room_is_said_with_numbers():
    cluster = Cluster(always(least=2))
    cluster.node("a", cards=1)
    cluster.lead()
    cluster.until(lambda: "ready" in cluster.states("m"))
    cluster.advance(2)
    row = next(row for row in cluster.reconciler.view(cluster.now).models if row.name == "m")
    assert row.state == "scaling"
    verdicts = cluster.reconciler.explain("m", cluster.now).profiles[0]
    assert (verdicts[0].node, verdicts[0].verdict, verdicts[0].needs) == (
        "a",
        "cards",
        "1 x H100-80GB",
    )


def test_a_model_that_fits_nowhere_tells_routers_why():
    cluster = Cluster(always())
    cluster.node("a", cards=0)
    cluster.lead()
    cluster.until(lambda: cluster.endpoints is not None and cluster.absence("m").kind == "no_room")
    assert "has no cards" in cluster.absence("m").text


def test_one_that_cannot_be_placed_does_not_block_the_next():
    huge = always("huge", profiles=[{"engine": "sim", "gpu": "B200"}])
    cluster = Cluster(huge, always("small"))
    cluster.node("a", cards=1)
    cluster.lead()
    cluster.until(lambda: cluster.states("small") == ["ready"])
    assert cluster.states("huge") == []


def test_scale_down_drains_until_routers_let_go():
    cluster = serving("a", models=(always(least=2),), routers=2)
    older, newer = cluster.of("m")
    cluster.routers["w1"].held[newer.id] = 1
    cluster.routers["w0"].held[older.id] = 2
    cluster.change_catalog(always(least=1))
    cluster.until(lambda: cluster.records[newer.id].state == "draining")
    cluster.advance(10)
    assert cluster.records[newer.id].state == "draining"
    assert newer.id in cluster.serving()
    assert sorted(cluster.endpoint_states("m")) == ["draining", "ready"]
    cluster.routers["w1"].held.clear()
    cluster.until(lambda: newer.id not in cluster.records)
    assert cluster.states("m") == ["ready"]


def test_a_router_that_has_not_applied_the_withdrawal_holds_the_drain():
    cluster = serving("a", routers=2)
    cluster.routers["w1"].applies = False
    record = cluster.only("m")
    cluster.handle(ModelStopped("m", True))
    cluster.advance(20)
    assert cluster.only("m").state == "draining"
    cluster.routers["w1"].applies = True
    cluster.until(lambda: record.id not in cluster.records, 10)


def test_an_engine_that_still_runs_something_holds_the_drain():
    cluster = serving("a")
    record = cluster.only("m")
    cluster.agents["a"].shards[record.id, 0].running = 1
    cluster.advance(3)
    cluster.handle(ModelStopped("m", True))
    cluster.advance(20)
    assert cluster.only("m").state == "draining"
    cluster.agents["a"].shards[record.id, 0].running = 0
    cluster.until(lambda: record.id not in cluster.records, 10)


def test_a_drain_ends_at_its_limit():
    cluster = serving("a")
    record = cluster.only("m")
    cluster.routers["w0"].held[record.id] = 1
    cluster.handle(ModelStopped("m", True))
    cluster.advance(58)
    assert cluster.only("m").state == "draining"
    cluster.until(lambda: record.id not in cluster.records, 10)
    assert cluster.absence("m").kind == "off"


def test_while_the_routers_are_unknown_only_the_limit_ends_a_drain():
    cluster = serving("a")
    cluster.routers_known = False
    cluster.handle(ModelStopped("m", True))
    cluster.advance(50)
    assert cluster.only("m").state == "draining"
    cluster.until(lambda: not cluster.records, 15)


def test_a_stopped_model_starts_again_when_asked_and_the_stop_outlives_the_leader():
    cluster = serving("a")
    cluster.handle(ModelStopped("m", True))
    cluster.until(lambda: not cluster.records)
    cluster.lead()
    cluster.advance(10)
    assert not cluster.records
    cluster.handle(ModelStopped("m", False))
    cluster.until(lambda: cluster.states("m") == ["ready"])


def test_stop_then_start_before_the_stop_ends_makes_a_new_copy():
    """FO32: the last command wins and no start is lost."""
    cluster = serving("a")
    old = cluster.only("m")
    cluster.handle(ModelStopped("m", True))
    cluster.advance(1)
    cluster.handle(ModelStopped("m", False))
    cluster.until(lambda: cluster.states("m") == ["ready"] and cluster.only("m").id != old.id)


def test_a_dead_engine_is_out_at_once_and_rebuilt():
    cluster = serving("a")
    old = cluster.only("m")
    cluster.agents["a"].kill(old.id)
    cluster.advance(0.5)
    assert cluster.endpoint_states("m") == []
    cluster.until(lambda: cluster.states("m") == ["ready"])
    new = cluster.only("m")
    assert new.generation > old.generation
    assert cluster.models["m"].failures == 1
    assert "exit code 137" in cluster.first_failure("m")


def test_an_engine_that_ends_with_code_0_has_failed_too():
    """FO10."""
    cluster = serving("a")
    cluster.agents["a"].kill(cluster.only("m").id, reason="exit code 0")
    cluster.until(lambda: cluster.models.get("m") is not None and cluster.models["m"].failures == 1)


@pytest.mark.parametrize("state", ["hung", "stuck"])
def test_an_engine_that_hangs_is_replaced(state):
    cluster = serving("a")
    old = cluster.only("m")
    cluster.agents["a"].shards[old.id, 0].become(state, cluster.now, "no token for 5 min")
    cluster.until(lambda: "ready" in [one.state for one in cluster.of("m") if one.id != old.id])
    assert cluster.models["m"].failures == 1


def test_an_engine_that_cannot_be_stopped_keeps_its_booking_and_is_said():
    """FO07, FO11."""
    cluster = serving("a")
    old = cluster.only("m")
    cluster.agents["a"].shards[old.id, 0].become("stuck", cluster.now, "in D state")
    cluster.until(lambda: any(one.id != old.id for one in cluster.of("m", "ready")))
    cluster.advance(2)
    record = cluster.records[old.id]
    assert (record.state, record.stuck) == ("stopping", True)
    assert cluster.of("m", "ready")[0].head.cards != record.head.cards
    assert any(event.what == "stuck" for event in cluster.events)


def test_a_card_that_is_lost_fails_its_replica_and_rests_when_it_returns():
    """FO07."""
    cluster = serving("a", cards=2)
    old = cluster.only("m")
    agent = cluster.agents["a"]
    whole = agent.inventory
    agent.inventory = msgspec.structs.replace(whole, cards=whole.cards[1:])
    cluster.until(lambda: any(one.id != old.id for one in cluster.of("m", "ready")))
    assert "card a-gpu0 lost" in cluster.first_failure("m")
    agent.inventory = whole
    cluster.advance(5)
    cluster.change_catalog(always(least=2))
    cluster.advance(250)
    assert len(cluster.of("m", "ready")) == 1
    cluster.until(lambda: len(cluster.of("m", "ready")) == 2, 90)


def test_a_failing_model_backs_off_and_at_last_needs_a_change():
    """FO14: one start at a time, 10 s doubling to 300 s, then one try per 30 min."""
    cluster = Cluster(always())
    agent = cluster.node("a", cards=1)
    agent.breaks = lambda shard: "CUDA error"
    cluster.lead()
    cluster.advance(120)
    assert 3 <= len(agent.launches) <= 6
    gap = cluster.absence("m")
    assert gap.kind == "failed"
    assert "CUDA error" in gap.text
    assert gap.next_try > 0
    cluster.advance(1200)
    assert cluster.absence("m").kind == "needs_change"
    tried = len(agent.launches)
    assert tried == 8
    cluster.advance(1700)
    assert len(agent.launches) <= tried + 1


def test_a_changed_profile_ends_the_back_off():
    cluster = Cluster(always())
    agent = cluster.node("a", cards=1)
    agent.breaks = lambda shard: "" if shard.want.slots == 2 else "out of memory"
    cluster.lead()
    cluster.advance(1300)
    assert cluster.absence("m").kind == "needs_change"
    cluster.change_catalog(always(profiles=[{"engine": "sim", "gpu": "H100-80GB", "slots": 2}]))
    cluster.until(lambda: cluster.states("m") == ["ready"], 20)
    assert cluster.models["m"].failures == 0


def test_a_profile_that_fails_three_times_gives_way_to_the_next():
    two = [
        {"engine": "sim", "gpu": "H100-80GB", "slots": 1},
        {"engine": "sim", "gpu": "H100-80GB", "slots": 2},
    ]
    cluster = Cluster(always(profiles=two))
    agent = cluster.node("a", cards=1)
    agent.breaks = lambda shard: "out of memory" if shard.want.slots == 1 else ""
    cluster.lead()
    cluster.until(lambda: cluster.states("m") == ["ready"], 120)
    assert cluster.only("m").slots == 2
    assert cluster.models["m"].failures == 3


def test_ten_minutes_of_serving_forgive():
    cluster = serving("a")
    cluster.agents["a"].kill(cluster.only("m").id)
    cluster.until(lambda: cluster.states("m") == ["ready"])
    cluster.advance(590)
    assert cluster.models["m"].failures == 1
    cluster.advance(30)
    assert cluster.models["m"].failures == 0


def test_another_node_is_tried_after_two_failures_on_one():
    cluster = Cluster(always())
    for name in "ab":
        cluster.node(name, cards=1)
    cluster.agents["a"].breaks = lambda shard: "bad driver"
    cluster.lead()
    cluster.until(lambda: cluster.states("m") == ["ready"], 60)
    assert cluster.only("m").nodes == ["b"]
    assert len(cluster.agents["a"].launches) == 2


def test_what_is_not_its_fault_is_not_charged_and_the_node_rests():
    cluster = Cluster(always())
    for name in "ab":
        cluster.node(name, cards=1)
    cluster.lead()
    cluster.until(lambda: cluster.states("m") == ["preparing"])
    old = cluster.only("m")
    cluster.advance(0.5)
    shard = cluster.agents["a"].shards[old.id, 0]
    shard.charged = False
    shard.become("refused", cluster.now, "card not free")
    cluster.until(lambda: cluster.states("m") == ["ready"])
    assert cluster.only("m").nodes == ["b"]
    assert cluster.models["m"].failures == 0


def test_a_refusal_fails_what_starts_and_not_what_serves():
    cluster = serving("a")
    record = cluster.only("m")
    cluster.report(Refused("a", "a-1", record.id, record.generation, 0, "goal", "goal went back"))
    cluster.advance(3)
    assert cluster.states("m") == ["ready"]
    cluster.agents["a"].kill(record.id)
    cluster.until(lambda: cluster.states("m") == ["preparing"])
    second = cluster.only("m")
    cluster.report(Refused("a", "a-1", second.id, second.generation, 0, "engine", "no such engine"))
    cluster.until(lambda: cluster.models["m"].failures == 2)


def test_an_edited_profile_leaves_a_serving_copy_alone_and_marks_it():
    """R48, R49."""
    cluster = serving("a")
    old = cluster.only("m")
    cluster.change_catalog(always(profiles=[{"engine": "sim", "gpu": "H100-80GB", "slots": 2}]))
    cluster.advance(30)
    assert cluster.only("m").id == old.id
    view = cluster.reconciler.view(cluster.now)
    assert view.replicas[0].stale is True
    assert any(problem.what == "stale profile" for problem in view.problems)


def test_an_edited_profile_replaces_a_copy_that_still_prepares():
    cluster = Cluster(always())
    cluster.node("a", cards=2).fetch_time = 30
    cluster.lead()
    cluster.until(lambda: cluster.states("m") == ["preparing"])
    old = cluster.only("m")
    cluster.change_catalog(always(profiles=[{"engine": "sim", "gpu": "H100-80GB", "slots": 2}]))
    cluster.until(lambda: [one.slots for one in cluster.of("m", "preparing")] == [2])
    cluster.until(lambda: old.id not in cluster.records)


def test_a_removed_model_is_torn_down_and_not_published():
    """R58, R59."""
    cluster = serving("a")
    record = cluster.only("m")
    cluster.routers["w0"].held[record.id] = 1
    cluster.change_catalog()
    cluster.advance(1)
    assert cluster.endpoint_states("m") == []
    assert cluster.states("m") == ["draining"]
    cluster.routers["w0"].held.clear()
    cluster.until(lambda: not cluster.records)
    cluster.advance(1)
    assert not cluster.agents["a"].full().shards


def test_a_declared_model_takes_the_name_of_a_stored_one():
    """R8: the stored one's copies are removed, not stale."""
    row = {"m": msgspec.json.encode({"definition": always(), "created": 1}).decode()}
    cluster = Cluster()
    cluster.node("a", cards=2)
    cluster.lead()
    cluster.change_catalog(stored=row)
    cluster.until(lambda: cluster.states("m") == ["ready"])
    old = cluster.only("m")
    assert old.origin == "stored"
    cluster.change_catalog(always(), stored=row)
    cluster.until(lambda: cluster.states("m") == ["ready"] and cluster.only("m").id != old.id)
    assert cluster.only("m").origin == "declared"


def test_a_skipped_row_keeps_its_copies_and_starts_nothing():
    """R12."""
    row = msgspec.json.encode({"definition": always(least=2), "created": 1}).decode()
    cluster = Cluster()
    agent = cluster.node("a", cards=2)
    cluster.lead()
    cluster.change_catalog(stored={"m": row})
    cluster.until(lambda: cluster.states("m") == ["ready", "ready"])
    cluster.change_catalog(stored={"m": "{"})
    cluster.advance(20)
    assert cluster.states("m") == ["ready", "ready"]
    agent.kill(cluster.of("m")[0].id)
    cluster.advance(60)
    assert cluster.states("m") == ["ready"]
    shown = next(row for row in cluster.reconciler.view(cluster.now).models if row.name == "m")
    assert shown.state == "refused"


def test_an_operator_restarts_a_replica():
    cluster = serving("a")
    old = cluster.only("m")
    cluster.handle(RestartAsked(old.id))
    cluster.until(lambda: cluster.states("m") == ["ready"] and cluster.only("m").id != old.id)
    with pytest.raises(UnknownSubject, match="no replica"):
        cluster.handle(RestartAsked(old.id))


def test_a_drained_node_is_left_after_the_replacement_is_ready():
    cluster = serving("a", "b")
    old = cluster.only("m")
    (node,) = old.nodes
    cluster.handle(NodeDrained(node, True))
    seen = set()

    def moved() -> bool:
        seen.add(tuple(sorted(one.state for one in cluster.of("m"))))
        assert cluster.serving(), "nothing served during the drain"
        return old.id not in cluster.records

    cluster.until(moved)
    assert ("ready", "ready") in seen or ("draining", "ready") in seen
    assert cluster.only("m").nodes != [node]
    cluster.advance(2)
    row = next(row for row in cluster.reconciler.view(cluster.now).nodes if row.name == node)
    assert (row.drained, row.drain_done) == (True, True)


def test_a_drained_node_is_left_without_a_replacement_where_there_is_no_room():
    cluster = serving("a")
    cluster.handle(NodeDrained("a", True))
    cluster.until(lambda: not cluster.records, 30)
    cluster.advance(1)
    assert "drain flag" in cluster.absence("m").text


def test_an_external_model_is_published_with_its_key_and_nothing_is_placed():
    cluster = Cluster(
        {
            "name": "api",
            "external": {"url": "https://x.example/v1", "model": "p", "api_key_file": "/k"},
        }
    )
    cluster.node("a", cards=1)
    cluster.lead()
    cluster.until(lambda: cluster.endpoints is not None)
    assert cluster.absence("api").kind == "failed"
    cluster.handle(ExternalKeysRead({"api": "sk-1"}))
    cluster.advance(1)
    assert cluster.published()[0].external.key == "sk-1"
    assert cluster.absence("api") is None
    assert not cluster.records
