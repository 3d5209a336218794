"""The router workers as the store shows them, and whether that picture can be trusted.

While the set of routers is unknown no drain may end by "nothing held": a router that we cannot see
may hold requests. It is known when no read has failed for 15 s, and 15 s after a take-over at the
earliest, because a worker that was cut off as well needs that long to expire or to show itself.
"""

from __future__ import annotations

from typing import NamedTuple

from orchestrator.wire.presence import Presence


class RoutersSeen(NamedTuple):
    """One look: the live workers' presences, and whether these are all there are."""

    workers: tuple[Presence, ...]
    known: bool

    @property
    def highest_epoch(self) -> int:
        """The highest epoch that one of the workers has applied a snapshot of."""
        return max(
            (version.epoch for worker in self.workers for version in worker.versions.values()),
            default=0,
        )


class KnownRouters:
    """Applies the rule; times are the process's monotonic seconds."""

    def __init__(self, taken_over: float, known_after: float) -> None:
        self._clear_since = taken_over
        self._known_after = known_after

    def read_failed(self, now: float) -> None:
        """A read of Redis did not succeed."""
        self._clear_since = now

    def seen(self, workers: list[Presence], unreadable: int, now: float) -> RoutersSeen:
        """A read succeeded; ``unreadable`` live workers have shown nothing that we can read."""
        known = unreadable == 0 and now - self._clear_since >= self._known_after
        return RoutersSeen(tuple(workers), known)
