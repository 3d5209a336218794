"""How an engine spends its time on sequences: slots, prefill, decode steps, prefix cache.

No clock and no socket: every entry takes `now` in seconds. What is due between two calls is worked
off in the order of time, so the result does not depend on how often the model is asked.

- At most `slots` sequences run; the others wait in order of arrival.
- Prefill is serial: one sequence at a time, uncached prompt tokens / prefill_rate seconds. Its end
  gives the sequence's first token and puts the prompt's blocks into the prefix cache.
- Decoding is batched as in a real engine: steps lie on multiples of 1 / decode_rate and each gives
  every decoding sequence one token.
- A rate of 0 means "takes no time".
"""

from __future__ import annotations

import math
from collections import deque
from enum import Enum
from typing import Generic, TypeVar

import msgspec

from agent.sim_engine.prefix_cache import PrefixCache

_NEVER = math.inf


class EngineShape(msgspec.Struct, frozen=True, kw_only=True):
    """slots: sequences at once. Rates: tokens/s (prefill of all together, decode of each one).
    cache_tokens: size of the KV and prefix cache. block_tokens: tokens per cached block."""

    slots: int
    prefill_rate: float
    decode_rate: float
    cache_tokens: int
    block_tokens: int


class State(Enum):
    NEW = "new"
    WAITING = "waiting"
    PREFILLING = "prefilling"  # holds a slot; its prefill runs or is next
    DECODING = "decoding"
    FINISHED = "finished"
    CANCELLED = "cancelled"


_LEGAL: frozenset[tuple[State, State]] = frozenset(
    {
        (State.NEW, State.WAITING),
        (State.WAITING, State.PREFILLING),
        (State.PREFILLING, State.DECODING),
        (State.PREFILLING, State.FINISHED),  # wants one token or none
        (State.DECODING, State.FINISHED),
        (State.WAITING, State.CANCELLED),
        (State.PREFILLING, State.CANCELLED),
        (State.DECODING, State.CANCELLED),
    }
)


class IllegalMove(Exception):
    """A bug of ours: a sequence was asked to make a move that the table does not have."""


class Sequence:
    """One run through the engine: a prompt and the tokens that follow.

    prompt_tokens: tokens of the prompt. chain: hashes of its whole blocks. target: tokens to
    produce (0: prefill only). finish: why it ends, a label for the counters.
    """

    __slots__ = ("cached_tokens", "chain", "finish", "produced", "prompt_tokens", "state", "target")

    def __init__(
        self, prompt_tokens: int, chain: tuple[int, ...], target: int, finish: str
    ) -> None:
        self.prompt_tokens = prompt_tokens
        self.chain = chain
        self.target = target
        self.finish = finish
        self.state = State.NEW
        self.produced = 0
        self.cached_tokens = 0  # known from the start of its prefill on

    def move(self, to: State) -> None:
        if (self.state, to) not in _LEGAL:
            raise IllegalMove(f"{self.state.value} -> {to.value}")
        self.state = to


class Totals(msgspec.Struct):
    """Counters since start; they only grow. finished: by reason, "abort" for cancelled ones."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    cache_queries: int = 0
    cache_hits: int = 0
    finished: dict[str, int] = msgspec.field(default_factory=dict)


S = TypeVar("S", bound=Sequence)


class EngineModel(Generic[S]):
    """All sequences of one engine; the shell passes in the time and collects what came of it."""

    def __init__(self, shape: EngineShape) -> None:
        self.shape = shape
        self.totals = Totals()
        self.cache = PrefixCache(shape.cache_tokens // shape.block_tokens)
        self._waiting: deque[S] = deque()
        self._prefilling: deque[S] = deque()
        self._decoding: dict[S, None] = {}
        self._touched: dict[S, None] = {}
        self._prefill_end = _NEVER
        self._step = 0  # number of the next step; its time is _step / decode_rate
        self._frozen = False

    @property
    def running(self) -> int:
        return len(self._prefilling) + len(self._decoding)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def cache_usage(self) -> float:
        """Share of the KV cache that running sequences hold, 0 to 1."""
        held = sum(seq.prompt_tokens + seq.produced for seq in (*self._prefilling, *self._decoding))
        return min(1.0, held / self.shape.cache_tokens) if self.shape.cache_tokens else 0.0

    def submit(self, seq: S, now: float) -> None:
        self._run_until(now)
        seq.move(State.WAITING)
        self._waiting.append(seq)
        self._admit(now)
        self._run_until(now)

    def cancel(self, seq: S, now: float) -> None:
        """Takes the sequence out at once; one that has ended already is left as it is."""
        self._run_until(now)
        if seq.state in (State.FINISHED, State.CANCELLED):
            return
        if seq.state is State.WAITING:
            self._waiting.remove(seq)
        elif seq.state is State.DECODING:
            del self._decoding[seq]
        elif self._prefilling[0] is seq:
            self._prefilling.popleft()
            self._start_prefill(now)
        else:
            self._prefilling.remove(seq)
        seq.move(State.CANCELLED)
        self._count_end("abort")
        self._touched.pop(seq, None)
        self._admit(now)
        self._run_until(now)

    def advance(self, now: float) -> list[S]:
        """The sequences that got tokens or ended since the last call, each once."""
        self._run_until(now)
        touched = list(self._touched)
        self._touched.clear()
        return touched

    def next_event(self) -> float | None:
        """When something is due next; None: never, unless somebody comes. May lie in the past."""
        at = min(self._prefill_due(), self._step_due())
        if self._touched:
            return -_NEVER
        return None if self._frozen or at == _NEVER else at

    def freeze(self, now: float) -> None:
        """From now on nothing is produced, as in an engine whose collective hangs: sequences come,
        take their slots, and stay."""
        self._run_until(now)
        self._frozen = True

    def thaw(self, now: float) -> None:
        """Goes on where it stopped; the time between is not made up for."""
        if not self._frozen:
            return
        self._frozen = False
        if self._prefilling:
            self._prefill_end = max(self._prefill_end, now)
        if self._decoding:
            self._align_step(now)

    def _run_until(self, now: float) -> None:
        while not self._frozen:
            prefill_at, step_at = self._prefill_due(), self._step_due()
            if min(prefill_at, step_at) > now:
                return
            if prefill_at <= step_at:
                self._end_prefill(prefill_at)
            else:
                self._take_step(step_at)

    def _prefill_due(self) -> float:
        return self._prefill_end if self._prefilling else _NEVER

    def _step_due(self) -> float:
        return self._step / self.shape.decode_rate if self._decoding else _NEVER

    def _admit(self, at: float) -> None:
        while self._waiting and self.running < self.shape.slots:
            seq = self._waiting.popleft()
            seq.move(State.PREFILLING)
            self._prefilling.append(seq)
            if len(self._prefilling) == 1:
                self._start_prefill(at)

    def _start_prefill(self, at: float) -> None:
        if not self._prefilling:
            return
        seq = self._prefilling[0]
        block_tokens = self.shape.block_tokens
        # The last prompt token is always computed: its result is the first new token.
        reusable = seq.chain[: (seq.prompt_tokens - 1) // block_tokens]
        seq.cached_tokens = self.cache.match(reusable) * block_tokens
        rate = self.shape.prefill_rate
        self._prefill_end = at + ((seq.prompt_tokens - seq.cached_tokens) / rate if rate else 0.0)

    def _end_prefill(self, at: float) -> None:
        seq = self._prefilling.popleft()
        totals = self.totals
        totals.prompt_tokens += seq.prompt_tokens
        totals.cache_queries += seq.prompt_tokens
        totals.cache_hits += seq.cached_tokens
        self.cache.insert(seq.chain)
        at_once = min(seq.target, 1) if self.shape.decode_rate else seq.target
        seq.produced = at_once
        totals.generation_tokens += at_once
        self._touched[seq] = None
        if seq.produced == seq.target:
            self._finish(seq)
        else:
            if not self._decoding:
                self._align_step(at)
            seq.move(State.DECODING)
            self._decoding[seq] = None
        self._start_prefill(at)
        self._admit(at)

    def _align_step(self, at: float) -> None:
        self._step = math.floor(at * self.shape.decode_rate) + 1

    def _take_step(self, at: float) -> None:
        self._step += 1
        self.totals.generation_tokens += len(self._decoding)
        self._touched.update(self._decoding)
        ended = []
        for seq in self._decoding:
            seq.produced += 1
            if seq.produced == seq.target:
                ended.append(seq)
        for seq in ended:
            del self._decoding[seq]
            self._finish(seq)
        if ended:
            self._admit(at)

    def _finish(self, seq: S) -> None:
        seq.move(State.FINISHED)
        self._count_end(seq.finish)

    def _count_end(self, reason: str) -> None:
        self.totals.finished[reason] = self.totals.finished.get(reason, 0) + 1
