"""The stream ``reports``: read from its end on, and the leader's own echo written into it.

A node's silence is counted in echoes that were read back (orchestrator.md). So an echo's number is
spent whether or not its write succeeds: a gap in the numbers is a time in which silence means nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from orchestrator.shell_errors import HigherEpochSeen, StoreAway, StoreWentBack
from orchestrator.store import Store
from orchestrator.store_health import BackOff, StoreHealth
from orchestrator.wire.codec import encode
from orchestrator.wire.errors import UnreadableMessage
from orchestrator.wire.reports import Beat, Echo, Full, Report, read_report

log = logging.getLogger("llmgw.orchestrator")

#: How long one read waits for something to come, in ms.
WAIT_MS = 1000


def place_in_stream(entry_id: str) -> tuple[int, int]:
    """An entry id as something that can be compared."""
    milliseconds, _, number = entry_id.partition("-")
    return int(milliseconds), int(number or 0)


class ReportsReader:
    """Follows ``reports`` from a position for one term."""

    def __init__(self, store: Store, health: StoreHealth, position: str, epoch: int) -> None:
        self._store = store
        self._health = health
        self._epoch = epoch
        #: The last entry that was read.
        self.position = position
        #: Entries that could not be read, for the metrics.
        self.unreadable = 0

    async def read(self, back_off: BackOff) -> AsyncIterator[Report]:
        """Each report in the stream's order, for ever; while Redis is away nothing comes.

        HigherEpochSeen when an agent has obeyed a higher epoch than this term's.
        """
        while True:
            try:
                entries = await self._store.read_reports(self.position, WAIT_MS)
            except StoreAway as error:
                self._health.away("read", str(error))
                await asyncio.sleep(back_off.wait())
                continue
            self._health.ok("read")
            back_off.reset()
            for entry_id, message in entries:
                self.position = entry_id
                report = self._decoded(message)
                if report is not None:
                    yield report

    def _decoded(self, message: bytes) -> Report | None:
        try:
            report = read_report(message)
        except UnreadableMessage as error:
            self.unreadable += 1
            if self.unreadable == 1:
                log.warning("a report cannot be read (further ones are only counted): %s", error)
            return None
        if isinstance(report, Beat | Full) and report.applied.epoch > self._epoch:
            raise HigherEpochSeen(report.applied.epoch, f"node {report.node}")
        return report


class EchoWriter:
    """Writes the echo; the reader's position tells whether the stream went back."""

    def __init__(self, store: Store, instance: str, epoch: int) -> None:
        self._store = store
        self._instance = instance
        self._epoch = epoch
        self._number = 0

    async def write(self, reader: ReportsReader) -> None:
        """One echo. StoreAway when it was not (or perhaps not) written; Stale; StoreWentBack."""
        self._number += 1
        before = reader.position
        echo = encode(Echo(self._instance, self._epoch, self._number))
        (entry_id,) = await self._store.fenced(self._epoch, [self._store.report_entry(echo)])
        if place_in_stream(entry_id.decode()) <= place_in_stream(before):
            raise StoreWentBack(f"reports was read up to {before} and now ends before it")
