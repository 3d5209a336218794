"""Which endpoint: the one with the fewest seconds until this request's first token.

    work(e)    = uncached tokens booked and not yet answered
               + what the engine says waits beyond our own bookings, x this prompt, fading with age
    seconds(e) = (work(e) + uncached) / rate(e)
               + 0.15 s x k / (1 - k),  k = min(0.97, max(cache use, in flight / cap))

Unknown is neither full nor idle: a missing or faded report leaves the bookings alone to decide. Among
those within 10 % (or 2 ms) of the least, the two with the fewest in flight are told apart by a
rendezvous hash of the prompt's first block, so that equal endpoints share unrelated prompts evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ext.prefix import mix
from router.bookings import Place

CROWDING_S = 0.15
FULLEST = 0.97
NEAR_SHARE = 1.1
NEAR_S = 0.002


class RequestFacts(NamedTuple):
    """What the choice needs of a request: prompt tokens (the middle estimate), digest of the first block."""

    tokens: int
    first_block: int


class Decision(NamedTuple):
    """The chosen place, the tokens it has to work off for this request, and the seconds predicted."""

    place: Place
    uncached: int
    seconds: float


def choose(facts: RequestFacts, candidates: Sequence[Place], now: float) -> Decision:
    """The best of at least one candidate. Reads only; booking is the caller's, in the same step."""
    tokens = facts.tokens
    if len(candidates) == 1:
        place = candidates[0]
        return Decision(place, tokens, seconds_until_first(tokens, place, now))
    scored = [(seconds_until_first(tokens, place, now), place) for place in candidates]
    least = scored[0][0]
    for seconds, _ in scored:
        if seconds < least:
            least = seconds
    limit = max(least * NEAR_SHARE, least + NEAR_S)
    near = [each for each in scored if each[0] <= limit]
    if len(near) == 1:
        return Decision(near[0][1], tokens, least)
    return _by_hash(facts, near)


def seconds_until_first(tokens: int, place: Place, now: float) -> float:
    """The predicted wait of a prompt of ``tokens`` uncached tokens at this place."""
    work = place.uncached + tokens
    filled = place.in_flight / place.cap
    report = place.report
    if report is not None and (weight := report.weight(now)):
        if report.waiting is not None and report.waiting > place.unanswered:
            work += int((report.waiting - place.unanswered) * tokens * weight)
        if report.running is not None:
            filled = max(filled, report.running / place.cap * weight)
        if report.cache_use is not None:
            filled = max(filled, report.cache_use * weight)
    if filled > FULLEST:
        filled = FULLEST
    return work / place.rate + CROWDING_S * filled / (1.0 - filled)


def _by_hash(facts: RequestFacts, near: list[tuple[float, Place]]) -> Decision:
    if len(near) > 2:
        # The two emptiest; among equally empty ones by hash, or a third would never be looked at.
        emptiest = sorted(place.in_flight / place.cap for _, place in near)[1]
        near = [each for each in near if each[1].in_flight / each[1].cap <= emptiest]
    block = facts.first_block
    seconds, place = near[0]
    lowest = mix(block, place.seed)
    for other_seconds, other in near[1:]:
        hashed = mix(block, other.seed)
        if hashed < lowest:
            seconds, place, lowest = other_seconds, other, hashed
    return Decision(place, facts.tokens, seconds)
