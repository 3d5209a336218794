"""A whole cluster in memory around the real reconciler: fake agents that obey wants, fake routers that
apply snapshots, a store that keeps what is committed, one clock that only `advance` moves.

Nodes beat as time advances, except those that are cut off (R189). After every step the invariants of
replicas.md that can be seen from outside are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import UNSET

from orchestrator.catalog.build import build
from orchestrator.reconcile.actions import Action, Commit, SayEvent
from orchestrator.reconcile.events import (
    CatalogChanged,
    NodeForgotten,
    PresenceSeen,
    ReportRead,
    TookOver,
    WantedHeard,
)
from orchestrator.reconcile.limits import DEFAULTS
from orchestrator.reconcile.reconciler import Reconciler
from orchestrator.reconcile.records import (
    ModelState,
    Record,
    decode_model_state,
    decode_record,
    encode_record,
)
from orchestrator.reconcile.wants import want_of
from orchestrator.wire.presence import Demand, Down, Held, Presence, Version
from orchestrator.wire.reports import (
    Applied,
    Beat,
    Card,
    Echo,
    Engine,
    Fabric,
    Full,
    Hello,
    Inventory,
    ReplicaUse,
    ShardReport,
    Weights,
)
from orchestrator.wire.snapshots import Endpoint, EndpointsSnapshot
from orchestrator.wire.want import SendReport, ShardWant, Want

GB = 1_000_000_000
STEP = 0.5
#: Redis's clock at the fake's time 0.
EPOCH_MS = 1_800_000_000_000


class FakeShard:
    """One rank on one node, as its agent has it."""

    def __init__(self, want: ShardWant, now: float) -> None:
        self.want = want
        self.state = "fetching"
        self.goal = want.goal
        self.since = now
        self.reason = ""
        self.charged = True
        self.running = 0

    @property
    def alive(self) -> bool:
        """Whether a process of it holds its cards."""
        return self.state in ("up", "ready", "hung", "stopping", "stuck")

    def become(self, state: str, now: float, reason: str = "") -> None:
        self.state = state
        self.since = now
        self.reason = reason


class FakeAgent:
    """Obeys the newest want in the store while it is linked to it."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        *,
        cards: int = 0,
        card_type: str = "H100-80GB",
        simulated: bool | None = None,
        fabric: str | None = None,
        memory_gb: float | None = 64,
        cores: int | None = 16,
        engines: Iterable[str] = ("sim",),
        labels: dict[str, str] | None = None,
        weights: Iterable[str] = (),
    ) -> None:
        self.cluster = cluster
        self.name = name
        self.node_id = f"id-{name}"
        self.session = f"{name}-1"
        self.linked = True
        self.obeys = True
        self.fetch_time = 1.0
        self.load_time = 2.0
        self.stop_time = 1.0
        #: Called for a shard about to be ready: words make it end with them.
        self.breaks: Callable[[FakeShard], str] = lambda shard: ""
        self.shards: dict[tuple[str, int], FakeShard] = {}
        self.marks: set[tuple[str, int]] = set()
        self.launches: list[tuple[str, int]] = []
        self.applied = Applied()
        self.weights = [Weights(source, True) for source in weights]
        self.inventory = Inventory(
            address=f"10.0.0.{len(cluster.agents) + 1}",
            cpus=UNSET if cores is None else cores,
            memory=UNSET if memory_gb is None else int(memory_gb * GB),
            cards=[Card(f"{name}-gpu{n}", card_type, 80 * GB, 80 * GB, 0, 0) for n in range(cards)],
            engines=[Engine(kind) for kind in engines],
            labels=labels or {},
            fabric=UNSET if fabric is None else Fabric(fabric, f"10.1.0.{len(cluster.agents) + 1}"),
            simulated=cards > 0 if simulated is None else simulated,
        )
        self._said: Any = None
        self._next_beat = 0.0
        self._next_full = 0.0

    # -- life

    def restart(self) -> None:
        """The agent's process: engines live on, a new session begins."""
        number = int(self.session.rpartition("-")[2]) + 1
        self.session = f"{self.name}-{number}"
        self._said = None
        if self.linked:
            self.cluster.report(self.hello())

    def reboot(self) -> None:
        """The machine: every engine is gone, the marks stay."""
        self.shards = {key: shard for key, shard in self.shards.items() if not shard.alive}
        self.restart()

    def set_up_anew(self) -> None:
        """Another disk: nothing is remembered."""
        self.shards.clear()
        self.marks.clear()
        self.applied = Applied()
        self.node_id += "'"
        self.restart()

    def kill(self, replica: str, rank: int = 0, reason: str = "exit code 137") -> None:
        """The engine's process ends unasked."""
        self.shards[replica, rank].become("ended", self.cluster.now, reason)

    def act(self) -> None:
        """Reads and obeys the want, brings its shards on, reports."""
        now = self.cluster.now
        if self.linked and self.obeys:
            self._obey(self.cluster.wants.get(self.name))
        for shard in list(self.shards.values()):
            self._bring_on(shard, now)
        if not self.linked:
            return
        if now >= self._next_beat:
            self._next_beat = now + 2
            self.cluster.report(self.beat())
        said = (
            self.applied,
            [(k, s.state, s.goal) for k, s in self.shards.items()],
            self.inventory,
        )
        if said != self._said or now >= self._next_full:
            self._said = said
            self._next_full = now + 30
            self.cluster.report(self.full())

    def _obey(self, want: Want | None) -> None:
        if want is None or Applied(want.epoch, want.revision) <= self.applied:
            return
        now = self.cluster.now
        self.applied = Applied(want.epoch, want.revision)
        listed = {(shard.replica, shard.rank): shard for shard in want.shards}
        for key, shard_want in listed.items():
            shard = self.shards.get(key)
            if shard is None:
                shard = self.shards[key] = FakeShard(shard_want, now)
                if shard_want.goal == "stop" or key in self.marks:
                    shard.become("ended", now, "it does not run")
            order = ("prepare", "run", "stop")
            assert order.index(shard_want.goal) >= order.index(shard.goal), "a goal moved back"
            shard.want = shard_want
            shard.goal = shard_want.goal
            if shard.goal == "stop" and shard.state not in ("ended", "stopping", "stuck"):
                shard.become("stopping" if shard.alive else "ended", now)
        for key in [k for k, s in self.shards.items() if k not in listed and not s.alive]:
            del self.shards[key]

    def _bring_on(self, shard: FakeShard, now: float) -> None:
        age = now - shard.since
        key = (shard.want.replica, shard.want.rank)
        if shard.state == "fetching" and age >= self.fetch_time:
            shard.become("prepared", now)
        elif shard.state == "prepared" and shard.goal == "run" and self.linked:
            self._launch(shard, key, now)
        elif shard.state == "up" and shard.want.rank == 0 and age >= self.load_time:
            words = self.breaks(shard)
            shard.become("ended" if words else "ready", now, words)
        elif shard.state == "stopping" and age >= self.stop_time:
            shard.become("ended", now, "stopped")

    def _launch(self, shard: FakeShard, key: tuple[str, int], now: float) -> None:
        assert key not in self.marks, f"{key} is launched twice on {self.name}"
        for other in self.shards.values():
            shared = set(other.want.cards) & set(shard.want.cards)
            assert other is shard or not other.alive or not shared, f"{shared} used by two engines"
        if shard.want.world_size > 1:
            assert shard.want.head_address, "launched without the head's address"
        self.marks.add(key)
        self.launches.append(key)
        shard.become("up", now)

    # -- words

    def hello(self) -> Hello:
        return Hello(self.name, self.session, self.node_id, 1, self.inventory, "0.1")

    def beat(self) -> Beat:
        use = [
            ReplicaUse(shard.want.generation, shard.running > 0, shard.running, 0)
            for shard in self.shards.values()
            if shard.state == "ready"
        ]
        return Beat(self.name, self.session, self.applied, use=use)

    def full(self) -> Full:
        return Full(
            self.name,
            self.session,
            self.node_id,
            self.applied,
            self.inventory,
            [self._shard_report(shard) for shard in self.shards.values()],
            "0.1",
            self.weights,
        )

    def _shard_report(self, shard: FakeShard) -> ShardReport:
        want = shard.want
        port = 20000 + want.generation % 1000 * 10 + want.rank
        return ShardReport(
            replica=want.replica,
            generation=want.generation,
            model=want.model,
            origin=want.origin,
            fingerprint=want.fingerprint,
            rank=want.rank,
            world_size=want.world_size,
            state=shard.state,
            age=self.cluster.now - shard.since,
            profile=want.profile,
            served_name=want.served_name,
            slots=want.slots,
            context=want.context,
            reason=shard.reason,
            charged=shard.charged,
            cards=want.cards,
            cores=want.cores,
            memory=want.memory,
            url=f"http://{self.inventory.address}:{port}" if shard.state == "ready" else UNSET,
            fabric_address=UNSET
            if self.inventory.fabric is UNSET or want.world_size == 1
            else f"{self.inventory.fabric.address}:{port}",
            engine_key=want.engine_key,
        )


class FakeRouter:
    """One worker: applies the newest endpoints while it is linked, and holds what a test says."""

    def __init__(self, cluster: Cluster, worker: str) -> None:
        self.cluster = cluster
        self.worker = worker
        self.applies = True
        self.version = Version()
        self.endpoints: list[Endpoint] = []
        self.held: dict[str, int] = {}
        self.used: set[str] = set()
        self.down: set[str] = set()
        self.demand: dict[str, Demand] = {}

    def act(self) -> None:
        """Applies what is newer."""
        snapshot = self.cluster.endpoints
        if self.applies and snapshot is not None:
            version = Version(snapshot.epoch, snapshot.version)
            assert version >= self.version, "the endpoints went back"
            self.version = version
            self.endpoints = snapshot.endpoints

    def presence(self) -> Presence:
        generations = {endpoint.id: endpoint.generation for endpoint in self.endpoints}
        generations |= {one.id: one.generation for one in self.cluster.records.values()}
        return Presence(
            worker=self.worker,
            host="h",
            versions={"endpoints": self.version} if self.version.epoch else {},
            draining=False,
            held=[Held(one, generations.get(one, 0), n) for one, n in self.held.items() if n],
            used=sorted(self.used),
            demand=dict(self.demand),
            down=[Down(one, generations.get(one, 0), 0.0, "refused") for one in sorted(self.down)],
            totals={},
            version="0.1",
        )


class Cluster:
    """The store, the leader, everybody else, and the clock."""

    def __init__(self, *models: dict[str, Any], routers: int = 1) -> None:
        self.now = 1000.0
        self.catalog = build(models, {})
        self.agents: dict[str, FakeAgent] = {}
        self.routers = {f"w{n}": FakeRouter(self, f"w{n}") for n in range(routers)}
        self.routers_known = True
        self.raw_records: dict[str, bytes] = {}
        self.raw_models: dict[str, bytes] = {}
        self.wants: dict[str, Want] = {}
        self.hellos: dict[str, Hello] = {}
        self.drained: set[str] = set()
        self.endpoints: EndpointsSnapshot | None = None
        self.events: list[SayEvent] = []
        self.commits = 0
        self.epoch = 0
        self.leading = False
        self._unread: list[Any] = []
        self._echo = 0
        self._next_echo = 0.0
        self._asked: set[str] = set()
        self._forgotten: set[str] = set()
        self.reconciler = Reconciler(lambda: "key", lambda: 0.0)

    # -- building

    def node(self, name: str, **has: Any) -> FakeAgent:
        agent = self.agents[name] = FakeAgent(self, name, **has)
        self.report(agent.hello())
        return agent

    def lead(self) -> None:
        """A new leader takes over from what is stored."""
        self.epoch = max(self.epoch + 1, EPOCH_MS + int(self.now))
        self.reconciler = Reconciler(lambda: f"key-{self.epoch}", lambda: 0.0)
        self.leading = True
        self._unread.clear()
        self._echo = 0
        event = TookOver(
            epoch=self.epoch,
            clock_ms=EPOCH_MS + int(self.now * 1000),
            catalog=self.catalog,
            records=list(self.records.values()),
            model_states=self.models,
            known_nodes=list(self.hellos.values()),
            drained_nodes=frozenset(self.drained),
        )
        self._do(self.reconciler.handle(event, self.now))

    def change_catalog(self, *models: dict[str, Any], stored: dict[str, str] | None = None) -> None:
        self.catalog = build(models, stored or {})
        self.handle(CatalogChanged(self.catalog))

    def handle(self, event: Any) -> None:
        if isinstance(event, NodeForgotten):
            self._forgotten.add(event.node)
        self._do(self.reconciler.handle(event, self.now))

    def want(self, model: str) -> None:
        self.handle(WantedHeard(model))

    # -- reading

    @property
    def records(self) -> dict[str, Record]:
        return {name: decode_record(raw) for name, raw in self.raw_records.items()}

    @property
    def models(self) -> dict[str, ModelState]:
        return {name: decode_model_state(raw) for name, raw in self.raw_models.items()}

    def of(self, model: str, *states: str) -> list[Record]:
        """Records of a model, oldest first."""
        found = [
            one
            for one in self.records.values()
            if one.model == model and (not states or one.state in states)
        ]
        return sorted(found, key=lambda one: one.generation)

    def states(self, model: str) -> list[str]:
        return [one.state for one in self.of(model)]

    def only(self, model: str) -> Record:
        (record,) = self.of(model)
        return record

    def published(self) -> list[Any]:
        """The endpoints of the newest snapshot."""
        assert self.endpoints is not None
        return list(self.endpoints.endpoints)

    def endpoint_states(self, model: str) -> list[str]:
        return [one.state for one in self.published() if one.model == model]

    def first_failure(self, model: str) -> str:
        note = self.models[model].first_failure
        assert note is not UNSET
        return note.text

    def absence(self, model: str) -> Any:
        assert self.endpoints is not None
        return next((one for one in self.endpoints.absences if one.model == model), None)

    def launches(self) -> int:
        return sum(len(agent.launches) for agent in self.agents.values())

    def serving(self) -> set[str]:
        """Replicas whose rank 0 really answers."""
        return {
            replica
            for agent in self.agents.values()
            for (replica, rank), shard in agent.shards.items()
            if rank == 0 and shard.state == "ready"
        }

    # -- time

    def report(self, report: Any) -> None:
        if isinstance(report, Hello):
            self.hellos[report.node] = report
        self._unread.append(report)

    def advance(self, seconds: float) -> None:
        """Moves the clock in steps of half a second; everybody acts in each."""
        for _ in range(round(seconds / STEP)):
            self.now += STEP
            self.step()

    def settle_at(self, model: str, copies: int) -> None:
        """Advances until exactly so many copies are there and ready."""
        self.until(lambda: self.states(model) == ["ready"] * copies)

    def until(self, true: Callable[[], Any], limit: float = 60) -> None:
        """Advances until the condition holds; fails when it does not within the limit."""
        for _ in range(round(limit / STEP)):
            if true():
                return
            self.advance(STEP)
        said = "\n".join(str(event) for event in self.events[-15:])
        assert true(), f"not within {limit} s; last:\n{said}\n{self.records}"

    def step(self) -> None:
        for agent in self.agents.values():
            agent.act()
        for router in self.routers.values():
            router.act()
        if self.leading:
            self._lead_a_step()
        self._check_cards()

    def _lead_a_step(self) -> None:
        if self.now >= self._next_echo:
            self._next_echo = self.now + 2
            self._echo += 1
            self._unread.append(Echo("o1", self.epoch, self._echo))
        unread, self._unread = self._unread, []
        for report in unread:
            self.handle(ReportRead(report))
        presences = {one.worker: one.presence() for one in self.routers.values()}
        self.handle(PresenceSeen(presences, self.routers_known))
        self._do(self.reconciler.decide(self.now))
        for node in self._asked:
            agent = self.agents.get(node)
            if agent is not None and agent.linked:
                self.report(agent.full())
        self._asked = set()

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, SayEvent):
                self.events.append(action)
            else:
                self._commit(action)

    def _commit(self, commit: Commit) -> None:
        self.commits += 1
        for record in commit.records:
            self.raw_records[record.id] = encode_record(record)
        for gone in commit.deleted:
            self.raw_records.pop(gone, None)
        for name, state in commit.models.items():
            self.raw_models[name] = encode_record(state)
        for node, want in commit.wants:
            old = self.wants.get(node)
            assert old is None or (want.epoch, want.revision) > (old.epoch, old.revision)
            self._forgotten.discard(node)
            self.wants[node] = msgspec.msgpack.decode(msgspec.msgpack.encode(want), type=Want)
        for node, notice in commit.notices:
            if isinstance(notice, SendReport):
                self._asked.add(node)
        if commit.endpoints is not None:
            self.endpoints = commit.endpoints
        self._check_records()

    # -- invariants 1 and 2 of replicas.md; 3 is the agents' own assertion

    def _check_records(self) -> None:
        held: dict[str, str] = {}
        for record in self.records.values():
            for shard in record.shards:
                for card in () if shard.gone else shard.cards:
                    other = held.setdefault(card, record.id)
                    adopted = record.adopted or self.records[other].adopted
                    assert other == record.id or adopted, f"{card} in {other} and {record.id}"
            assert len({self._fabric(node) for node in record.nodes}) == 1
        for node, want in self.wants.items():
            if want.epoch == self.epoch and node not in self._forgotten:
                mine = [record for record in self.records.values() if node in record.nodes]
                wanted = want_of(node, mine, DEFAULTS)
                assert want.shards == wanted, f"want of {node} is not the function of the records"

    def _fabric(self, node: str) -> Any:
        agent = self.agents.get(node)
        fabric = UNSET if agent is None else agent.inventory.fabric
        return None if fabric is UNSET else fabric.name

    def _check_cards(self) -> None:
        for agent in self.agents.values():
            used: dict[str, str] = {}
            for (replica, _), shard in agent.shards.items():
                for card in shard.want.cards if shard.alive else ():
                    assert used.setdefault(card, replica) == replica, f"{card} is used twice"
