"""The model of slots, prefill, decode steps and cache, without a socket."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.sim_engine.model import (
    EngineModel,
    EngineShape,
    IllegalMove,
    Sequence,
    State,
)
from agent.sim_engine.prefix_cache import chain_blocks, count_tokens


def shape(**changes) -> EngineShape:
    values = {
        "slots": 2,
        "prefill_rate": 100.0,
        "decode_rate": 10.0,
        "cache_tokens": 1600,
        "block_tokens": 16,
    }
    return EngineShape(**(values | changes))


def sequence(prompt: bytes = b"x" * 400, target: int = 5) -> Sequence:
    return Sequence(count_tokens(prompt), chain_blocks(prompt, 16), target, "length")


def test_first_token_comes_with_the_end_of_prefill_and_the_rest_on_steps():
    model: EngineModel[Any] = EngineModel(shape())
    one = sequence(target=3)
    model.submit(one, 0.0)
    assert model.next_event() == pytest.approx(1.0)  # 100 tokens at 100/s
    assert model.advance(0.99) == []
    assert model.advance(1.0) == [one]
    assert one.produced == 1
    model.advance(1.15)
    assert one.produced == 2
    model.advance(1.25)
    assert (one.produced, one.state) == (3, State.FINISHED)
    assert model.next_event() is None
    assert model.totals.finished == {"length": 1}


def test_prefill_is_serial():
    model: EngineModel[Any] = EngineModel(shape())
    first, second = sequence(b"a" * 400), sequence(b"b" * 400)
    model.submit(first, 0.0)
    model.submit(second, 0.0)
    model.advance(1.5)
    assert first.produced > 0
    assert second.produced == 0
    model.advance(2.0)
    assert second.produced == 1


def test_beyond_the_slots_they_wait_in_order():
    model: EngineModel[Any] = EngineModel(shape(slots=1, prefill_rate=0))
    sequences = [sequence(target=2) for _ in range(3)]
    for one in sequences:
        model.submit(one, 0.0)
    assert (model.running, model.waiting) == (1, 2)
    model.advance(0.1)
    assert [one.state for one in sequences] == [State.FINISHED, State.DECODING, State.WAITING]


def test_cached_prompt_skips_prefill_but_for_the_last_token():
    model: EngineModel[Any] = EngineModel(shape(slots=1))
    prompt = b"x" * 64 * 10
    first, again = sequence(prompt, 1), sequence(prompt, 1)
    model.submit(first, 0.0)
    model.advance(1.6)
    assert first.cached_tokens == 0
    model.submit(again, 10.0)
    assert again.cached_tokens == 160 - 16
    assert model.next_event() == pytest.approx(10.16)
    model.advance(10.2)
    assert model.totals.cache_queries == 320
    assert model.totals.cache_hits == 144


def test_rates_of_zero_take_no_time():
    model: EngineModel[Any] = EngineModel(shape(prefill_rate=0, decode_rate=0))
    one = sequence(target=50)
    model.submit(one, 3.0)
    assert model.next_event() <= 3.0
    assert model.advance(3.0) == [one]
    assert (one.produced, one.state) == (50, State.FINISHED)


def test_prefill_only():
    model: EngineModel[Any] = EngineModel(shape())
    one = sequence(target=0)
    model.submit(one, 0.0)
    assert model.advance(1.0) == [one]
    assert (one.produced, one.state) == (0, State.FINISHED)
    assert model.totals.generation_tokens == 0


@pytest.mark.parametrize("at", [0.0, 0.5, 1.05])
def test_a_cancelled_one_gives_its_place_to_the_next(at):
    model: EngineModel[Any] = EngineModel(shape(slots=1))
    first, second = sequence(), sequence(b"b" * 400)
    model.submit(first, 0.0)
    model.submit(second, 0.0)
    model.cancel(first, at)
    assert (model.running, model.waiting) == (1, 0)
    assert first not in model.advance(at + 0.99)
    assert second.produced == 0
    model.advance(at + 1.0)
    assert second.produced == 1
    assert model.totals.finished == {"abort": 1}


def test_cancel_of_one_that_waits_or_has_ended():
    model: EngineModel[Any] = EngineModel(shape(slots=1))
    first, second = sequence(target=1), sequence()
    model.submit(first, 0.0)
    model.submit(second, 0.0)
    model.cancel(second, 0.1)
    assert second.state is State.CANCELLED
    model.advance(1.0)
    model.cancel(first, 2.0)
    assert first.state is State.FINISHED
    assert model.totals.finished == {"abort": 1, "length": 1}


def test_frozen_takes_sequences_and_produces_nothing():
    model: EngineModel[Any] = EngineModel(shape())
    one, two = sequence(target=100), sequence()
    model.submit(one, 0.0)
    model.advance(1.5)
    produced = one.produced
    model.freeze(1.5)
    model.submit(two, 2.0)
    assert model.advance(1000.0) == []
    assert model.next_event() is None
    assert (model.running, one.produced, two.produced) == (2, produced, 0)
    model.thaw(1000.0)
    model.advance(1000.11)
    assert one.produced in (produced + 1, produced + 2)


def test_an_illegal_move_raises_and_changes_nothing():
    one = sequence()
    with pytest.raises(IllegalMove, match="new -> decoding"):
        one.move(State.DECODING)
    assert one.state is State.NEW


def test_cache_usage_is_what_runs():
    model: EngineModel[Any] = EngineModel(shape(cache_tokens=200))
    assert model.cache_usage == 0.0
    model.submit(sequence(), 0.0)
    assert model.cache_usage == 0.5
    model.submit(sequence(), 0.0)
    model.submit(sequence(), 0.0)
    assert model.cache_usage == 1.0


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "cancel", "wait"]),
        st.integers(0, 7),  # which prompt, or which sequence
        st.integers(0, 20),  # target
        st.floats(0, 0.7),  # seconds until the next action
    ),
    max_size=40,
)


def run(actions, looks: int) -> tuple:
    """Plays the actions, asking the model `looks` times between two; returns what came of it."""
    model: EngineModel[Any] = EngineModel(shape(slots=3, cache_tokens=320))
    sequences: list[Sequence] = []
    now = 0.0
    for kind, which, target, pause in actions:
        if kind == "submit":
            sequences.append(sequence(bytes([which]) * (64 * which + 5), target))
            model.submit(sequences[-1], now)
        elif kind == "cancel" and sequences:
            model.cancel(sequences[which % len(sequences)], now)
        check(model, sequences)
        for look in range(1, looks + 1):
            model.advance(now + pause * look / looks)
            check(model, sequences)
        now += pause
    model.advance(now + 1000.0)
    check(model, sequences)
    assert model.running == model.waiting == 0
    return (
        [(one.state, one.produced, one.cached_tokens) for one in sequences],
        model.totals,
    )


def check(model: EngineModel, sequences: list[Sequence]) -> None:
    states = [one.state for one in sequences]
    running = states.count(State.PREFILLING) + states.count(State.DECODING)
    assert model.running == running <= 3
    assert model.waiting == states.count(State.WAITING)
    assert model.waiting == 0 or model.running == 3
    assert len(model.cache) <= 20
    assert model.totals.generation_tokens == sum(one.produced for one in sequences)
    assert sum(model.totals.finished.values()) == sum(
        state in (State.FINISHED, State.CANCELLED) for state in states
    )
    for one in sequences:
        assert one.produced <= one.target
        assert one.cached_tokens < one.prompt_tokens
        assert (one.state is State.FINISHED) <= (one.produced == one.target)
    waiting = [index for index, state in enumerate(states) if state is State.WAITING]
    in_work = [i for i, s in enumerate(states) if s in (State.PREFILLING, State.DECODING)]
    assert not waiting or max(in_work) < min(waiting)  # first come, first served


@given(ACTIONS)
def test_invariants_hold_and_the_outcome_does_not_depend_on_how_often_one_looks(actions):
    assert run(actions, 1) == run(actions, 7)
