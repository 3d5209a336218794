"""Models that a request loads and idleness stops."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from orchestrator.reconcile.events import ModelStopped
from orchestrator.wire.presence import Demand
from orchestrator.wire.reports import ReplicaUse
from tests.fakes.cluster import Cluster
from tests.orchestrator.reconcile.models import always, on_demand


def idle_cluster(**model) -> Cluster:
    cluster = Cluster(on_demand(**model))
    cluster.node("a", cards=2)
    cluster.lead()
    cluster.advance(5)
    return cluster


def loaded(**model) -> Cluster:
    cluster = idle_cluster(**model)
    cluster.want("m")
    cluster.until(lambda: cluster.states("m") == ["ready"])
    return cluster


def test_nothing_runs_until_somebody_asks():
    """R90."""
    cluster = idle_cluster()
    cluster.advance(60)
    assert cluster.states("m") == []
    assert cluster.absence("m").kind == "idle"


def test_a_request_loads_one_copy():
    """FO31: two in the same moment make one load."""
    cluster = idle_cluster()
    cluster.want("m")
    cluster.want("m")
    cluster.routers["w0"].demand["m"] = Demand(waiting=1, wanted=True)
    cluster.until(lambda: cluster.states("m") == ["ready"])
    cluster.advance(20)
    assert cluster.states("m") == ["ready"]
    assert cluster.launches() == 1


def test_an_idle_model_stops_and_gives_its_cards_back():
    """R94."""
    cluster = loaded()
    cluster.advance(290)
    assert cluster.states("m") == ["ready"]
    cluster.until(lambda: cluster.states("m") == [], 60)
    assert cluster.absence("m").kind == "idle"


def test_use_keeps_it_alive():
    """R95: also use between two presences, and use that only the engine sees."""
    cluster = loaded()
    for begun in range(1, 5):
        cluster.advance(200)
        cluster.routers["w0"].demand["m"] = Demand(begun=begun)
    assert cluster.states("m") == ["ready"]
    record = cluster.only("m")
    for _ in range(3):
        cluster.advance(200)
        cluster.agents["a"].shards[record.id, 0].running = 1
        cluster.advance(3)
        cluster.agents["a"].shards[record.id, 0].running = 0
    assert cluster.states("m") == ["ready"]
    cluster.until(lambda: cluster.states("m") == [], 400)


def test_while_anything_is_unknown_nothing_is_idle():
    """FO20."""
    cluster = loaded()
    cluster.routers_known = False
    cluster.advance(700)
    assert cluster.states("m") == ["ready"]
    cluster.routers_known = True
    agent: Any = cluster.agents["a"]
    known = agent.beat

    def without_numbers():
        beat = known()
        blind = [ReplicaUse(use.generation, use.busy, UNSET, UNSET) for use in beat.use]
        return msgspec.structs.replace(beat, use=blind)

    agent.beat = without_numbers
    cluster.advance(700)
    assert cluster.states("m") == ["ready"]
    agent.beat = known
    cluster.until(lambda: cluster.states("m") == [], 400)


def test_a_load_longer_than_the_idle_timeout_is_not_idle():
    """FO17."""
    cluster = idle_cluster(idle_timeout="10s")
    cluster.agents["a"].load_time = 100
    cluster.want("m")
    cluster.until(lambda: cluster.states("m") == ["ready"], 130)
    cluster.advance(50)
    assert cluster.states("m") == ["ready"], "the dwell is a minute"
    cluster.until(lambda: cluster.states("m") == [], 60)


@pytest.mark.parametrize("held", [0, 1])
def test_a_request_takes_a_draining_copy_back(held):
    """FO17: late by a moment."""
    cluster = loaded()
    record = cluster.only("m")
    cluster.routers["w0"].applies = False
    cluster.until(lambda: cluster.states("m") == ["draining"], 330)
    cluster.routers["w0"].held[record.id] = held
    cluster.want("m")
    cluster.advance(1)
    assert cluster.only("m").state == "ready"
    assert cluster.only("m").id == record.id
    cluster.routers["w0"].applies = True
    cluster.advance(1)
    assert cluster.routers["w0"].endpoints[0].state == "ready"
    assert cluster.launches() == 1


def test_a_request_after_the_stop_was_written_loads_a_new_copy():
    cluster = loaded()
    old = cluster.only("m")
    cluster.agents["a"].stop_time = 20
    cluster.until(lambda: cluster.states("m") == ["stopping"], 400)
    cluster.want("m")
    cluster.until(lambda: cluster.of("m", "ready"))
    assert cluster.of("m", "ready")[0].id != old.id


def test_the_brake_stops_nothing_for_idleness():
    cluster = loaded()
    for name in "bcd":
        cluster.node(name, cards=1)
    cluster.advance(3)
    for name in "bc":
        cluster.agents[name].linked = False
    cluster.advance(40)
    assert cluster.reconciler.view(cluster.now).mass_silence
    cluster.advance(600)
    assert cluster.states("m") == ["ready"]


def test_an_on_demand_copy_that_dies_in_use_is_rebuilt_and_otherwise_not():
    cluster = loaded()
    cluster.advance(20)
    cluster.agents["a"].kill(cluster.only("m").id)
    cluster.advance(20)
    assert cluster.states("m") == []
    cluster.routers["w0"].demand["m"] = Demand(in_flight=1)
    cluster.until(lambda: cluster.states("m") == ["ready"])


def test_a_model_without_scaling_is_off_and_no_request_starts_it():
    """R91, R93."""
    cluster = Cluster({"name": "m", "profiles": [{"engine": "sim"}]})
    cluster.node("a")
    cluster.lead()
    cluster.advance(4)
    cluster.want("m")
    cluster.advance(20)
    assert cluster.states("m") == []
    assert cluster.absence("m").kind == "off"


def test_an_alias_loads_its_model():
    cluster = idle_cluster(aliases=["nick"])
    cluster.want("nick")
    cluster.until(lambda: cluster.states("m") == ["ready"])


def test_a_stopped_on_demand_model_is_not_loaded():
    cluster = idle_cluster()
    cluster.handle(ModelStopped("m", True))
    cluster.want("m")
    cluster.advance(20)
    assert cluster.states("m") == []


def test_what_always_runs_is_placed_before_what_is_asked_for():
    cluster = Cluster(on_demand("a-asked", **{"class": "critical"}), always("z-always"))
    cluster.lead()
    cluster.advance(5)
    cluster.want("a-asked")
    cluster.node("n", cards=1)
    cluster.until(lambda: cluster.states("z-always") == ["ready"])
    assert cluster.states("a-asked") == []
    assert cluster.absence("a-asked").kind == "no_room"


def test_a_cpu_model_loads_beside_it():
    cluster = Cluster({"name": "m", "scaling": {"max": 1}, "profiles": [{"engine": "sim"}]})
    cluster.node("a")
    cluster.lead()
    cluster.advance(4)
    cluster.want("m")
    cluster.until(lambda: cluster.states("m") == ["ready"])
    assert cluster.published()[0].hardware == "cpu"
