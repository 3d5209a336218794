"""One term of leadership: its documents, its reconciler, and the writes that follow from them.

A write that fails ends the term: the next one begins from what the store really holds.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from orchestrator.access import StoredKey, access_entries, read_stored_keys
from orchestrator.backup import Backup
from orchestrator.catalog.catalog import EMPTY, Catalog
from orchestrator.cluster_file import ClusterFile
from orchestrator.commit import FencedWrite, writes_of
from orchestrator.config import Times
from orchestrator.definitions import (
    DECLARED_FIELD,
    Declared,
    Definitions,
    definitions_at_take_over,
)
from orchestrator.leader import Leadership, Lease
from orchestrator.publish import Prepared, Publisher
from orchestrator.reconcile.actions import Action, SayEvent
from orchestrator.reconcile.events import CatalogChanged, Event, TookOver
from orchestrator.reconcile.reconciler import Reconciler
from orchestrator.reports import ReportsReader
from orchestrator.schema import check_schemas
from orchestrator.shell_errors import HigherEpochSeen
from orchestrator.store import Command, Store, Stored
from orchestrator.store_health import StoreHealth
from orchestrator.stored_records import model_states, records
from orchestrator.wire.presence import Presence
from orchestrator.wire.reports import Full


class Surroundings(NamedTuple):
    """What a term is given by its instance."""

    store: Store
    leadership: Leadership
    health: StoreHealth
    instance: str
    times: Times
    clock: Callable[[], float]


class Term:
    """The leader's state. Only the loop of its `Leading` touches it."""

    def __init__(
        self,
        around: Surroundings,
        lease: Lease,
        file: ClusterFile,
        backup: Backup | None = None,
    ) -> None:
        self.around = around
        self._backup = backup
        #: The store lost keys that the backup has: the routers go on with those that they hold until
        #: keys are changed here.
        self.keys_lost = False
        self.epoch = lease.epoch
        #: When it began, on the process's monotonic clock.
        self.began = around.clock()
        self._publisher = Publisher(lease.epoch)
        self.reconciler = Reconciler(
            lambda: secrets.token_urlsafe(24), lambda: random.uniform(-1.0, 1.0)
        )
        self.definitions = Definitions(file, [], {}, {})
        self.catalog: Catalog = EMPTY
        self.stored_keys: dict[str, StoredKey] = {}
        #: Drained nodes: the rows of ``doc:nodes``.
        self.drained: dict[str, str] = {}
        #: The last Full of each node, for the source check and the views.
        self.fulls: dict[str, Full] = {}
        #: The router workers at the last look.
        self.presences: tuple[Presence, ...] = ()
        #: Length of the last pass in seconds, and when it ended.
        self.last_pass: tuple[float, float] | None = None
        #: Something was written since `take_dirty` was last asked.
        self._dirty = True

    @property
    def store(self) -> Store:
        """The store that it writes to."""
        return self.around.store

    def now(self) -> float:
        """The process's monotonic clock."""
        return self.around.clock()

    def now_ms(self) -> int:
        """Redis's clock; LeaseLost once the lease was given back."""
        return self.around.leadership.now_ms()

    def take_dirty(self) -> bool:
        """Whether something was written since the last call."""
        dirty, self._dirty = self._dirty, False
        return dirty

    # Writing

    async def write(self, write: FencedWrite) -> None:
        """One fenced write; any failure of it ends the term."""
        if not write.commands and write.snapshot is None:
            return
        replies = await self.store.fenced(self.epoch, write.commands, write.snapshot)
        self._dirty = True
        if write.snapshot is not None and replies[-1] == 0:
            raise HigherEpochSeen(self.epoch, f"the snapshot {write.snapshot.name} in the store")

    async def perform(self, actions: list[Action]) -> None:
        """Everything that the reconciler asked for, in its order."""
        for write in writes_of(actions, self.store, self.now_ms()):
            await self.write(write)

    async def write_document(self, commands: list[Command], said: SayEvent | None = None) -> None:
        """One change of a document, with the line about it."""
        write = FencedWrite(list(commands))
        if said is not None:
            write.commands.extend(writes_of([said], self.store, self.now_ms())[0].commands)
        await self.write(write)

    async def feed(self, event: Event) -> None:
        """Folds one event in and makes a pass at once: for changes, whose answer waits for it."""
        await self.perform(self.reconciler.handle(event, self.now()))
        await self.make_pass()

    async def put_in_force(self, definitions: Definitions, catalog: Catalog) -> None:
        """Another catalog: published, then reconciled."""
        keys_differ = definitions.file.keys != self.definitions.file.keys
        self.definitions, self.catalog = definitions, catalog
        await self._publish(self._publisher.catalog(catalog.entries()))
        if keys_differ or not self.keys_lost:
            await self.publish_access()
        await self.feed(CatalogChanged(catalog))

    async def publish_access(self) -> None:
        """The keys in force, declared and stored."""
        self.keys_lost = False
        entries = access_entries(self.definitions.file.keys, self.stored_keys)
        await self._publish(self._publisher.access(entries, {}))

    async def declare(self) -> None:
        """Writes the declared part in force, unless some of it is another instance's."""
        if not self.definitions.elsewhere:
            row = {DECLARED_FIELD: self._declaration()}
            await self.write_document(self.store.document_write("declared", row))

    async def _publish(self, prepared: Prepared | None) -> None:
        if prepared is not None:
            await self.write(FencedWrite([], prepared.write))
            self._publisher.written(prepared)

    async def make_pass(self) -> None:
        """One pass of the reconciler, and what it asks for."""
        began = self.now()
        actions = self.reconciler.decide(began)
        ended = self.now()
        self.last_pass = (ended - began, ended)
        await self.perform(actions)

    # Beginning

    async def take_over(self) -> ReportsReader:
        """Reads the store, begins to reconcile, and publishes. The first pass asks every node for a Full."""
        stored = await self.store.read_all()
        check_schemas(stored)
        seen = max((epoch for epoch, _ in stored.versions.values()), default=0)
        if seen > self.epoch:
            raise HigherEpochSeen(seen, "the store's versions")
        self._read_documents(stored)
        self.catalog = self.definitions.catalog()
        actions = self.reconciler.handle(
            TookOver(
                epoch=self.epoch,
                clock_ms=stored.now_ms,
                catalog=self.catalog,
                records=records(stored.replicas),
                model_states=model_states(stored.models),
                known_nodes=list(stored.hellos.values()),
                drained_nodes=frozenset(self.drained),
            ),
            self.now(),
        )
        await self._publish(self._publisher.catalog(self.catalog.entries()))
        self.keys_lost = self._lacks_keys(stored)
        if not self.keys_lost:
            await self.publish_access()
        await self.perform(actions)
        if stored.documents["declared"].get(DECLARED_FIELD) != self._declaration():
            await self.declare()
        return ReportsReader(self.store, self.around.health, stored.reports_end, self.epoch)

    def _read_documents(self, stored: Stored) -> None:
        self.definitions = definitions_at_take_over(
            self.definitions.file, self.around.instance, stored.documents
        )
        self.stored_keys = read_stored_keys(stored.documents["keys"])
        self.drained = dict(stored.documents["nodes"])

    def _lacks_keys(self, stored: Stored) -> bool:
        backup = self._backup
        if backup is None or not backup.is_ahead_of(stored):
            return False
        return bool(backup.keys - self.stored_keys.keys())

    def _declaration(self) -> str:
        file = self.definitions.file
        declared = Declared(self.around.instance, file.digest, file.models)
        return msgspec.json.encode(declared).decode()
