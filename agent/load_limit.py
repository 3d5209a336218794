"""When a load, or a running engine, has made no progress for too long. Cores: ``now`` is an argument.

Limits count from the last sign of progress, not from the start: fixed limits kill healthy slow loads
(FO13). Any change of any figure is progress; an unknown figure is no evidence either way.
"""

from __future__ import annotations

from collections.abc import Hashable


class StallClock:
    """Seconds since the last sign of progress."""

    def __init__(self, now: float) -> None:
        self.since = now
        self._seen: dict[str, Hashable] = {}

    def see(self, now: float, **figures: Hashable) -> bool:
        """Takes the present figures (None: unknown); True if one differs from the last known."""
        moved = False
        for name, value in figures.items():
            if value is None:
                continue
            if name in self._seen and self._seen[name] != value:
                moved = True
            self._seen[name] = value
        if moved:
            self.since = now
        return moved

    def reset(self, now: float) -> None:
        """Nothing is to be waited for."""
        self.since = now

    def stalled(self, now: float, limit: float) -> bool:
        """Whether the limit has passed."""
        return now - self.since >= limit


class TokenWatch:
    """Hung: requests run, and for ``limit`` seconds no token was read or written (FO10, FO33)."""

    def __init__(self, now: float, limit: float) -> None:
        self._clock = StallClock(now)
        self._limit = limit

    def see(
        self, now: float, running: int | None, prompt: int | None, generated: int | None
    ) -> bool:
        """Takes one scrape; True while the engine is hung. Unknown numbers never make it so."""
        moved = self._clock.see(now, prompt=prompt, generated=generated)
        if moved or not running or (prompt is None and generated is None):
            self._clock.reset(now)
            return False
        return self._clock.stalled(now, self._limit)
