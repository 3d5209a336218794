"""One orchestrator: campaigns and leads, follows as a standby, watches its file, answers for the admin API."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import platform
import time
from typing import Any

import msgspec

from orchestrator.backup import Backup, backup_of, read_backup, write_backup
from orchestrator.catalog.build import build
from orchestrator.changes import Change, Reload
from orchestrator.changing import Changing
from orchestrator.cluster_file import ClusterFile, FileOnDisk
from orchestrator.command_line import own_version
from orchestrator.config import Settings
from orchestrator.errors import CatalogRefused, OrchestratorError
from orchestrator.leader import Leadership, Lease
from orchestrator.leading import Leading
from orchestrator.picture import Picture, Sibling, picture_of_leader, picture_of_standby
from orchestrator.run_together import until_one_ends
from orchestrator.shell_errors import (
    ChangeRefused,
    HigherEpochSeen,
    LeaseLost,
    NotLeader,
    Stale,
    StoreAway,
    StoreTooNew,
    StoreWentBack,
)
from orchestrator.store import Led, Store, Stored, connect
from orchestrator.store_health import BackOff, StoreHealth
from orchestrator.term import Surroundings, Term

log = logging.getLogger("llmgw.orchestrator")

#: A leader that wrote nothing still reads the store in every so many rounds, to see its siblings.
_LEADER_READS_EVERY = 5


def read_and_check(on_disk: FileOnDisk) -> ClusterFile:
    """The file, whose models make a catalog by themselves; CatalogRefused with the place."""
    file = on_disk.read()
    build(file.models, {}, None, file.engine_metrics)
    return file


class Instance:
    """Everything of one orchestrator process but its admin listener."""

    def __init__(
        self, settings: Settings, name: str, on_disk: FileOnDisk, file: ClusterFile
    ) -> None:
        self.settings = settings
        self.name = name
        self._on_disk = on_disk
        #: The file in force here.
        self.file = file
        #: Why the file on disk is not the one in force, or None.
        self.file_error: CatalogRefused | ChangeRefused | None = None
        #: Why this version must not lead, or None.
        self.too_new: str | None = None
        self.health = StoreHealth(time.monotonic)
        self.store = Store(connect(settings.redis_url), settings.cluster)
        self.leadership = Leadership(self.store, name, self.health, settings.times, time.monotonic)
        self._changing = Changing(lambda: read_and_check(self._on_disk))
        self._leading: Leading | None = None
        self._followed: Stored | None = None
        self._backup: Backup | None = read_backup(settings.state)
        if self._backup is not None and self._backup.cluster != settings.cluster:
            self._backup = None
        if self._backup is not None:
            self.leadership.raise_floor(self._backup.epoch)

    # For the admin API

    @property
    def term(self) -> Term | None:
        """The term, while this instance leads and has taken over."""
        leading = self._leading
        return leading.term if leading is not None and leading.begun else None

    @property
    def leader(self) -> Led | None:
        """Who leads, as far as it is known here."""
        lease = self.leadership.lease
        if lease is not None:
            return Led(f"{self.name}/{lease.epoch}")
        return self.leadership.seen_leader

    @property
    def followed(self) -> Stored | None:
        """The last reading of the store."""
        return self._followed

    def store_now_ms(self) -> int:
        """Redis's clock: measured while leading, else as of the last look."""
        if self.leadership.lease is not None:
            return self.leadership.now_ms()
        return 0 if self._followed is None else self._followed.now_ms

    def picture(self) -> Picture:
        """What can be shown; StoreAway where this instance has not seen anything yet."""
        term = self.term
        if term is not None:
            with contextlib.suppress(LeaseLost):
                return picture_of_leader(term)
        if self._followed is None:
            raise StoreAway(self.health.problem or "the store has not been read yet")
        return picture_of_standby(self._followed, self.file)

    async def submit(self, change: Change) -> dict[str, Any]:
        """Makes a change if this instance leads; answers when it is written."""
        if isinstance(change, Reload):
            return await self.reload()
        leading = self._leading_now()
        return await self._wait(leading.submit(change))

    async def reload(self) -> dict[str, Any]:
        """Puts cluster.yaml in force as it is now, or keeps the old one and says why."""
        try:
            if self.term is not None:
                leading = self._leading_now()
                answer = await self._wait(leading.submit(Reload()))
                self.file = leading.term.definitions.file
            else:
                self.file = await asyncio.to_thread(read_and_check, self._on_disk)
                answer = {"digest": self.file.digest, "models": len(self.file.models)}
        except (CatalogRefused, ChangeRefused) as error:
            if str(error) != str(self.file_error):
                log.error("cluster.yaml is not taken, the old one stays in force: %s", error)
            self.file_error = error
            raise
        except OrchestratorError:
            # Not refused, only not done: the store or the lease went away meanwhile.
            self._on_disk.forget()
            raise
        if self.file_error is not None:
            log.info("cluster.yaml is good again")
        self.file_error = None
        return answer

    def _leading_now(self) -> Leading:
        leading = self._leading
        if self.health.problem is not None:
            raise StoreAway(self.health.problem)
        if leading is None or not leading.begun:
            led = self.leader
            raise NotLeader("" if led is None or led.instance == self.name else led.instance)
        return leading

    async def _wait(self, answer: asyncio.Future[dict[str, Any]]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self.settings.times.change):
                return await answer
        except TimeoutError:
            raise StoreAway("the store did not answer in time", unsure=True) from None

    # The work

    async def run(self) -> None:
        """Until cancelled; gives the lease back then."""
        try:
            await until_one_ends([self._lead(), self._follow(), self._watch_file()])
        finally:
            with contextlib.suppress(StoreAway, TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.store.forget_me(self.name)
            await self.store.close()

    async def _lead(self) -> None:
        times = self.settings.times
        back_off = BackOff(times.retry_first, times.retry_last)
        while True:
            lease = await self.leadership.campaign()
            around = Surroundings(
                self.store, self.leadership, self.health, self.name, times, time.monotonic
            )
            term = Term(around, lease, self.file, self._backup)
            self._leading = Leading(term, self._changing.carry_out)
            try:
                await self._one_term(lease, self._leading)
            finally:
                self._leading = None
                await self.leadership.give_back(lease)
            if self.too_new is not None:
                # Another version is to lead; looking again at times, for it may be rolled back.
                await asyncio.sleep(times.lease)
            if time.monotonic() - term.began > times.lease:
                back_off.reset()
            await asyncio.sleep(back_off.wait())

    async def _one_term(self, lease: Lease, leading: Leading) -> None:
        """Leads until it ends, and says why it did."""
        too_new, self.too_new = self.too_new, None
        try:
            await until_one_ends([leading.run(), self.leadership.keep(lease)])
        except Stale as error:
            self.leadership.raise_floor(error.stored or 0)
            log.warning("leading no longer: %s", error)
        except HigherEpochSeen as error:
            self.leadership.raise_floor(error.seen)
            log.warning("taking over again: %s", error)
        except StoreAway as error:
            self.health.away("write", str(error))
            log.warning("leading no longer: a write was not done (%s)", error)
        except StoreTooNew as error:
            if too_new is None:
                log.error("not leading: %s", error)
            self.too_new = str(error)
        except (LeaseLost, StoreWentBack, CatalogRefused) as error:
            log.warning("leading no longer: %s", error)
        except Exception:
            log.exception("leading no longer: a fault of llmgw itself")

    async def _follow(self) -> None:
        """Reads the store as a standby does, keeps the backup, and writes the own line."""
        for round_ in itertools.count():
            term = self.term
            try:
                if term is None or term.take_dirty() or round_ % _LEADER_READS_EVERY == 0:
                    self._followed = await self.store.read_all()
                    await self._keep_backup(self._followed)
                self.health.ok("read")
            except StoreAway as error:
                self.health.away("read", str(error))
            with contextlib.suppress(StoreAway):
                await self._say_who_i_am()
            await asyncio.sleep(self.settings.times.follow)

    async def _keep_backup(self, stored: Stored) -> None:
        """Writes the backup when it differs; never over one that knows more (a lost store)."""
        backup = backup_of(self.settings.cluster, stored)
        if backup == self._backup:
            return
        # The version may have caught up since the own take-over saw what was lost.
        lost = self.term is not None and self.term.keys_lost
        if self._backup is not None and (lost or self._backup.is_ahead_of(stored)):
            if self._backup.kept or not self._backup.keys or stored.documents["keys"]:
                return
            backup = msgspec.structs.replace(self._backup, kept=True)
        try:
            await asyncio.to_thread(write_backup, self.settings.state, backup)
        except OSError as error:
            log.error("the backup cannot be written: %s", error)
            return
        self._backup = backup

    @property
    def store_is_behind(self) -> bool:
        """Whether the store's documents are older than this instance's backup of them."""
        if self._backup is None or self._followed is None:
            return False
        return self._backup.is_ahead_of(self._followed)

    async def _say_who_i_am(self) -> None:
        followed = self._followed
        if followed is None:
            return
        term = self.term
        line = Sibling(
            host=platform.node(),
            pid=os.getpid(),
            version=own_version(),
            digest=self.file.digest,
            backup_version=0 if self._backup is None else self._backup.doc_version,
            at_ms=followed.now_ms if term is None else term.now_ms(),
        )
        await self.store.say_who_i_am(self.name, msgspec.json.encode(line).decode())

    async def _watch_file(self) -> None:
        while True:
            await asyncio.sleep(self.settings.times.cluster_file)
            if not await asyncio.to_thread(self._on_disk.changed) and not self._term_has_older():
                continue
            await self.reload_quietly()

    def _term_has_older(self) -> bool:
        """Whether the file was read while this instance was just taking over with the one before."""
        term = self.term
        return term is not None and term.definitions.file.digest != self.file.digest

    async def reload_quietly(self) -> None:
        """`reload` where nobody waits for its answer; a refusal is in status and in the log."""
        try:
            await self.reload()
        except (CatalogRefused, ChangeRefused):
            pass
        except OrchestratorError as error:
            log.warning("cluster.yaml was not read again: %s", error)
        except Exception:
            log.exception("cluster.yaml was not read again: a fault of llmgw itself")
