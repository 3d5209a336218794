"""The engines of the present snapshot: places with their numbers, pools with their connections.

A place lives as long as a snapshot names its endpoint with its generation, and after that until the last
request that was booked on it has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ext.prefix import seed
from orchestrator.wire.feed import Load
from router.admit import Gate
from router.bookings import Place
from router.circuit import Circuit
from router.loads import reports_of
from router.relay import head_prefix
from router.snapshot import State
from router.upstream import EnginePool

PlaceKey = tuple[str, int]


class Engine:
    """One place with its connections; heads of requests are built once per path."""

    __slots__ = ("_heads", "place", "pool")

    def __init__(self, place: Place, loop: asyncio.AbstractEventLoop) -> None:
        self.place = place
        self.pool = EnginePool(place.endpoint.url, loop)
        self._heads: dict[str, bytes] = {}

    def head(self, path: str) -> bytes:
        """What every request to ``path`` begins with."""
        prefix = self._heads.get(path)
        if prefix is None:
            prefix = head_prefix(path, self.pool.authority, self.place.endpoint.engine_key)
            self._heads[path] = prefix
        return prefix


class Engines:
    """Places and gates, kept in step with the state."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._by_place: dict[Place, Engine] = {}
        self._by_key: dict[PlaceKey, Engine] = {}
        self.gates: dict[str, Gate] = {}
        #: (endpoint, what is wrong) of those that cannot be used, as last seen.
        self.refused: dict[str, str] = {}

    def apply(self, state: State) -> None:
        """Take over a new state; afterwards whoever waits is served by what it brought."""
        now = self._loop.time()
        self.refused = {}
        wanted: dict[PlaceKey, Engine] = {}
        for endpoint in state.endpoints.values():
            key = (endpoint.id, endpoint.generation)
            engine = self._by_key.get(key)
            if engine is not None and engine.place.endpoint.url == endpoint.url:
                engine.place.update(endpoint)
                engine.place.out = False
            else:
                place = Place(endpoint, Circuit(), seed(endpoint.id.encode()))
                try:
                    engine = Engine(place, self._loop)
                except ValueError as error:
                    self.refused[endpoint.id] = str(error)
                    continue
                self._by_place[place] = engine
            wanted[key] = engine
        for key, engine in self._by_key.items():
            if wanted.get(key) is not engine:
                engine.place.retired = True
        self._by_key = wanted
        self._drop_retired()
        gates: dict[str, Gate] = {}
        for name, served in state.models.items():
            gate = gates[name] = self.gates.get(name) or Gate(served)
            keys = [(endpoint.id, endpoint.generation) for endpoint in served.endpoints]
            gate.update(served, [wanted[key].place for key in keys if key in wanted])
        removed = [gate for name, gate in self.gates.items() if name not in gates]
        self.gates = gates
        for gate in removed:
            gate.close("removed")
        for gate in gates.values():
            gate.sweep(now)

    def of(self, place: Place) -> Engine:
        """The engine of a place that is booked."""
        return self._by_place[place]

    def place(self, key: PlaceKey) -> Place | None:
        """The place of the present snapshot."""
        engine = self._by_key.get(key)
        return None if engine is None else engine.place

    def places(self) -> Iterator[Place]:
        """All of them, also those that only run out."""
        return iter(self._by_place)

    def hear(self, load: Load) -> None:
        """An agent's load entry."""
        for key, report in reports_of(load, self._loop.time()):
            engine = self._by_key.get(key)
            if engine is not None:
                engine.place.report = report

    def sweep(self, now: float) -> None:
        """Ends waits and idle connections that are over."""
        for gate in self.gates.values():
            if gate.waiting:
                gate.sweep(now)
        for engine in self._by_place.values():
            engine.pool.sweep()
        self._drop_retired()

    def close(self) -> None:
        """Break every connection."""
        for engine in self._by_place.values():
            engine.pool.close(busy=True)

    def _drop_retired(self) -> None:
        for place, engine in tuple(self._by_place.items()):
            if place.retired:
                engine.pool.close()
                if place.in_flight == 0:
                    del self._by_place[place]
