"""Each filter with its numbers; unknown passes, except for labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.placement.explain import explain
from orchestrator.placement.filters import reasons_against
from orchestrator.placement.inventory import Booking, CardView, Inventory, Need, NodeView
from orchestrator.placement.place import Placement, Rejections, place
from orchestrator.placement.reasons import GB, Reason, gigabytes
from orchestrator.wire.profile import Profile


def card(name: str, **more) -> CardView:
    return CardView(name, more.pop("type", "A10-24GB"), **{"total": 24 * GB, "foreign": 0, **more})


def node(name: str = "a", **more) -> NodeView:
    return NodeView(
        name,
        **{
            "engines": frozenset({"vllm", "llama.cpp"}),
            "cores": 16,
            "memory": 64 * GB,
            "disk": 500 * GB,
            "labels": {},
            **more,
        },
    )


def need(engine: str = "llama.cpp", avoid=None, **profile) -> Need:
    return Need("m", Profile(engine=engine, **profile), avoid or {})


def kinds(one: NodeView, wanted: Need) -> list[str]:
    return [reason.kind for reason in reasons_against(one, wanted)]


def test_a_profile_without_requirements_fits_anywhere():
    """R35, R191."""
    assert reasons_against(node(), need()) == []
    assert reasons_against(NodeView("b", engines=frozenset({"llama.cpp"})), need()) == []


@pytest.mark.parametrize(
    ("change", "kind", "has"),
    [
        ({"state": "unreachable"}, "state", "unreachable"),
        ({"state": "lost"}, "state", "lost"),
        ({"obeying": False}, "not_obeying", "an agent that has not applied its orders"),
        ({"drained": True}, "drained", "the drain flag"),
        ({"engines": frozenset({"sim"})}, "engine", "sim"),
        ({"engines": frozenset()}, "engine", "none"),
    ],
)
def test_what_a_node_is(change, kind, has):
    (reason,) = reasons_against(node(**change), need())
    assert (reason.kind, reason.has) == (kind, has)


def test_memory_is_total_less_what_is_reserved_and_says_both_numbers():
    """R34."""
    (reason,) = reasons_against(node(memory=8 * GB), need(min_memory_gb=24))
    assert reason == Reason("memory", "24 GB", "8 GB")
    assert reason.text() == "memory: has 8 GB, needs 24 GB"
    (reason,) = reasons_against(node(memory=64 * GB, memory_booked=50 * GB), need(min_memory_gb=24))
    assert (reason.has, reason.detail) == ("14 GB", "50 GB of 64 GB reserved")
    assert kinds(node(memory=24 * GB), need(min_memory_gb=24)) == []


@pytest.mark.parametrize("key", ["memory", "cores", "disk"])
def test_unknown_passes(key):
    """R36."""
    wanted = need(min_memory_gb=1000, cpu_cores=1000, disk_gb=1000)
    assert len(kinds(node(), wanted)) == 3
    unknown: dict[str, Any] = {key: None}
    assert key not in kinds(node(**unknown), wanted)


def test_cores_are_reserved():
    """R33."""
    (reason,) = reasons_against(node(cores=8, cores_booked=6), need(cpu_cores=4))
    assert (reason.needs, reason.has, reason.detail) == ("4", "2", "6 of 8 reserved")


def test_disk_is_not_asked_of_a_node_that_holds_the_weights():
    """R39."""
    wanted = need(disk_gb=600, source="hf:o/r")
    assert kinds(node(), wanted) == ["disk"]
    assert kinds(node(holds=frozenset({"hf:o/r"})), wanted) == []
    assert kinds(node(disk=700 * GB, disk_booked=200 * GB), wanted) == ["disk"]


@pytest.mark.parametrize(
    ("labels", "has"),
    [
        (None, "labels unknown"),
        ({}, "no label ram"),
        ({"ram": "8g"}, "ram: 8g"),
    ],
)
def test_the_selector_names_the_label(labels, has):
    """R37: and unknown does not pass."""
    (reason,) = reasons_against(node(labels=labels), need(node_selector={"ram": "32g"}))
    assert (reason.kind, reason.needs, reason.has) == ("selector", "ram: 32g", has)


def test_a_selector_that_holds_passes_and_every_pair_is_asked():
    wanted = need(node_selector={"ram": "32g", "use": "code"})
    assert kinds(node(labels={"ram": "32g", "use": "code"}), wanted) == []
    assert kinds(node(labels={"ram": "32g"}), wanted) == ["selector"]


def test_cards_are_counted_by_class():
    wanted = need("vllm", gpu="A10-24GB", tp=2)
    assert kinds(node(cards=(card("0"), card("1"))), wanted) == []
    (reason,) = reasons_against(node(cards=(card("0"),)), wanted)
    assert (reason.needs, reason.has) == ("2 x A10-24GB", "1 free of 1")
    (reason,) = reasons_against(node(cards=(card("0", type="H100-80GB"),)), wanted)
    assert reason.has == "H100-80GB"
    (reason,) = reasons_against(node(), wanted)
    assert reason.has == "no cards"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"held_by": "r1"}, "GPU-x: held by replica r1"),
        ({"healthy": False}, "GPU-x: not healthy"),
        ({"resting": "resting after an error"}, "GPU-x: resting after an error"),
        (
            {"total": 80 * GB, "foreign": 62 * GB, "foreign_pids": (4711,)},
            "GPU-x: 18 GB free, needs 40 GB, 62 GB held by pid 4711 outside",
        ),
    ],
)
def test_why_a_card_is_not_free(change, words):
    """FO06."""
    wanted = need("vllm", gpu="A10-24GB", gpu_memory_gb=40)
    full = card("GPU-x", **{"total": 80 * GB, **change})
    (reason,) = reasons_against(node(cards=(full,)), wanted)
    assert reason.detail == words
    assert reason.has == "0 free of 1"


@pytest.mark.parametrize("change", [{"total": None}, {"foreign": None}])
def test_unknown_use_of_a_card_passes(change):
    wanted = need("vllm", gpu="A10-24GB", gpu_memory_gb=40)
    assert kinds(node(cards=(card("0", **change),)), wanted) == []


def test_a_card_without_stated_need_must_be_nine_tenths_free():
    wanted = need("vllm", gpu="A10-24GB")
    assert kinds(node(cards=(card("0", foreign=2 * GB),)), wanted) == []
    assert kinds(node(cards=(card("0", foreign=3 * GB),)), wanted) == ["cards"]


def test_only_sim_runs_on_simulated_cards_and_on_no_others():
    simulated = node(cards=(card("0"),), simulated=True, engines=frozenset({"sim", "vllm"}))
    assert kinds(simulated, need("sim", gpu="A10-24GB")) == []
    assert kinds(simulated, need("vllm", gpu="A10-24GB")) == ["simulated"]
    real = replace(simulated, simulated=False)
    assert kinds(real, need("sim", gpu="A10-24GB")) == ["simulated"]
    assert kinds(real, need("sim")) == []


def test_a_node_without_a_fabric_is_in_none():
    wanted = need("sim", gpu="A10-24GB", nodes=2, tp=2)
    lone = node(cards=(card("0"),), simulated=True, engines=frozenset({"sim"}))
    assert kinds(lone, wanted) == ["fabric"]
    assert kinds(replace(lone, fabric="ib-a"), wanted) == []


def test_an_avoided_node_says_why():
    (reason,) = reasons_against(node(), need(avoid={"a": "2 failures in 10 min"}))
    assert (reason.kind, reason.has) == ("avoided", "2 failures in 10 min")


def test_every_reason_is_given_and_every_node_has_a_row():
    """R43."""
    wanted = need(min_memory_gb=100, cpu_cores=100)
    inventory = Inventory([node("a"), node("b", memory=200 * GB, cores=200)])
    rows = explain(wanted, inventory)
    assert [(row.node, row.verdict) for row in rows] == [
        ("b", "fits"),
        ("a", "memory"),
        ("a", "cores"),
    ]


def test_the_summary_says_the_commonest_reason_with_numbers():
    rejected = place(
        need(min_memory_gb=100), Inventory([node("a"), node("b"), node("c", drained=True)])
    )
    assert isinstance(rejected, Rejections)
    assert rejected.summary() == (
        "no node fits: memory: has 64 GB, needs 100 GB (a and 1 more); "
        "node: has the drain flag, needs a node that is not drained (c)"
    )
    nothing = place(need(), Inventory([]))
    assert isinstance(nothing, Rejections)
    assert nothing.summary() == "no node fits: there is no node"


@pytest.mark.parametrize(
    ("count", "text"),
    [(24 * GB, "24 GB"), (21.34 * GB, "21.3 GB"), (140.6 * GB, "141 GB"), (0, "0 GB")],
)
def test_gigabytes(count, text):
    assert gigabytes(count) == text


def test_bookings_take_cards_cores_memory_and_disk():
    inventory = Inventory([node("a", cards=(card("0"), card("1")))]).less(
        [Booking("r", "a", ("0",), 4, 10 * GB, 20 * GB), Booking("r2", "gone", ("9",), 1, 1, 1)]
    )
    booked = inventory.nodes["a"]
    assert [one.held_by for one in booked.cards] == ["r", None]
    assert (booked.cores_booked, booked.memory_booked, booked.disk_booked) == (4, 10 * GB, 20 * GB)
    assert list(inventory.nodes) == ["a"]
    assert isinstance(place(need("vllm", gpu="A10-24GB"), inventory), Placement)
    assert isinstance(place(need("vllm", gpu="A10-24GB", tp=2), inventory), Rejections)
