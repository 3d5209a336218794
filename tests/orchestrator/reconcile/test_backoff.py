"""Back-off, avoid list and passed-over profiles as plain functions."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from orchestrator.reconcile import backoff
from orchestrator.reconcile.limits import DEFAULTS
from orchestrator.reconcile.records import FailureNote, ModelState


def fail(state: ModelState, at_ms: int = 0, jitter: float = 0.0, node: str = "a") -> ModelState:
    note = FailureNote(at_ms, "r", node, f"at {at_ms}")
    return backoff.after_failure(state, note, "1:p", ["1:p", "1:q"], jitter, DEFAULTS)


def test_the_waits_double_up_to_five_minutes_then_half_an_hour():
    state, waits = ModelState(), []
    for _ in range(9):
        state = fail(state)
        waits.append(state.next_try_ms / 1000)
    assert waits == [0, 10, 20, 40, 80, 160, 300, 1800, 1800]
    assert backoff.needs_change(state, DEFAULTS)


@pytest.mark.parametrize(("jitter", "wait"), [(-1.0, 8.0), (0.0, 10.0), (1.0, 12.0)])
def test_jitter_is_a_fifth(jitter, wait):
    state = fail(fail(ModelState()), jitter=jitter)
    assert state.next_try_ms / 1000 == pytest.approx(wait)


def test_first_and_last_failure_are_kept():
    state = fail(fail(fail(ModelState(), 1), 2), 3)
    assert state.first_failure is not UNSET
    assert state.last_failure is not UNSET
    assert (state.first_failure.text, state.last_failure.text) == ("at 1", "at 3")


def test_other_profiles_mean_edited():
    state = fail(ModelState())
    assert not backoff.edited(state, ["1:p", "1:q"])
    assert backoff.edited(state, ["1:p"])
    assert not backoff.edited(ModelState(), ["1:p"])


def test_forgiven_keeps_what_people_ordered():
    state = backoff.forgiven(fail(ModelState(stopped=True, load_seconds={"cpu": 2.0})))
    assert state == ModelState(stopped=True, load_seconds={"cpu": 2.0})


def test_two_failures_on_a_node_within_ten_minutes():
    state = fail(fail(ModelState(), 0, node="a"), 599_000, node="a")
    assert list(backoff.failed_often(state, 599_500, DEFAULTS)) == ["a"]
    assert backoff.failed_often(state, 601_000, DEFAULTS) == {}
    assert backoff.failed_often(fail(ModelState()), 1, DEFAULTS) == {}


def test_an_excuse_lasts_a_minute():
    state = backoff.after_excuse(ModelState(), "a", 1000, DEFAULTS)
    assert list(backoff.avoided_now(state, 60_999)) == ["a"]
    assert backoff.avoided_now(state, 61_000) == {}


def test_a_profile_is_passed_over_for_ten_minutes():
    state = fail(fail(fail(ModelState())))
    assert backoff.passed_over(state, "1:p", 599_000, DEFAULTS)
    assert not backoff.passed_over(state, "1:q", 599_000, DEFAULTS)
    assert not backoff.passed_over(state, "1:p", 600_000, DEFAULTS)
