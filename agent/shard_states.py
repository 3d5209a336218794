"""What may happen to one shard on its node, as a table from (state, event) to the new state.

``ended`` is final: a generation is launched at most once on a node, so nothing leads out of it.
A shard whose main process went without being asked passes through ``stopping`` while what is left of
its session is killed, because its cards and memory are free only when nothing of it lives (FO11).
"""

from __future__ import annotations

import enum

from agent.errors import IllegalMove
from orchestrator.wire.reports import ShardState


class Event(enum.Enum):
    """What happened to a shard."""

    COMPLETE = "weights complete"
    LAUNCHED = "process runs"
    ADOPTED_READY = "found serving"
    READY = "answers"
    HUNG = "no progress"
    RECOVERED = "progress again"
    EXITED = "process went unasked"
    STOP = "stop asked"
    GONE = "nothing left"
    NOT_GONE = "something left"
    FAILED = "cannot go on, nothing runs"


MOVES: dict[tuple[ShardState, Event], ShardState] = {
    ("fetching", Event.COMPLETE): "prepared",
    ("fetching", Event.FAILED): "ended",
    ("fetching", Event.STOP): "ended",
    ("prepared", Event.LAUNCHED): "up",
    ("prepared", Event.FAILED): "ended",
    ("prepared", Event.STOP): "ended",
    ("up", Event.READY): "ready",
    ("up", Event.ADOPTED_READY): "ready",
    ("up", Event.HUNG): "hung",
    ("up", Event.EXITED): "stopping",
    ("up", Event.STOP): "stopping",
    ("ready", Event.HUNG): "hung",
    ("ready", Event.EXITED): "stopping",
    ("ready", Event.STOP): "stopping",
    ("hung", Event.RECOVERED): "ready",
    ("hung", Event.EXITED): "stopping",
    ("hung", Event.STOP): "stopping",
    ("stopping", Event.GONE): "ended",
    ("stopping", Event.NOT_GONE): "stuck",
    ("stuck", Event.GONE): "ended",
}

#: A process of ours exists, or may.
RUNNING: frozenset[ShardState] = frozenset({"up", "ready", "hung", "stopping", "stuck"})


def moved(state: ShardState, event: Event) -> ShardState:
    """The state after ``event``; IllegalMove where the table has no row."""
    try:
        return MOVES[state, event]
    except KeyError:
        raise IllegalMove(f"a shard that is {state} knows no {event.name}") from None
