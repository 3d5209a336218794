"""What to do next, given the newest want and what is here. A core: no I/O, no clock.

The rules it holds (wire.md, Commands to an agent):

- The highest (epoch, revision) is obeyed and kept; anything older or equal changes nothing.
- A goal moves prepare -> run -> stop within one generation and never back.
- Only ``stop`` stops. What runs and is not named goes on.
- A generation is launched at most once: its mark is set (and on disk) before the process exists, and
  a marked generation that does not run is ended for good. Ending one that was never launched marks
  it too, so no later want revives it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from orchestrator.wire.reports import Applied
from orchestrator.wire.want import GOALS, ShardWant, Want

MARK_KEPT_MS = 30 * 24 * 3600 * 1000


class Here(enum.Enum):
    """What this node has of a generation."""

    PREPARING = "preparing"
    PREPARED = "prepared"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"
    REFUSED = "refused"


class Refusal(NamedTuple):
    """Why a shard of want is not obeyed: a stable word, and words for a person."""

    reason: str
    detail: str


class Prepare(NamedTuple):
    """Look for the weights, reserve what must be reserved."""

    shard: ShardWant


class Launch(NamedTuple):
    """Mark the generation, then start its process."""

    shard: ShardWant


class Stop(NamedTuple):
    """End the process that runs."""

    generation: int
    grace: float


class End(NamedTuple):
    """Nothing runs and nothing will: mark the generation and report it ended."""

    shard: ShardWant
    reason: str


class Forget(NamedTuple):
    """Neither wanted nor running: drop what is known of it."""

    generation: int


class Refuse(NamedTuple):
    """Say no by name. ``whole``: nothing of this shard is here, so it is shown as refused."""

    shard: ShardWant
    refusal: Refusal
    whole: bool


Action = Prepare | Launch | Stop | End | Forget | Refuse


#: Why a generation ended that went with its agent.
TAKEN_ALONG = "ended-with-agent"


class WantState:
    """The newest want, and the generations that may not be launched (any more)."""

    def __init__(
        self,
        want: Want | None,
        marks: Mapping[int, int],
        taken_along: frozenset[int] = frozenset(),
    ) -> None:
        self.want = want
        #: Generations that ended with an earlier agent, as it had been told: no failure.
        self._taken_along = taken_along
        #: Generation -> when it was marked, in ms of the agent's clock.
        self.marks = dict(marks)
        self._refused: list[tuple[ShardWant, Refusal]] = []

    @property
    def applied(self) -> Applied:
        """The highest (epoch, revision) obeyed."""
        return Applied() if self.want is None else Applied(self.want.epoch, self.want.revision)

    @property
    def shards(self) -> dict[int, ShardWant]:
        """The wanted shards by generation, with the goals that are really obeyed."""
        return {} if self.want is None else {s.generation: s for s in self.want.shards}

    def accept(self, new: Want) -> bool:
        """Takes ``new`` if it is above what is held; says whether it was.

        What contradicts an earlier want of the same generation is refused and the earlier kept.
        """
        if Applied(new.epoch, new.revision) <= self.applied:
            return False
        before = self.shards
        taken: dict[int, ShardWant] = {}
        self._refused = []
        for shard in new.shards:
            if shard.generation in taken:
                refusal = Refusal("rank-repeated", "want names two ranks of one replica here")
            else:
                old = before.get(shard.generation)
                contradiction = None if old is None else _contradiction(old, shard)
                if old is None or contradiction is None:
                    taken[shard.generation] = shard
                    continue
                taken[shard.generation] = old
                refusal = contradiction
            self._refused.append((shard, refusal))
        self.want = msgspec.structs.replace(new, shards=list(taken.values()))
        return True

    def mark(self, generation: int, now_ms: int) -> None:
        """The generation may not be launched from now on. The caller writes it to disk first."""
        self.marks.setdefault(generation, now_ms)

    def prune(self, now_ms: int) -> None:
        """Drops marks older than 30 days of generations that want does not name."""
        wanted = self.shards
        self.marks = {
            generation: at
            for generation, at in self.marks.items()
            if generation in wanted or now_ms - at < MARK_KEPT_MS
        }

    def next_actions(
        self,
        here: Mapping[int, Here],
        *,
        may_launch: bool,
        refusal: Callable[[ShardWant], Refusal | None],
    ) -> list[Action]:
        """All that is to be done now. ``refusal`` says what this node cannot run at all."""
        actions: list[Action] = [
            Refuse(shard, why, whole=False) for shard, why in self._take_refused()
        ]
        wanted = self.shards
        for generation, shard in wanted.items():
            action = self._next(shard, here.get(generation), may_launch, refusal)
            if action is not None:
                actions.append(action)
        actions.extend(self._forgotten(here, wanted))
        return actions

    def _next(
        self,
        shard: ShardWant,
        here: Here | None,
        may_launch: bool,
        refusal: Callable[[ShardWant], Refusal | None],
    ) -> Action | None:
        if here in (Here.ENDED, Here.STOPPING):
            return None
        absent = here in (None, Here.REFUSED)
        if shard.goal not in GOALS:
            return Refuse(shard, _unknown_goal(shard), whole=absent)
        if shard.goal == "stop":
            if here is Here.RUNNING:
                return Stop(shard.generation, shard.grace)
            return End(shard, "stopped")
        if here is Here.RUNNING:
            return None
        if shard.generation in self.marks:
            along = shard.generation in self._taken_along
            return End(shard, TAKEN_ALONG if along else "vanished")
        why = _malformed(shard) or refusal(shard)
        if why is not None:
            return Refuse(shard, why, whole=absent)
        if absent:
            return Prepare(shard)
        if here is Here.PREPARED and shard.goal == "run" and may_launch:
            return Launch(shard)
        return None

    def _take_refused(self) -> Iterable[tuple[ShardWant, Refusal]]:
        refused, self._refused = self._refused, []
        return refused

    @staticmethod
    def _forgotten(here: Mapping[int, Here], wanted: Mapping[int, ShardWant]) -> list[Forget]:
        """Only a process is kept against a silent want; preparations and ends are not."""
        kept = (Here.RUNNING, Here.STOPPING)
        return [Forget(g) for g, state in here.items() if g not in wanted and state not in kept]


def _contradiction(old: ShardWant, new: ShardWant) -> Refusal | None:
    if (old.rank, old.world_size, old.model, old.replica) != (
        new.rank,
        new.world_size,
        new.model,
        new.replica,
    ):
        return Refusal("identity-changed", "a generation never changes its rank, width or model")
    if new.goal in GOALS and old.goal in GOALS and GOALS.index(new.goal) < GOALS.index(old.goal):
        return Refusal("goal-backwards", f"the goal was {old.goal} and cannot become {new.goal}")
    if new.goal not in GOALS:
        return _unknown_goal(new)
    return None


def _unknown_goal(shard: ShardWant) -> Refusal:
    return Refusal("unknown-goal", f"this agent knows no goal {shard.goal!r}")


def _malformed(shard: ShardWant) -> Refusal | None:
    """What is wrong with a want entry whatever node it is on."""
    if not 1 <= shard.generation < 2**63:
        return Refusal("bad-generation", f"{shard.generation} is no generation")
    if not 0 <= shard.rank < shard.world_size:
        return Refusal("bad-rank", f"rank {shard.rank} of a world of {shard.world_size}")
    if shard.slots < 1:
        return Refusal("bad-slots", f"{shard.slots} slots; at least 1 is needed")
    if shard.goal == "run" and shard.world_size > 1 and shard.head_address is UNSET:
        return Refusal("no-head-address", "goal run of a multi-node shard without rank 0's address")
    return None
