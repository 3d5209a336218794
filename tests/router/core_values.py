"""Small values that the tests of the cores share."""

from __future__ import annotations

from orchestrator.wire.snapshots import (
    AccessSnapshot,
    CatalogSnapshot,
    Endpoint,
    EndpointsSnapshot,
    ModelEntry,
)
from router.admit import Gate, Want
from router.bookings import Place
from router.choose import RequestFacts
from router.circuit import Circuit
from router.snapshot import Snapshots, build_state


def endpoint(name="e", *, generation=1, model="m", slots=4, **members):
    return Endpoint(
        name, generation, model, "http://127.0.0.1:1", "sim", model, slots=slots, **members
    )


def place(name="e", *, seed=1, **members):
    return Place(endpoint(name, **members), Circuit(), seed)


def state(models, endpoints=(), absences=(), keys=None, *, keys_required=False):
    return build_state(
        Snapshots(
            CatalogSnapshot(1, 1, list(models)),
            EndpointsSnapshot(1, 2, list(endpoints), list(absences)),
            AccessSnapshot(1, 3, keys or {}, {}),
        ),
        keys_required=keys_required,
    )


class Waiter:
    """A request at a gate; ``got`` is what it was resumed with."""

    def __init__(self, *, tokens=100, low=50, adapter=None, arrived=0.0, block=0):
        self.got = None
        self.want = Want(RequestFacts(tokens, block), low, adapter, arrived, self._resume)

    def _resume(self, outcome):
        assert self.got is None
        self.got = outcome


def gate(*places, absence=None, model="m"):
    absences = [] if absence is None else [absence]
    served = state([ModelEntry(model)], [p.endpoint for p in places], absences).models[model]
    built = Gate(served)
    built.update(served, list(places))
    return built
