"""What routers say: who asks for a model, what an endpoint holds, whether it is down, who is idle.

Unknown is never idle: while the set of routers or a replica's own numbers are unknown, an idle clock
stands at 0 (FO20).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orchestrator.reconcile.records import Record
from orchestrator.wire.presence import Presence, Version


class RouterWatch:
    """The last presences, and what must not be missed between two of them."""

    def __init__(self) -> None:
        self.known = False
        self.presences: Mapping[str, Presence] = {}
        self._begun: dict[tuple[str, str], int] = {}

    def see(self, presences: Mapping[str, Presence], known: bool) -> set[str]:
        """Takes them in; returns the models that were used since the last ones."""
        used: set[str] = set()
        begun: dict[tuple[str, str], int] = {}
        for worker, presence in presences.items():
            for model, demand in presence.demand.items():
                begun[worker, model] = demand.begun
                if self._begun.get((worker, model), 0) != demand.begun:
                    used.add(model)
        self._begun = begun
        self.presences = presences
        self.known = known
        return used

    def asked(self, model: str) -> bool:
        """Whether some worker holds, queues or runs a request of the model."""
        for presence in self.presences.values():
            demand = presence.demand.get(model)
            if demand is not None and (demand.wanted or demand.in_flight or demand.waiting):
                return True
        return False

    def in_flight(self, model: str) -> tuple[int, int] | None:
        """(in flight, waiting) over all workers; None while their set is unknown."""
        if not self.known:
            return None
        demands = [
            presence.demand[model]
            for presence in self.presences.values()
            if model in presence.demand
        ]
        return sum(one.in_flight for one in demands), sum(one.waiting for one in demands)

    def held(self, record: Record) -> int:
        """Requests in flight at this replica."""
        return sum(
            held.requests
            for presence in self.presences.values()
            for held in presence.held
            if held.endpoint == record.id and held.generation == record.generation
        )

    def applied(self, version: Version) -> bool:
        """Whether every live worker has that endpoints snapshot or a newer one. A worker that has read
        none yet has not."""
        return all(
            presence.versions.get("endpoints", Version()) >= version
            for presence in self.presences.values()
        )

    def witnessed_down(self, record: Record) -> bool:
        """Some worker has its circuit open, and none that used the replica lately has it closed."""
        down = 0
        for presence in self.presences.values():
            says_down = any(
                one.endpoint == record.id and one.generation == record.generation
                for one in presence.down
            )
            if says_down:
                down += 1
            elif record.id in presence.used:
                return False
        return down > 0


class IdleClocks:
    """Per on-demand model, echoes without use."""

    def __init__(self) -> None:
        self._echoes: dict[str, int] = {}

    def reset(self, models: Iterable[str]) -> None:
        """Something used them."""
        for model in models:
            self._echoes[model] = 0

    def count(self, quiet: Iterable[str]) -> None:
        """One echo: those that are quiet grow by one, every other one is 0."""
        self._echoes = {model: self._echoes.get(model, 0) + 1 for model in quiet}

    def echoes(self, model: str) -> int:
        """Echoes without use."""
        return self._echoes.get(model, 0)
