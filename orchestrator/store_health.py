"""Whether Redis answers: one log line per change, however many calls fail in between.

Reading and writing are told apart, because a full or read-only Redis goes on answering reads; it is
well only when both are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

log = logging.getLogger("llmgw.orchestrator")

Use = Literal["read", "write"]


class StoreHealth:
    """Fed by whoever talks to the store; read by status, metrics and the admin API."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._problems: dict[Use, str] = {}
        #: When it became well, or ill, on the process's monotonic clock.
        self.since = clock()

    @property
    def problem(self) -> str | None:
        """Why the store is away, or None."""
        return next(iter(self._problems.values()), None)

    def ok(self, use: Use) -> None:
        """The store answered."""
        if self._problems.pop(use, None) is not None and not self._problems:
            log.warning("Redis answers again after %.1f s", self._clock() - self.since)
            self.since = self._clock()

    def away(self, use: Use, problem: str) -> None:
        """The store did not answer, or refused."""
        if not self._problems:
            log.warning("Redis is away: %s; nothing is stopped, trying again", problem)
            self.since = self._clock()
        self._problems[use] = problem


class BackOff:
    """Waits that double from ``first`` to ``last`` until `reset`."""

    def __init__(self, first: float, last: float) -> None:
        self._first = first
        self._last = last
        self._next = first

    def wait(self) -> float:
        """Seconds to wait before the next try."""
        wait, self._next = self._next, min(self._next * 2, self._last)
        return wait

    def reset(self) -> None:
        """The last try went well."""
        self._next = self._first
