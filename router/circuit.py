"""When an endpoint rests. Only what the endpoint itself did wrong counts, never a 4xx, never our own lack.

State and event to new state; what is not in the table changes nothing:

===========  ==================  =========================================
CLOSED       connect refused     OPEN
CLOSED       failure             OPEN at 5 in a row, or half of 20 in 30 s
OPEN         its time is over    HALF_OPEN (one request tries)
HALF_OPEN    success             CLOSED
HALF_OPEN    failure             OPEN, twice as long (5 s to 60 s)
HALF_OPEN    trial without word  OPEN, tried again at once
OPEN         success             CLOSED
===========  ==================  =========================================
"""

from __future__ import annotations

import enum
from collections import deque

FAILURES_IN_A_ROW = 5
WINDOW_REQUESTS = 20
WINDOW_S = 30.0
FIRST_REST_S = 5.0
LONGEST_REST_S = 60.0


class CircuitState(enum.Enum):
    """Whether requests go there."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half open"


class Circuit:
    """The circuit of one endpoint. Times are the loop's monotonic seconds."""

    __slots__ = ("_failures", "_recent", "_rest", "error", "since", "state", "until")

    def __init__(self) -> None:
        self.state = CircuitState.CLOSED
        #: While not CLOSED: when it opened, until when it rests, and the last error's name.
        self.since = 0.0
        self.until = 0.0
        self.error = ""
        self._failures = 0
        self._rest = FIRST_REST_S
        self._recent: deque[tuple[float, bool]] = deque(maxlen=WINDOW_REQUESTS)

    def lets_through(self, now: float) -> bool:
        """Whether a request may be sent: closed, or rested and nobody is trying."""
        if self.state is CircuitState.CLOSED:
            return True
        return self.state is CircuitState.OPEN and now >= self.until

    def sent(self, now: float) -> None:
        """A request was booked: on a rested circuit it is the one that tries."""
        if self.state is CircuitState.OPEN and now >= self.until:
            self.state = CircuitState.HALF_OPEN

    def succeeded(self, now: float) -> None:
        """An answer came (any status that is not the engine's own failure)."""
        self._failures = 0
        if self.state is CircuitState.CLOSED:
            self._recent.append((now, True))
            return
        # Also from OPEN: a request sent before it opened, or as the least bad, proves that it serves.
        self.state = CircuitState.CLOSED
        self._rest = FIRST_REST_S
        self._recent.clear()

    def failed(self, now: float, error: str, *, at_once: bool = False) -> None:
        """The endpoint failed; ``at_once``: it could not be reached, which needs no second proof."""
        self._failures += 1
        self.error = error
        if self.state is CircuitState.HALF_OPEN:
            self._rest = min(self._rest * 2, LONGEST_REST_S)
            self._open(now, first=False)
        elif self.state is CircuitState.CLOSED:
            self._recent.append((now, False))
            if at_once or self._failures >= FAILURES_IN_A_ROW or self._half_failed(now):
                self._open(now, first=True)

    def undecided(self) -> None:
        """The request ended without a word about the endpoint (its client left)."""
        if self.state is CircuitState.HALF_OPEN:
            self.state = CircuitState.OPEN

    def _open(self, now: float, *, first: bool) -> None:
        self.state = CircuitState.OPEN
        self.until = now + self._rest
        if first:
            self.since = now

    def _half_failed(self, now: float) -> bool:
        if len(self._recent) < WINDOW_REQUESTS or now - self._recent[0][0] > WINDOW_S:
            return False
        return sum(not good for _, good in self._recent) * 2 >= WINDOW_REQUESTS
