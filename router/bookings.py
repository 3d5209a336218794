"""What this worker has running at each endpoint, counted at the choice and given back exactly once.

A ``Place`` is one generation of one endpoint. A restarted or re-added endpoint is another place, so the
late end of an old request never touches the new one's numbers; and since a booking gives back what it
took and nothing else, no number can fall below zero.
"""

from __future__ import annotations

import math

from msgspec import UNSET

from orchestrator.wire.snapshots import Endpoint
from router.circuit import Circuit
from router.loads import LoadReport

#: In flight per slot: a little above it, so that an engine never idles between two requests.
OVERBOOKING = 1.25
#: Taken for an endpoint that does not say how many slots it has: bounds sockets, holds nobody up.
ASSUMED_SLOTS = 256
#: The estimate of a prompt may be this much above a window before it counts as too large (R145).
WINDOW_TOLERANCE = 1.1
#: Prefill tokens per second where nothing is known yet.
ASSUMED_RATE = 2000.0


class Place:
    """One generation of one endpoint as this worker sees it."""

    __slots__ = (
        "cap",
        "circuit",
        "endpoint",
        "in_flight",
        "last_used",
        "out",
        "rate",
        "report",
        "retired",
        "seed",
        "size_limit",
        "unanswered",
        "uncached",
    )

    def __init__(self, endpoint: Endpoint, circuit: Circuit, seed: int) -> None:
        self.circuit = circuit
        #: Of the rendezvous hash.
        self.seed = seed
        self.update(endpoint)
        #: Requests booked and not ended.
        self.in_flight = 0
        #: Of these, the ones without a first byte, and their uncached prompt tokens.
        self.unanswered = 0
        self.uncached = 0
        self.report: LoadReport | None = None
        #: Another engine answers at this address: nothing goes there until the next snapshot.
        self.out = False
        #: No snapshot has it any more; what runs goes on.
        self.retired = False
        #: Loop time of the last booking; None: never.
        self.last_used: float | None = None

    def update(self, endpoint: Endpoint) -> None:
        """The same generation as a newer snapshot has it."""
        self.endpoint = endpoint
        slots = ASSUMED_SLOTS if endpoint.slots is UNSET else endpoint.slots
        self.cap = max(1, int(slots * OVERBOOKING))
        #: A prompt whose low estimate is above this is too large for it.
        self.size_limit = math.inf
        if endpoint.context is not UNSET:
            self.size_limit = endpoint.context * WINDOW_TOLERANCE
        self.rate = ASSUMED_RATE
        if endpoint.prefill_rate is not UNSET and endpoint.prefill_rate > 0:
            self.rate = endpoint.prefill_rate

    @property
    def key(self) -> tuple[str, int]:
        """(endpoint id, generation)."""
        return self.endpoint.id, self.endpoint.generation

    def book(self, uncached: int, seconds: float, now: float) -> Booking:
        """Count a request in; ``seconds`` until its first token are predicted."""
        self.in_flight += 1
        self.unanswered += 1
        self.uncached += uncached
        self.last_used = now
        return Booking(self, uncached, seconds)


class Booking:
    """One request's share of a place. ``release`` may be called on every way out; it counts once."""

    __slots__ = ("_answered", "_released", "place", "seconds", "uncached")

    def __init__(self, place: Place, uncached: int, seconds: float) -> None:
        self.place = place
        self.uncached = uncached
        self.seconds = seconds
        self._answered = False
        self._released = False

    def answered(self) -> None:
        """The prompt is worked off: its tokens are no work ahead any more."""
        if not self._answered:
            self._answered = True
            self.place.unanswered -= 1
            self.place.uncached -= self.uncached

    def release(self) -> bool:
        """Give the place back; whether this call was the one that did it."""
        if self._released:
            return False
        self._released = True
        self.answered()
        self.place.in_flight -= 1
        return True
