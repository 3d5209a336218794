"""One shard as the agent knows it: its state, what runs of it, and how it is reported."""

from __future__ import annotations

import asyncio

from msgspec import UNSET, UnsetType

from agent.engine_process import EngineProcess
from agent.marks import EngineRecord
from agent.ports import Band
from agent.scrape import Numbers, Scraper
from agent.shard_states import RUNNING, Event, moved
from agent.want_state import Here, Refusal
from orchestrator.wire.feed import ReplicaLoad
from orchestrator.wire.reports import Failure, ReplicaUse, ShardReport, ShardState
from orchestrator.wire.want import ShardWant

_HERE: dict[ShardState, Here] = {
    "fetching": Here.PREPARING,
    "prepared": Here.PREPARED,
    "up": Here.RUNNING,
    "ready": Here.RUNNING,
    "hung": Here.RUNNING,
    "stopping": Here.STOPPING,
    "stuck": Here.STOPPING,
    "ended": Here.ENDED,
    "refused": Here.REFUSED,
}


class ShardRow:
    """Changed by the supervisor and the shard's own task only; ``now`` is a monotonic clock."""

    def __init__(self, shard: ShardWant, now: float, state: ShardState = "fetching") -> None:
        self.shard = shard
        self.state: ShardState = state
        self.since = now
        #: A stable word and words for a person, about the present state.
        self.reason = ""
        self.detail = ""
        self.charged = True
        self.first_failure: Failure | UnsetType = UNSET
        self.last_failure: Failure | UnsetType = UNSET
        self.weights = ""
        self.weights_size: int | UnsetType = UNSET
        self.adapter_paths: tuple[str, ...] = ()
        self.adapter_names: dict[str, str | int] = {}
        self.digest: str | UnsetType = UNSET
        self.band: Band | None = None
        self.fabric_address: str | UnsetType = UNSET
        self.record: EngineRecord | None = None
        self.process: EngineProcess | None = None
        self.scraper: Scraper | None = None
        self.memory: int | None = None
        #: What runs for this shard; at most one task.
        self.task: asyncio.Task[None] | None = None
        self.stop_asked = asyncio.Event()
        #: Why it is stopped, where that is not the leader's wish.
        self.stop_reason = ""
        self.grace = shard.grace
        self.use = UseSinceBeat()

    @property
    def generation(self) -> int:
        """The replica's generation."""
        return self.shard.generation

    @property
    def here(self) -> Here:
        """What the node has of it. While its launch is under way it is not to be launched again."""
        if self.state == "prepared" and self.task is not None and not self.task.done():
            return Here.PREPARING
        return _HERE[self.state]

    def move(self, event: Event, now: float, reason: str = "", detail: str = "") -> None:
        """The state after ``event``, by the table."""
        self.state = moved(self.state, event)
        self.since = now
        self.reason, self.detail = reason, detail

    def refuse(self, refusal: Refusal, now: float) -> None:
        """Nothing of it is here and nothing will be, for this reason."""
        self.state, self.since = "refused", now
        self.reason, self.detail = refusal.reason, refusal.detail

    def fail(self, kind: str, text: str, at_ms: int) -> Failure:
        """Keeps a failure: the first for good, the last until the next."""
        failure = Failure(kind, text, at_ms)
        if self.first_failure is UNSET:
            self.first_failure = failure
        self.last_failure = failure
        return failure

    def report(self, now: float, *, unlisted: bool) -> ShardReport:
        """The shard for a Full. ``unlisted``: want does not name it, and it goes on."""
        shard = self.shard
        runs = self.state in RUNNING
        record = self.record if runs else None
        process = self.process.identity if runs and self.process is not None else None
        return ShardReport(
            replica=shard.replica,
            generation=shard.generation,
            model=shard.model,
            origin=shard.origin,
            fingerprint=shard.fingerprint,
            rank=shard.rank,
            world_size=shard.world_size,
            state=self.state,
            age=max(0.0, now - self.since),
            profile=shard.profile,
            served_name=shard.served_name,
            slots=shard.slots,
            context=shard.context,
            reason=self.reason or ("unlisted" if unlisted else ""),
            detail=self.detail,
            charged=self.charged,
            pid=UNSET if process is None else process.pid,
            pid_start=UNSET if process is None else process.start,
            cards=shard.cards,
            cores=shard.cores,
            memory=shard.memory,
            memory_measured=UNSET if self.memory is None else self.memory,
            url=UNSET if record is None else record.url,
            ports=[] if self.band is None else self.band.ports,
            fabric_address=self.fabric_address,
            adapters=[a for a in shard.adapters if a.name in self.adapter_names],
            adapter_names=self.adapter_names,
            engine_key=shard.engine_key,
            digest=self.digest,
            first_failure=self.first_failure,
            last_failure=self.last_failure,
        )

    def load(self, now: float) -> ReplicaLoad | None:
        """The load entry of a ready replica's rank 0; None for anything else."""
        if self.state != "ready" or self.scraper is None:
            return None
        n = self.scraper.numbers
        return ReplicaLoad(
            id=self.shard.replica,
            generation=self.generation,
            age=max(0.0, now - self.scraper.at),
            running=_known(self.use.running),
            waiting=_known(n.waiting),
            cache_use=UNSET if n.cache_use is None else n.cache_use,
            slots=self.shard.slots,
            prompt_tokens=_known(n.prompt_tokens),
            generated_tokens=_known(n.generated_tokens),
            adapters=list(self.adapter_names),
        )

    def take_use(self) -> ReplicaUse | None:
        """Use of a ready replica since the last call; None for anything else."""
        if self.state != "ready" or self.scraper is None:
            return None
        n = self.scraper.numbers
        return ReplicaUse(
            generation=self.generation,
            busy=self.use.take_busy(),
            running=_known(self.use.running),
            waiting=_known(n.waiting),
        )


class UseSinceBeat:
    """Whether others than ourselves used the engine. A probe counts from its beginning, since its
    token may show in the counters before its answer is here."""

    def __init__(self) -> None:
        self.probes_begun = 0
        self.probing = False
        #: At the last scrape, without our probe; None: unknown.
        self.running: int | None = None
        self._busy = False
        self._highest: int | None = None

    def see(self, numbers: Numbers) -> None:
        """Takes one scrape."""
        running = numbers.running
        self.running = None if running is None else max(0, running - int(self.probing))
        if self.running or numbers.waiting:
            self._busy = True
        if numbers.generated_tokens is None:
            return
        others = numbers.generated_tokens - self.probes_begun
        if self._highest is not None and others > self._highest:
            self._busy = True
        self._highest = others if self._highest is None else max(self._highest, others)

    def take_busy(self) -> bool:
        """Whether it was used since the last call."""
        busy, self._busy = self._busy, False
        return busy


def _known(value: int | None) -> int | UnsetType:
    return UNSET if value is None else value
