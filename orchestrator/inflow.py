"""What comes to a leader from Redis and the disk, put into its queue as events; and its echoes.

While Redis is away these wait and try again: only a write that fails, or the lease, ends a term.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from orchestrator.catalog.catalog import Catalog
from orchestrator.external_keys import ExternalKeys, key_files
from orchestrator.presences import KnownRouters
from orchestrator.reconcile.events import (
    Event,
    ExternalKeysRead,
    PresenceSeen,
    ReportRead,
    WantedHeard,
)
from orchestrator.reports import EchoWriter, ReportsReader
from orchestrator.shell_errors import HigherEpochSeen, StoreAway
from orchestrator.store_health import BackOff
from orchestrator.term import Surroundings
from orchestrator.wire.errors import UnreadableMessage
from orchestrator.wire.feed import Wanted, read_feed

#: How often the key files of external models are looked at, in seconds.
KEY_FILES_LOOK = 10.0

Put = Callable[[Event], None]


class Inflow:
    """The sources of one term's events; each coroutine runs until it is cancelled or must end the term."""

    def __init__(self, around: Surroundings, epoch: int, put: Put) -> None:
        self._around = around
        self._epoch = epoch
        self._put = put

    def _back_off(self) -> BackOff:
        return BackOff(self._around.times.retry_first, self._around.times.retry_last)

    async def reports(self, reader: ReportsReader) -> None:
        """Agents' reports and our own echoes, in the stream's order."""
        async for report in reader.read(self._back_off()):
            self._put(ReportRead(report))

    async def echoes(self, reader: ReportsReader) -> None:
        """Writes an echo every 2 s. One that Redis did not take is not repeated."""
        writer = EchoWriter(self._around.store, self._around.instance, self._epoch)
        while True:
            try:
                await writer.write(reader)
            except StoreAway as error:
                self._around.health.away("write", str(error))
            else:
                self._around.health.ok("write")
            await asyncio.sleep(self._around.times.echo)

    async def presences(self) -> None:
        """The router workers, as often as a drain may need to know."""
        routers = KnownRouters(self._around.clock(), self._around.times.known_after)
        while True:
            try:
                workers, unreadable = await self._around.store.read_presences()
            except StoreAway as error:
                self._around.health.away("read", str(error))
                routers.read_failed(self._around.clock())
            else:
                self._around.health.ok("read")
                seen = routers.seen(workers, unreadable, self._around.clock())
                if seen.highest_epoch > self._epoch:
                    raise HigherEpochSeen(seen.highest_epoch, "a router")
                by_id = {worker.worker: worker for worker in seen.workers}
                self._put(PresenceSeen(by_id, seen.known))
            await asyncio.sleep(self._around.times.presences)

    async def wanted(self) -> None:
        """Models that a router holds a request for. Lost notices are in the presences as well."""
        back_off = self._back_off()
        while True:
            try:
                async with contextlib.aclosing(self._around.store.listen()) as messages:
                    async for message in messages:
                        back_off.reset()
                        with contextlib.suppress(UnreadableMessage):
                            heard = read_feed(message)
                            if isinstance(heard, Wanted):
                                self._put(WantedHeard(heard.model))
            except StoreAway as error:
                self._around.health.away("read", str(error))
            await asyncio.sleep(back_off.wait())

    async def external_keys(self, catalog: Callable[[], Catalog]) -> None:
        """The keys of external models, whenever one of their files has changed."""
        keys = ExternalKeys()
        known: dict[str, str] = {}
        while True:
            found = await asyncio.to_thread(keys.look, key_files(catalog()))
            if found != known:
                known = found
                self._put(ExternalKeysRead(found))
            await asyncio.sleep(KEY_FILES_LOOK)
