"""All that one leadership knows, and the only ways to change it.

The passes (replica_pass, model_pass, adoption) read it and call `move`, `put` and the rest; `commit`
turns what changed into one fenced write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from msgspec import UNSET

from orchestrator.catalog.catalog import Catalog, CatalogModel
from orchestrator.placement.place import Rejections
from orchestrator.reconcile.actions import Level, SayEvent
from orchestrator.reconcile.backoff import after_excuse, after_failure, edited, forgiven
from orchestrator.reconcile.demand import IdleClocks, RouterWatch
from orchestrator.reconcile.events import TookOver
from orchestrator.reconcile.limits import Limits
from orchestrator.reconcile.nodes import Node, NodeBook
from orchestrator.reconcile.records import FailureNote, ModelState, Record
from orchestrator.reconcile.transitions import Cause, row_for
from orchestrator.wire.replica_id import next_generation
from orchestrator.wire.want import Command, Goal

#: Causes after which the node is left alone by this model for a minute.
_EXCUSES: frozenset[str] = frozenset({"excused", "absent", "not_obeying"})


class Pending:
    """A model below wanted: since when, and why nothing starts."""

    __slots__ = ("kind", "looked_at", "rejections", "since", "text")

    def __init__(self, since: float) -> None:
        self.since = since
        self.kind = ""
        self.text = ""
        self.rejections: dict[int, Rejections] = {}
        #: What the last look for a place depended on: as long as it is the same, so is the answer.
        self.looked_at: object = None


class ClusterState:
    """Mutable, owned by one Reconciler. ``now`` is set at every entry."""

    def __init__(
        self,
        event: TookOver,
        now: float,
        limits: Limits,
        draw_key: Callable[[], str],
        jitter: Callable[[], float],
    ) -> None:
        self.limits = limits
        self.draw_key = draw_key
        self._jitter = jitter
        self.epoch = event.epoch
        self.now = now
        self.took_over_at = now
        self._clock_base_ms = event.clock_ms
        self.catalog: Catalog = event.catalog
        self.settled = False
        self.settled_at = now
        #: An emptied store must not empty the routers: with no record at all, nothing is published
        #: before the agents have spoken.
        self.had_records = bool(event.records)
        self.had_nodes = bool(event.known_nodes or event.records)
        self.records: dict[str, Record] = {}
        self.models: dict[str, ModelState] = dict(event.model_states)
        self.nodes = NodeBook(limits)
        self.routers = RouterWatch()
        self.idle = IdleClocks()
        self.external_keys: dict[str, str] = {}
        self.pending: dict[str, Pending] = {}
        self.wanted_until: dict[str, float] = {}
        self.progress: dict[str, tuple[object, float]] = {}
        self.returning_since: dict[str, float] = {}
        self.changed: dict[str, None] = {}
        self.deleted: dict[str, None] = {}
        self.models_changed: dict[str, None] = {}
        #: Nodes whose want may differ from the one last written.
        self.touched_nodes: dict[str, None] = {}
        #: Counts changes of records with a shard on the node.
        self.node_changes: dict[str, int] = {}
        self.notices: list[tuple[str, Command]] = []
        self.said: list[SayEvent] = []
        self._by_model: dict[str, dict[str, None]] = {}
        self._by_node: dict[str, dict[str, None]] = {}
        self._last_generation = 0
        self._asked = 0
        for hello in event.known_nodes:
            self.nodes.get(hello.node, now).take_hello(hello, now, limits.card_rest)
        for record in event.records:
            self._index(record)
            self._last_generation = max(self._last_generation, record.generation)
            for name in record.nodes:
                node = self.nodes.get(name, now)
                if record.state == "lost":
                    node.state = "lost"
        for name in event.drained_nodes:
            self.nodes.set_drained(name, True, now)

    # -- clock and ids

    def ms(self) -> int:
        """Redis's clock as it was at the take-over, carried on by the monotonic one."""
        return self._clock_base_ms + int((self.now - self.took_over_at) * 1000)

    def age(self, since_ms: int) -> float:
        """Seconds since a stored time."""
        return max(0.0, (self.ms() - since_ms) / 1000)

    def draw_generation(self) -> int:
        """A generation never given before."""
        self._last_generation = next_generation(self._last_generation, self.ms())
        return self._last_generation

    def note_generation(self, generation: int) -> None:
        """One that was seen; the next one drawn is above it."""
        self._last_generation = max(self._last_generation, generation)

    def draw_question(self) -> str:
        """The id of a question to an agent."""
        self._asked += 1
        return f"{self.epoch}-{self._asked}"

    # -- reading

    def of_model(self, model: str) -> list[Record]:
        """Its records, oldest first."""
        return [self.records[one] for one in self._by_model.get(model, {})]

    def on_node(self, node: str) -> list[Record]:
        """Records with a shard there."""
        return [self.records[one] for one in self._by_node.get(node, {})]

    def model_state(self, model: str) -> ModelState:
        """Its run-time state, the empty one where nothing is stored."""
        return self.models.get(model, _NO_STATE)

    def model_of(self, record: Record) -> CatalogModel | None:
        """The catalog's model of that name and origin."""
        model = self.catalog.models.get(record.model)
        return model if model is not None and model.origin == record.origin else None

    def nodes_of(self, record: Record) -> Iterator[Node | None]:
        """Its nodes in rank order; None for one that was forgotten."""
        for name in record.nodes:
            yield self.nodes.by_name.get(name)

    def model_names(self) -> Iterable[str]:
        """Models of the catalog and of records."""
        return sorted({*self.catalog.models, *self.catalog.skipped, *self._by_model})

    # -- changing

    def say(self, level: Level, subject: str, what: str, reason: str = "") -> None:
        """A line for people."""
        self.said.append(SayEvent(level, subject, what, reason))

    def put(self, record: Record) -> Record:
        """Writes a record, new or changed."""
        self._index(record)
        self.changed[record.id] = None
        self._touch(record)
        return record

    def _touch(self, record: Record) -> None:
        for node in record.nodes:
            self.touched_nodes[node] = None
            self.node_changes[node] = self.node_changes.get(node, 0) + 1

    def _index(self, record: Record) -> None:
        self.records[record.id] = record
        self._by_model.setdefault(record.model, {})[record.id] = None
        for node in record.nodes:
            self._by_node.setdefault(node, {})[record.id] = None

    def drop(self, record: Record) -> None:
        """Deletes a record."""
        del self.records[record.id]
        del self._by_model[record.model][record.id]
        if not self._by_model[record.model]:
            del self._by_model[record.model]
        self._touch(record)
        for node in record.nodes:
            self._by_node.get(node, {}).pop(record.id, None)
        self.changed.pop(record.id, None)
        self.deleted[record.id] = None
        self.progress.pop(record.id, None)
        self.returning_since.pop(record.id, None)

    def put_model(self, name: str, state: ModelState) -> None:
        """Writes a model's run-time state."""
        if state != self.model_state(name):
            self.models[name] = state
            self.models_changed[name] = None

    def move(
        self, record: Record, cause: Cause, detail: str = "", node: str = "", **changes: Any
    ) -> Record:
        """One row of the table: the record's new form, what it charges, what people are told.

        ``node`` is where the failure was. IllegalTransition changes nothing.
        """
        row = row_for(f"replica {record.id}", record.state, cause)
        subject = f"{record.model}/{record.id}"
        if row.charged:
            self._charge(record, detail, node)
        elif cause in _EXCUSES and record.state == "preparing" and node:
            state = self.model_state(record.model)
            self.put_model(record.model, after_excuse(state, node, self.ms(), self.limits))
        if row.to == "gone":
            self.say("info", subject, "gone", record.detail)
            self.drop(record)
            return record
        if row.to != record.state:
            level: Level = "error" if row.charged else "warning" if row.failed else "info"
            self.say(level, subject, row.to, detail or cause)
            changes.setdefault("since_ms", self.ms())
        if row.to == "stopping":
            changes["shards"] = with_goal(record, "stop")
        if row.to == "draining" and record.state != "draining":
            changes["drain_until_ms"] = self.ms() + int(self.limits.drain * 1000)
        if row.to == "ready":
            changes["drain_until_ms"] = UNSET
            changes["withdrawn"] = UNSET
            if record.ready_ms is UNSET:
                changes["ready_ms"] = self.ms()
        return self.put(
            msgspec.structs.replace(
                record,
                state=row.to,
                why=cause,
                detail=detail,
                failed=record.failed or row.failed,
                **changes,
            )
        )

    def _charge(self, record: Record, detail: str, node: str) -> None:
        model = self.catalog.models.get(record.model)
        note = FailureNote(self.ms(), record.id, node or record.head.node, detail)
        state = self.model_state(record.model)
        fingerprints = model.fingerprints if model is not None else (record.fingerprint,)
        if edited(state, fingerprints):
            state = forgiven(state)
        self.put_model(
            record.model,
            after_failure(
                state, note, record.fingerprint, fingerprints, self._jitter(), self.limits
            ),
        )


_NO_STATE = ModelState()


def with_goal(record: Record, goal: Goal, ranks: Iterable[int] | None = None) -> list[Any]:
    """Its shards with that goal (only those ranks)."""
    wanted = None if ranks is None else set(ranks)
    return [
        msgspec.structs.replace(shard, goal=goal)
        if wanted is None or shard.rank in wanted
        else shard
        for shard in record.shards
    ]
