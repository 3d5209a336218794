"""What a worker tells the orchestrator of itself: built from its numbers, nothing remembered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import UNSET

from orchestrator.wire.presence import Demand, Down, Held, Presence, Totals, Version
from router.admit import Gate
from router.bookings import Place
from router.circuit import CircuitState

#: An endpoint counts as used this long after its last booking.
USED_FOR_S = 30.0


class WorkerFacts(NamedTuple):
    """Who the worker is."""

    id: str
    host: str
    version: str


def empty_presence(worker: WorkerFacts) -> Presence:
    """The first one: written with no versions before the snapshots are read."""
    return Presence(worker.id, worker.host, {}, False, [], [], {}, [], {}, worker.version)


def build_presence(
    worker: WorkerFacts,
    versions: Mapping[str, Version],
    places: Iterable[Place],
    gates: Mapping[str, Gate],
    totals: Mapping[str, Totals],
    now: float,
    *,
    draining: bool,
) -> Presence:
    """The present one; ``now`` is loop time."""
    held: list[Held] = []
    used: list[str] = []
    down: list[Down] = []
    in_flight: dict[str, int] = {}
    for place in places:
        endpoint = place.endpoint
        if place.in_flight:
            held.append(Held(endpoint.id, endpoint.generation, place.in_flight, place.uncached))
            in_flight[endpoint.model] = in_flight.get(endpoint.model, 0) + place.in_flight
        if place.last_used is not None and (place.in_flight or now - place.last_used < USED_FOR_S):
            used.append(endpoint.id)
        circuit = place.circuit
        if circuit.state is not CircuitState.CLOSED and not place.retired:
            # Whole seconds: a blob that changes only by its ages need not be written.
            since = float(int(now - circuit.since))
            down.append(Down(endpoint.id, endpoint.generation, since, circuit.error))
    demand: dict[str, Demand] = {}
    for name, gate in gates.items():
        if gate.begun == 0:
            continue
        oldest = gate.oldest_wait(now)
        demand[name] = Demand(
            in_flight=in_flight.get(name, 0),
            waiting=len(gate.waiting),
            waiting_tokens=gate.waiting_tokens(),
            oldest_wait=UNSET if oldest is None else float(int(oldest)),
            wanted=gate.held(),
            begun=gate.begun,
        )
    return Presence(
        worker=worker.id,
        host=worker.host,
        versions=dict(versions),
        draining=draining,
        held=held,
        used=used,
        demand=demand,
        down=down,
        totals=dict(totals),
        version=worker.version,
    )
