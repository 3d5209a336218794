"""Stalls are counted from the last progress."""

from __future__ import annotations

from agent.load_limit import StallClock, TokenWatch


def test_a_slow_load_with_a_line_each_20_s_is_never_stalled():
    clock = StallClock(0.0)
    for line in range(120):
        now = line * 20.0
        clock.see(now, log=line)
        assert not clock.stalled(now, 300.0)


def test_silence_is_stalled_at_the_limit():
    clock = StallClock(0.0)
    clock.see(0.0, log=10, memory=5)
    clock.see(299.9, log=10, memory=5)
    assert not clock.stalled(299.9, 300.0)
    assert clock.stalled(300.0, 300.0)


def test_one_figure_that_moves_is_enough():
    clock = StallClock(0.0)
    clock.see(0.0, log=10, memory=5)
    assert clock.see(200.0, log=10, memory=6)
    assert not clock.stalled(499.0, 300.0)


def test_the_first_sight_and_the_unknown_are_no_progress():
    clock = StallClock(0.0)
    assert not clock.see(10.0, log=5, memory=None)
    assert not clock.see(20.0, log=None, memory=7)
    assert not clock.see(30.0, log=5, memory=7)


def test_hung_needs_running_requests_and_still_counters():
    watch = TokenWatch(0.0, 120.0)
    assert not watch.see(0.0, 2, 100, 50)
    assert not watch.see(119.0, 2, 100, 50)
    assert watch.see(121.0, 2, 100, 50)
    assert not watch.see(122.0, 2, 100, 51)


def test_an_idle_engine_is_never_hung():
    watch = TokenWatch(0.0, 120.0)
    for now in (0.0, 100.0, 1000.0):
        assert not watch.see(now, 0, 100, 50)


def test_prompt_tokens_count_as_progress():
    watch = TokenWatch(0.0, 120.0)
    for step in range(10):
        assert not watch.see(step * 100.0, 1, step, 50)


def test_unknown_numbers_never_make_it_hung():
    watch = TokenWatch(0.0, 120.0)
    for now in (0.0, 200.0, 400.0):
        assert not watch.see(now, None, None, None)
        assert not watch.see(now, 3, None, None)
