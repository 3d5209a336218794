from __future__ import annotations

from collections import Counter

import pytest

from ext.prefix import mix
from router.choose import RequestFacts, choose, seconds_until_first
from router.loads import LoadReport
from tests.router.core_values import place


def places(count, **members):
    return [place(f"e{n}", seed=n + 1, **members) for n in range(count)]


def test_the_least_work_wins():
    busy, idle = places(2)
    busy.book(5_000, 0.0, 0.0)
    decision = choose(RequestFacts(1_000, 7), [busy, idle], 0.0)
    assert decision.place is idle
    assert decision.uncached == 1_000
    assert decision.seconds == pytest.approx(0.5)


def test_a_faster_engine_wins_though_it_has_more_work():
    slow, fast = place("slow", prefill_rate=100.0), place("fast", prefill_rate=10_000.0)
    fast.book(5_000, 0.0, 0.0)
    assert choose(RequestFacts(1_000, 7), [slow, fast], 0.0).place is fast


def test_crowding_counts_when_the_work_is_equal():
    crowded, empty = places(2, slots=8)
    for _ in range(6):
        crowded.book(0, 0.0, 0.0)
    assert choose(RequestFacts(10, 7), [crowded, empty], 0.0).place is empty


def test_a_burst_of_equal_prompts_spreads_before_any_answer():
    candidates = places(4, slots=100)
    for number in range(40):
        decision = choose(RequestFacts(32_000, mix(number, 9)), candidates, 0.0)
        decision.place.book(decision.uncached, decision.seconds, 0.0)
    assert [each.in_flight for each in candidates] == [10, 10, 10, 10]


def test_short_unrelated_prompts_spread_over_idle_engines():
    candidates = places(5)
    chosen = Counter(
        choose(RequestFacts(10, mix(number, 3)), candidates, 0.0).place.endpoint.id
        for number in range(2_000)
    )
    assert len(chosen) == 5
    assert max(chosen.values()) / 400 <= 1.3


def test_one_prompt_stays_where_it_was():
    candidates = places(5)
    chosen = {choose(RequestFacts(10, 42), candidates, 0.0).place for _ in range(50)}
    assert len(chosen) == 1


def test_waiting_of_others_counts_and_fades():
    where = place()
    alone = seconds_until_first(1_000, where, 100.0)
    where.report = LoadReport(100.0, None, 4, None)
    fresh = seconds_until_first(1_000, where, 100.0)
    older = seconds_until_first(1_000, where, 102.5)
    gone = seconds_until_first(1_000, where, 105.0)
    assert fresh == pytest.approx(alone + 2.0)
    assert alone < older < fresh
    assert gone == alone


def test_waiting_that_our_bookings_explain_is_not_counted_twice():
    where = place()
    for _ in range(4):
        where.book(100, 0.0, 0.0)
    before = seconds_until_first(100, where, 0.0)
    where.report = LoadReport(0.0, None, 4, None)
    assert seconds_until_first(100, where, 0.0) == before


def test_an_unmeasured_engine_is_neither_full_nor_idle():
    where = place()
    before = seconds_until_first(100, where, 0.0)
    where.report = LoadReport(0.0, None, None, None)
    assert seconds_until_first(100, where, 0.0) == before


def test_full_caches_cost_and_stay_finite():
    where = place()
    where.report = LoadReport(0.0, None, None, 1.0)
    assert 4.0 < seconds_until_first(0, where, 0.0) < 6.0
