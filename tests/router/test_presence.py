from __future__ import annotations

from msgspec import UNSET

from orchestrator.wire.codec import encode
from orchestrator.wire.feed import Load, ReplicaLoad
from orchestrator.wire.presence import Down, Held, Totals, Version, read_presence
from orchestrator.wire.snapshots import Absence
from router.loads import reports_of
from router.presence import WorkerFacts, build_presence, empty_presence
from tests.router.core_values import Waiter, gate, place

WORKER = WorkerFacts("w-1", "host", "1.0")


def build(places, gates, now, **members):
    return build_presence(WORKER, {}, places, gates, {}, now, draining=False, **members)


def test_the_first_one_has_no_versions():
    assert read_presence(encode(empty_presence(WORKER))).versions == {}


def test_what_is_held_used_down_and_wanted():
    busy, quiet, retired = place("busy"), place("quiet"), place("old")
    retired.retired = True
    busy.book(100, 0.1, 0.0)
    retired.book(7, 0.1, 0.0)
    quiet.book(1, 0.1, 50.0).release()
    quiet.circuit.failed(90.4, "connect_refused", at_once=True)
    retired.circuit.failed(90.0, "reset", at_once=True)
    held = gate(absence=Absence("m", "idle"))
    held.begun = 3
    held.admit(Waiter(tokens=40, arrived=97.0).want, 97.0)
    untouched = gate()
    built = build([busy, quiet, retired], {"m": held, "n": untouched}, 100.0)
    assert built.held == [Held("busy", 1, 1, 100), Held("old", 1, 1, 7)]
    assert built.used == ["busy", "old"]
    assert built.down == [Down("quiet", 1, 9.0, "connect_refused")]
    assert set(built.demand) == {"m"}
    demand = built.demand["m"]
    assert (demand.in_flight, demand.waiting, demand.waiting_tokens) == (2, 1, 40)
    assert (demand.oldest_wait, demand.wanted, demand.begun) == (3.0, True, 3)


def test_nobody_waits():
    at = gate(place())
    at.begun = 1
    demand = build([], {"m": at}, 0.0).demand["m"]
    assert demand.oldest_wait is UNSET
    assert not demand.wanted


def test_versions_and_totals_pass():
    versions, totals = {"catalog": Version(1, 2)}, {"m": Totals(requests=3)}
    built = build_presence(WORKER, versions, [], {}, totals, 0.0, draining=True)
    assert (built.versions, built.totals, built.draining) == (versions, totals, True)


def test_reports_count_from_the_scrape_and_unset_stays_unknown():
    load = Load("n", "s", [ReplicaLoad("r", 3, 1.5, waiting=0), ReplicaLoad("q", 4, 0.0)])
    (first, report), (second, bare) = reports_of(load, 10.0)
    assert (first, second) == (("r", 3), ("q", 4))
    assert (report.taken, report.running, report.waiting, report.cache_use) == (8.5, None, 0, None)
    assert bare.running is None
    assert bare.weight(10.0) == 1.0
    assert bare.weight(12.5) == 0.5
    assert bare.weight(60.0) == 0.0
