"""Who leads: one lease in Redis, taken together with a new epoch that fences everything older.

The lease only says who should decide; what keeps two leaders apart is that the store refuses every
write of a lower epoch. So a leader that was paused past its lease can do no harm before it notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from orchestrator.config import Times
from orchestrator.shell_errors import LeaseLost, StoreAway
from orchestrator.store import Led, Store, Taken
from orchestrator.store_health import BackOff, StoreHealth

log = logging.getLogger("llmgw.orchestrator")


class Lease(NamedTuple):
    """A term of leadership. ``offset_ms``: Redis's clock minus the process's monotonic clock, in ms."""

    epoch: int
    offset_ms: float


class Leadership:
    """Campaigns for the lease and keeps it; knows the highest epoch this instance has ever seen."""

    def __init__(
        self,
        store: Store,
        instance: str,
        health: StoreHealth,
        times: Times,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._instance = instance
        self._health = health
        self._times = times
        self._clock = clock
        #: A new epoch is drawn above this.
        self.floor = 0
        #: The term that is on, if any.
        self.lease: Lease | None = None
        #: Who led at the last look of a standby: (instance, epoch), or None when nobody did.
        self.seen_leader: Led | None = None

    def raise_floor(self, epoch: int) -> None:
        """Remembers an epoch that somebody has seen."""
        self.floor = max(self.floor, epoch)

    async def campaign(self) -> Lease:
        """Waits until the lease is taken, however long Redis is away or another one leads."""
        back_off = BackOff(self._times.retry_first, self._times.retry_last)
        while True:
            try:
                asked = self._clock()
                answer = await self._store.take_over(
                    self._instance, int(self._times.lease * 1000), self.floor
                )
            except StoreAway as error:
                self._health.away("write", str(error))
                await asyncio.sleep(back_off.wait())
                continue
            self._health.ok("read")
            self._health.ok("write")
            back_off.reset()
            if isinstance(answer, Taken):
                self.raise_floor(answer.epoch)
                self.seen_leader = None
                self.lease = Lease(answer.epoch, answer.now_ms - asked * 1000)
                log.info("leading with epoch %d", answer.epoch)
                return self.lease
            self._see(answer)
            await asyncio.sleep(self._times.campaign)

    async def keep(self, lease: Lease) -> NoReturn:
        """Renews until the lease is lost, then raises LeaseLost."""
        renewed = self._clock()
        while True:
            await asyncio.sleep(self._times.renewal)
            asked = self._clock()
            try:
                answer = await self._store.renew(
                    self._instance, lease.epoch, int(self._times.lease * 1000)
                )
            except StoreAway as error:
                self._health.away("read", str(error))
                if self._clock() - renewed >= self._times.lease:
                    raise LeaseLost("Redis was away for longer than the lease") from None
                continue
            # A full Redis still renews, so this says nothing of writing.
            self._health.ok("read")
            if isinstance(answer, Led):
                self._see(answer)
                raise LeaseLost(f"{answer.instance} leads" if answer.value else "the lease ran out")
            renewed = asked
            self.lease = Lease(lease.epoch, answer - asked * 1000)

    def now_ms(self) -> int:
        """Redis's clock in ms, as measured at the last renewal."""
        if self.lease is None:
            raise LeaseLost("not leading")
        return int(self._clock() * 1000 + self.lease.offset_ms)

    async def give_back(self, lease: Lease) -> None:
        """Ends the term; a lease that is still ours is free for the next at once."""
        self.lease = None
        with contextlib.suppress(StoreAway):
            await self._store.resign(self._instance, lease.epoch)

    def _see(self, leader: Led) -> None:
        if leader.value:
            self.raise_floor(leader.epoch)
        if leader != self.seen_leader:
            log.info("%s leads with epoch %d", leader.instance or "nobody", leader.epoch)
        self.seen_leader = leader
