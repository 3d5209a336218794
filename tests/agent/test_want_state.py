"""What an agent does with a want: forward only, once only, and only stop stops."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.want_state import (
    MARK_KEPT_MS,
    End,
    Forget,
    Here,
    Launch,
    Prepare,
    Refusal,
    Refuse,
    Stop,
    WantState,
)
from orchestrator.wire.reports import Applied
from orchestrator.wire.want import ShardWant, Want
from tests.agent.shards import shard, want


def fine(_: ShardWant) -> None:
    return None


def actions(state: WantState, here: dict[int, Here] | None = None, *, may_launch: bool = True):
    return state.next_actions(here or {}, may_launch=may_launch, refusal=fine)


def holding(*shards: ShardWant, marks: dict[int, int] | None = None) -> WantState:
    return WantState(want(1, *shards), marks or {})


def test_nothing_is_done_without_a_want():
    state = WantState(None, {})
    assert actions(state) == []
    assert state.applied == Applied(0, 0)


def test_a_wanted_shard_is_prepared_first_and_launched_when_prepared():
    one = shard()
    state = holding(one)
    assert actions(state) == [Prepare(one)]
    assert actions(state, {7: Here.PREPARING}) == []
    assert actions(state, {7: Here.PREPARED}) == [Launch(one)]
    assert actions(state, {7: Here.RUNNING}) == []


def test_goal_prepare_ends_at_prepared():
    state = holding(shard(goal="prepare"))
    assert actions(state, {7: Here.PREPARED}) == []


def test_nothing_is_launched_while_redis_is_away():
    one = shard()
    state = holding(one)
    assert actions(state, {7: Here.PREPARED}, may_launch=False) == []
    assert actions(state, {}, may_launch=False) == [Prepare(one)]


def test_a_marked_generation_that_does_not_run_has_ended():
    one = shard()
    state = holding(one, marks={7: 1})
    for here in (None, Here.PREPARING, Here.PREPARED, Here.REFUSED):
        assert actions(state, {} if here is None else {7: here}) == [End(one, "vanished")]
    assert actions(state, {7: Here.RUNNING}) == []
    assert actions(state, {7: Here.ENDED}) == []


@pytest.mark.parametrize("here", [None, Here.PREPARING, Here.PREPARED, Here.REFUSED])
def test_stop_of_what_does_not_run_ends_it(here: Here | None):
    one = shard(goal="stop")
    assert actions(holding(one), {} if here is None else {7: here}) == [End(one, "stopped")]


def test_stop_of_what_runs_stops_it_with_its_grace():
    state = holding(shard(goal="stop", grace=12.0))
    assert actions(state, {7: Here.RUNNING}) == [Stop(7, 12.0)]
    assert actions(state, {7: Here.STOPPING}) == []
    assert actions(state, {7: Here.ENDED}) == []


@pytest.mark.parametrize(
    ("here", "forgotten"),
    [
        (Here.PREPARING, True),
        (Here.PREPARED, True),
        (Here.ENDED, True),
        (Here.REFUSED, True),
        (Here.RUNNING, False),
        (Here.STOPPING, False),
    ],
)
def test_only_a_process_is_kept_against_a_silent_want(here: Here, forgotten: bool):
    assert actions(holding(), {9: here}) == ([Forget(9)] if forgotten else [])


@pytest.mark.parametrize(("epoch", "revision"), [(5, 3), (5, 2), (4, 99), (0, 0)])
def test_an_equal_or_older_want_changes_nothing(epoch: int, revision: int):
    state = WantState(want(3, shard()), {})
    assert not state.accept(want(revision, shard(goal="stop"), epoch=epoch))
    assert state.shards[7].goal == "run"
    assert state.applied == Applied(5, 3)


@pytest.mark.parametrize(("epoch", "revision"), [(5, 4), (6, 0)])
def test_a_newer_want_is_taken(epoch: int, revision: int):
    state = WantState(want(3, shard()), {})
    assert state.accept(want(revision, shard(goal="stop"), epoch=epoch))
    assert state.shards[7].goal == "stop"
    assert state.applied == Applied(epoch, revision)


@pytest.mark.parametrize(("old", "new"), [("run", "prepare"), ("stop", "run"), ("stop", "prepare")])
def test_a_goal_never_goes_back(old: str, new: str):
    state = WantState(want(1, shard(goal=old)), {})
    assert state.accept(want(2, shard(goal=new)))
    assert state.shards[7].goal == old
    [refuse] = [a for a in actions(state, {7: Here.RUNNING}) if isinstance(a, Refuse)]
    assert refuse.refusal.reason == "goal-backwards"
    assert not refuse.whole
    assert not any(isinstance(a, Refuse) for a in actions(state, {7: Here.RUNNING}))


@pytest.mark.parametrize("change", [{"rank": 1, "world_size": 2}, {"model": "other"}])
def test_a_generation_never_changes_what_it_is(change: dict[str, Any]):
    state = WantState(want(1, shard()), {})
    state.accept(want(2, shard(**change)))
    assert state.shards[7] == shard()
    [refuse] = [a for a in actions(state, {7: Here.RUNNING}) if isinstance(a, Refuse)]
    assert refuse.refusal.reason == "identity-changed"


def test_two_ranks_of_one_replica_on_a_node_are_refused():
    first, second = shard(world_size=2, goal="prepare"), shard(rank=1, world_size=2, goal="prepare")
    state = WantState(None, {})
    state.accept(want(1, first, second))
    done = actions(state)
    assert Prepare(first) in done
    assert [a.refusal.reason for a in done if isinstance(a, Refuse)] == ["rank-repeated"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"goal": "hibernate"}, "unknown-goal"),
        ({"rank": 2, "world_size": 2}, "bad-rank"),
        ({"rank": -1}, "bad-rank"),
        ({"slots": 0}, "bad-slots"),
        ({"generation": 2**64 - 1}, "bad-generation"),
        ({"world_size": 2}, "no-head-address"),
    ],
)
def test_what_cannot_be_is_refused_by_name(fields: dict[str, Any], reason: str):
    [refuse] = actions(holding(shard(**fields)))
    assert isinstance(refuse, Refuse)
    assert refuse.refusal.reason == reason
    assert refuse.whole


@pytest.mark.parametrize("generation", [0, -7])
def test_what_is_no_generation_is_refused(generation: int):
    [refuse] = actions(holding(msgspec.structs.replace(shard(), generation=generation)))
    assert isinstance(refuse, Refuse)
    assert refuse.refusal.reason == "bad-generation"


def test_the_nodes_own_no_is_passed_on():
    state = holding(shard(engine="warp"))
    no = Refusal("unknown-engine", "no warp here")
    [refuse] = state.next_actions({}, may_launch=True, refusal=lambda _: no)
    assert refuse == Refuse(shard(engine="warp"), no, whole=True)


def test_an_unknown_goal_does_not_touch_what_runs():
    state = WantState(want(1, shard()), {})
    state.accept(want(2, shard(goal="hibernate")))
    assert state.shards[7].goal == "run"
    assert [type(a) for a in actions(state, {7: Here.RUNNING})] == [Refuse]


def test_marks_are_kept_thirty_days_and_longer_while_wanted():
    state = holding(shard(7), marks={7: 0, 8: 0, 9: 10})
    state.prune(MARK_KEPT_MS + 5)
    assert state.marks == {7: 0, 9: 10}


def test_a_mark_keeps_its_first_time():
    state = holding()
    state.mark(7, 100)
    state.mark(7, 200)
    assert state.marks == {7: 100}


class Node:
    """A node that does at once what the core says, and may die and come back at any moment."""

    def __init__(self) -> None:
        self.state = WantState(None, {})
        self.here: dict[int, Here] = {}
        self.launched: list[int] = []
        self.stopped: list[int] = []

    def see(self, new: Want) -> None:
        self.state.accept(new)
        self.settle()

    def settle(self) -> None:
        for _ in range(5):
            done = self.state.next_actions(self.here, may_launch=True, refusal=fine)
            for action in done:
                self.do(action)
            if not done or all(isinstance(a, Refuse) for a in done):
                return
        raise AssertionError("the core never comes to rest")

    def do(self, action: object) -> None:
        match action:
            case Prepare(one):
                self.here[one.generation] = Here.PREPARED
            case Launch(one):
                self.state.mark(one.generation, 0)
                self.launched.append(one.generation)
                self.here[one.generation] = Here.RUNNING
            case Stop(generation, _):
                assert self.state.shards[generation].goal == "stop"
                self.stopped.append(generation)
                self.here[generation] = Here.ENDED
            case End(one, _):
                self.state.mark(one.generation, 0)
                self.here[one.generation] = Here.ENDED
            case Forget(generation):
                assert self.here[generation] is not Here.RUNNING
                del self.here[generation]
            case Refuse(one, _, whole):
                if whole:
                    self.here[one.generation] = Here.REFUSED
                return

    def restart(self) -> None:
        """The agent is killed: its want and marks are on disk, its preparations are not."""
        kept = self.state.want
        disk = (
            None
            if kept is None
            else msgspec.msgpack.decode(msgspec.msgpack.encode(kept), type=Want)
        )
        self.state = WantState(disk, self.state.marks)
        self.here = {g: h for g, h in self.here.items() if h is Here.RUNNING}
        self.settle()

    def crash(self, generation: int) -> None:
        """An engine dies."""
        if self.here.get(generation) is Here.RUNNING:
            self.here[generation] = Here.ENDED
            self.settle()


GENERATIONS = st.integers(1, 4)
WANTS = st.builds(
    lambda epoch, revision, goals: want(
        revision, *(shard(g, goal=goal) for g, goal in goals.items()), epoch=epoch
    ),
    st.integers(1, 3),
    st.integers(1, 6),
    st.dictionaries(GENERATIONS, st.sampled_from(["prepare", "run", "stop"])),
)
EVENTS = st.lists(st.one_of(WANTS, st.just("restart"), GENERATIONS), min_size=1, max_size=30)


@given(EVENTS)
def test_whatever_comes_in_whatever_order(events: list[object]):
    """Repeated, reordered and older wants, crashes, agent restarts: never twice, never backwards."""
    node = Node()
    highest = Applied()
    for event in events:
        running = {g for g, h in node.here.items() if h is Here.RUNNING}
        if isinstance(event, Want):
            before = node.state.want
            newer = Applied(event.epoch, event.revision) > node.state.applied
            node.see(event)
            if not newer:
                assert node.state.want == before
            highest = max(highest, Applied(event.epoch, event.revision))
        elif event == "restart":
            node.restart()
        else:
            node.crash(int(str(event)))
            running.discard(int(str(event)))
        assert node.state.applied == highest
        for generation in running:
            gone = node.here.get(generation) is not Here.RUNNING
            assert not gone or generation in node.stopped
    assert len(node.launched) == len(set(node.launched))
    assert len(node.stopped) == len(set(node.stopped))
    assert set(node.stopped) <= set(node.launched)
