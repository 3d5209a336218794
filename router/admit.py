"""May this request run now: an endpoint with room, a place in the queue, a hold for a load, or a reason.

One gate per model. Whoever is admitted is booked in the same step as the choice; whoever waits is
booked in the step that gives it room, so that nothing can come between. Within a gate the order is the
order of arrival. Reasons are values; their words are made in ``refusals``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple

from router.bookings import Booking, Place
from router.choose import RequestFacts, choose
from router.circuit import CircuitState
from router.resolve import serves
from router.snapshot import Served

QUEUE_LIMIT_S = 60.0
HOLD_LIMIT_S = 15.0
QUEUE_LENGTH = 1_000
#: How many at the head are looked at for a place that the first cannot use.
LOOKED_PAST = 16


class QueueFull(NamedTuple):
    """As many wait as may; ``drain`` seconds until one of these could be served."""

    waiting: int
    drain: float


class WaitedTooLong(NamedTuple):
    """The deadline passed, counted from ingress."""

    limit: float
    drain: float


class Loading(NamedTuple):
    """The hold for a load is over; ``eta`` seconds or None when unknown."""

    limit: float
    eta: float | None


class SwitchedOff(NamedTuple):
    """The model is deliberately not running."""


class NothingServes(NamedTuple):
    """No endpoint and no load under way: the snapshot's kind and words, seconds until the next try."""

    kind: str
    text: str
    next_try: float | None


class AllTried(NamedTuple):
    """Every endpoint that serves it has failed this request."""


Reason = QueueFull | WaitedTooLong | Loading | SwitchedOff | NothingServes | AllTried


class Want:
    """A request that asks for a place. ``tried``: places that failed it already."""

    __slots__ = ("adapter", "arrived", "facts", "low_tokens", "resume", "tried")

    def __init__(
        self,
        facts: RequestFacts,
        low_tokens: int,
        adapter: str | None,
        arrived: float,
        resume: Callable[[Booking | Reason], None],
    ) -> None:
        self.facts = facts
        self.low_tokens = low_tokens
        self.adapter = adapter
        self.arrived = arrived
        #: Called at most once per wait, with the booking or with the reason for none.
        self.resume = resume
        self.tried: tuple[Place, ...] = ()

    @property
    def particular(self) -> bool:
        """Whether it may be unable to use a place that others could."""
        return bool(self.tried) or self.adapter is not None


class Waits(NamedTuple):
    """The request waits; ``held``: for a load and not for room."""

    held: bool


class _Full(NamedTuple):
    """Places serve it, none has room."""


_FULL = _Full()


class Gate:
    """Admission to one model. Not to be changed from outside; ``check`` says whether it is consistent."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.places: list[Place] = []
        self.waiting: OrderedDict[Want, None] = OrderedDict()
        #: Requests that came since the worker's start.
        self.begun = 0
        #: Mean seconds a request holds its place; None: none has ended yet.
        self._mean_hold: float | None = None

    def update(self, served: Served, places: list[Place]) -> None:
        """A new snapshot's view; call ``serve_waiting`` after all gates have theirs."""
        self.served = served
        self.places = places

    def admit(self, want: Want, now: float) -> Booking | Waits | Reason:
        """The first asking of a request, or a repeated one after a failure (``tried`` is not empty)."""
        if self.waiting and not want.tried:
            return self._join(want, now)
        outcome = self._try(want, now)
        if isinstance(outcome, _Full):
            return self._join(want, now)
        if isinstance(outcome, Loading) and now - want.arrived < HOLD_LIMIT_S:
            return self._join(want, now)
        return outcome

    def leave(self, want: Want) -> None:
        """The client of a waiting request is gone. Constant time; unknown ones are no error."""
        self.waiting.pop(want, None)

    def ended(self, seconds: float) -> None:
        """A request held its place for ``seconds``: the measure for Retry-After."""
        mean = self._mean_hold
        self._mean_hold = seconds if mean is None else mean + 0.1 * (seconds - mean)

    def serve_waiting(self, now: float) -> None:
        """Book for those at the head as long as there is room. Call when a place may have come free."""
        served = True
        while served and self.waiting:
            served = False
            for want in tuple(islice(self.waiting, LOOKED_PAST)):
                outcome = self._try(want, now)
                if isinstance(outcome, Booking):
                    del self.waiting[want]
                    want.resume(outcome)
                    served = True
                elif not want.particular:
                    break

    def sweep(self, now: float) -> None:
        """Ends the waits that are over, each with its reason. Every 250 ms."""
        for want in tuple(self.waiting):
            reason = self._over(want, now)
            if reason is not None:
                del self.waiting[want]
                want.resume(reason)
        self.serve_waiting(now)

    def close(self, kind: str) -> None:
        """The model was ``removed``, or the worker is ``stopping``: whoever waits is told so."""
        while self.waiting:
            want, _ = self.waiting.popitem(last=False)
            want.resume(NothingServes(kind, "", None))

    def held(self) -> bool:
        """Whether requests wait because nothing serves the model: it is to be loaded."""
        return bool(self.waiting) and not self.places

    def waiting_tokens(self) -> int:
        """Prompt tokens of those that wait."""
        return sum(want.facts.tokens for want in self.waiting)

    def oldest_wait(self, now: float) -> float | None:
        """Seconds since the arrival of the one at the head."""
        for want in self.waiting:
            return now - want.arrived
        return None

    def drain_seconds(self, ahead: int) -> float:
        """Until ``ahead`` requests have been served, from how long requests held their places."""
        room = sum(place.cap for place in self.places if not place.out)
        if self._mean_hold is None or room == 0:
            return 1.0
        return self._mean_hold * (ahead + 1) / room

    def _join(self, want: Want, now: float) -> Waits | Reason:
        if len(self.waiting) >= QUEUE_LENGTH:
            return QueueFull(len(self.waiting), self.drain_seconds(len(self.waiting)))
        reason = self._over(want, now)
        if reason is not None:
            return reason
        self.waiting[want] = None
        if want.tried:
            # It has waited before: a repeated try goes to the head.
            self.waiting.move_to_end(want, last=False)
        return Waits(held=not self.places)

    def _over(self, want: Want, now: float) -> Reason | None:
        waited = now - want.arrived
        if any(_suits(place, want) for place in self.places):
            if waited < QUEUE_LIMIT_S:
                return None
            return WaitedTooLong(QUEUE_LIMIT_S, self.drain_seconds(len(self.waiting)))
        reason = self._why_none(want)
        if isinstance(reason, Loading) and waited < HOLD_LIMIT_S:
            return None
        return reason

    def _try(self, want: Want, now: float) -> Booking | _Full | Reason:
        particular = want.particular
        low_tokens = want.low_tokens
        resting: list[Place] = []
        roomy: list[Place] = []
        full = False
        for place in self.places:
            if place.out or low_tokens > place.size_limit:
                continue
            if particular and not _suits(place, want):
                continue
            circuit = place.circuit
            if circuit.state is not CircuitState.CLOSED and not circuit.lets_through(now):
                resting.append(place)
            elif place.in_flight < place.cap:
                roomy.append(place)
            else:
                full = True
        if not roomy:
            if full:
                return _FULL
            if not resting:
                return self._why_none(want)
            # Nothing is sure to answer: the one that rests the shortest is the least bad.
            least_bad = min(resting, key=lambda place: place.circuit.until)
            if least_bad.in_flight >= least_bad.cap:
                return _FULL
            roomy.append(least_bad)
        place, uncached, seconds = choose(want.facts, roomy, now)
        if place.circuit.state is not CircuitState.CLOSED:
            place.circuit.sent(now)
        return place.book(uncached, seconds, now)

    def _why_none(self, want: Want) -> Reason:
        if want.tried:
            return AllTried()
        return why_absent(self.served)


def why_absent(served: Served) -> Reason:
    """What the snapshot says of a model that nothing serves."""
    absence = served.absence
    if absence is None:
        return NothingServes("none", "", None)
    match absence.kind:
        case "off":
            return SwitchedOff()
        case "idle" | "loading":
            return Loading(HOLD_LIMIT_S, absence.eta if isinstance(absence.eta, float) else None)
        case kind:
            next_try = absence.next_try if isinstance(absence.next_try, float) else None
            return NothingServes(kind, absence.text, next_try)


def _suits(place: Place, want: Want) -> bool:
    if place.out or want.low_tokens > place.size_limit or place in want.tried:
        return False
    return serves(place.endpoint, want.adapter)


def check(gates: Iterable[Gate]) -> None:
    """Raises AssertionError when a number of a gate's places cannot be (tests and debugging)."""
    for gate in gates:
        for place in gate.places:
            assert 0 <= place.unanswered <= place.in_flight, place.key
            assert place.uncached >= 0, place.key
