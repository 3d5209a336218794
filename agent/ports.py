"""Bands of ten ports, one per shard, and how long one is left alone after use. A core.

A port that was free when chosen was taken when bound in many public reports, so a band is kept in
this table until its process is seen gone, and then rests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

WIDTH = 10
QUARANTINE = 60.0  # seconds


class Band(NamedTuple):
    """Ten ports from ``first`` on."""

    first: int

    @property
    def http(self) -> int:
        """Where the engine's HTTP server listens."""
        return self.first

    @property
    def meeting(self) -> int:
        """Where rank 0 waits for the other ranks."""
        return self.first + 1

    @property
    def ports(self) -> list[int]:
        """All ten."""
        return list(range(self.first, self.first + WIDTH))


class PortTable:
    """Which bands are whose. ``start`` spreads several agents of one machine over the range."""

    def __init__(self, first: int, last: int, start: int = 0) -> None:
        self._firsts = list(range(first, last - WIDTH + 2, WIDTH))
        self._next = start % len(self._firsts)
        self._owners: dict[int, int] = {}
        self._resting: dict[int, float] = {}

    def choose(self, owner: int, now: float, is_free: Callable[[Band], bool]) -> Band | None:
        """A band for ``owner``; None when every band is taken, resting, or not free on the machine."""
        for step in range(len(self._firsts)):
            index = (self._next + step) % len(self._firsts)
            band = Band(self._firsts[index])
            if band.first in self._owners or self._resting.get(band.first, 0.0) > now:
                continue
            if is_free(band):
                self._next = (index + 1) % len(self._firsts)
                self._owners[band.first] = owner
                return band
        return None

    def take(self, owner: int, band: Band) -> bool:
        """Notes a band that is known otherwise (an adopted engine's); False when it is another's."""
        holder = self._owners.setdefault(band.first, owner)
        return holder == owner

    def release(self, owner: int, now: float) -> None:
        """The owner's process is gone; its bands rest for a minute."""
        for first in [f for f, o in self._owners.items() if o == owner]:
            del self._owners[first]
            self._resting[first] = now + QUARANTINE
        self._resting = {first: until for first, until in self._resting.items() if until > now}
