"""What engines say of themselves, and how long it is believed.

A report loses weight with its age, from the engine's scrape on; one that is too old says nothing.
Unknown numbers stay unknown: neither full nor idle.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import UNSET

from orchestrator.wire.feed import Load

#: A report of this age weighs nothing; a fresh one weighs 1.
FADED_AFTER_S = 5.0


class LoadReport(NamedTuple):
    """One replica at ``taken`` (loop time); None is unknown."""

    taken: float
    running: int | None
    waiting: int | None
    cache_use: float | None

    def weight(self, now: float) -> float:
        """From 1 (fresh) to 0 (says nothing any more)."""
        age = now - self.taken
        if age >= FADED_AFTER_S:
            return 0.0
        return 1.0 - max(age, 0.0) / FADED_AFTER_S


def reports_of(load: Load, now: float) -> Iterator[tuple[tuple[str, int], LoadReport]]:
    """((replica id, generation), report) of each replica in an agent's entry."""
    for replica in load.replicas:
        yield (
            (replica.id, replica.generation),
            LoadReport(
                now - max(replica.age, 0.0),
                None if replica.running is UNSET else replica.running,
                None if replica.waiting is UNSET else replica.waiting,
                None if replica.cache_use is UNSET else replica.cache_use,
            ),
        )
