"""The table of a shard's states."""

from __future__ import annotations

from typing import get_args

import pytest

from agent.errors import IllegalMove
from agent.shard_states import MOVES, RUNNING, Event, moved
from orchestrator.wire.reports import ShardState


def test_the_usual_way():
    state: ShardState = "fetching"
    for event in (Event.COMPLETE, Event.LAUNCHED, Event.READY, Event.STOP, Event.GONE):
        state = moved(state, event)
    assert state == "ended"


def test_nothing_leads_out_of_ended():
    assert not [key for key in MOVES if key[0] == "ended"]


def test_what_is_not_in_the_table_raises():
    with pytest.raises(IllegalMove, match="prepared knows no READY"):
        moved("prepared", Event.READY)


def test_every_running_state_can_be_left_by_stop_or_is_being_left():
    for state in RUNNING - {"stopping", "stuck"}:
        assert MOVES[state, Event.STOP] == "stopping"
        assert MOVES[state, Event.EXITED] == "stopping"


def test_what_was_launched_ends_only_through_proof():
    ends = {state for (state, _), after in MOVES.items() if after == "ended"}
    assert ends & RUNNING == {"stopping", "stuck"}


def test_states_are_those_of_the_wire():
    known = set(get_args(ShardState))
    assert {state for state, _ in MOVES} | set(MOVES.values()) <= known
