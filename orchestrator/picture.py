"""What an instance can show of the cluster: a leader from its own memory, a standby from the store."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from orchestrator.access import StoredKey, read_stored_keys
from orchestrator.catalog.catalog import Catalog
from orchestrator.cluster_file import ClusterFile
from orchestrator.definitions import definitions_at_take_over, read_declared
from orchestrator.errors import CatalogRefused
from orchestrator.reconcile.events import TookOver
from orchestrator.reconcile.reconciler import Reconciler
from orchestrator.reconcile.view_rows import ClusterView
from orchestrator.store import Stored
from orchestrator.stored_records import model_states, records
from orchestrator.term import Term


class Picture(NamedTuple):
    """One moment. ``as_of_ms``: on Redis's clock; ``leading``: seen by the leader itself."""

    leading: bool
    as_of_ms: int
    view: ClusterView
    catalog: Catalog
    file: ClusterFile
    keys: dict[str, StoredKey]
    reconciler: Reconciler


class Sibling(msgspec.Struct, frozen=True):
    """One orchestrator's own line in the hash ``orchestrators``."""

    host: str
    pid: int
    version: str
    digest: str
    backup_version: int
    at_ms: int


#: A line older than this is of an orchestrator that has gone, in ms.
SIBLING_LIFE_MS = 15_000


def live_siblings(stored: Stored) -> dict[str, Sibling]:
    """The orchestrators that wrote their line lately."""
    live: dict[str, Sibling] = {}
    for instance, text in stored.orchestrators.items():
        try:
            line = msgspec.json.decode(text, type=Sibling)
        except msgspec.MsgspecError:
            continue
        if stored.now_ms - line.at_ms <= SIBLING_LIFE_MS:
            live[instance] = line
    return live


def picture_of_leader(term: Term) -> Picture:
    """What the leader knows now."""
    return Picture(
        leading=True,
        as_of_ms=term.now_ms(),
        view=term.reconciler.view(term.now()),
        catalog=term.catalog,
        file=term.definitions.file,
        keys=term.stored_keys,
        reconciler=term.reconciler,
    )


def picture_of_standby(stored: Stored, file: ClusterFile) -> Picture:
    """What the store says: records, models, keys; nodes by their Hello alone.

    The declared models are those that the leader has put in force, whatever the own file says.
    """
    declared = read_declared(stored.documents["declared"])
    in_force = file if declared is None else file._replace(models=declared.models)
    try:
        catalog = definitions_at_take_over(in_force, "", stored.documents).catalog()
    except CatalogRefused:
        in_force = file
        catalog = definitions_at_take_over(file, "", {}).catalog()
    reconciler = Reconciler(lambda: "", lambda: 0.0)
    # Its actions are the leader's business: this reconciler is only looked at.
    reconciler.handle(
        TookOver(
            epoch=max(stored.epoch, 1),
            clock_ms=stored.now_ms,
            catalog=catalog,
            records=records(stored.replicas),
            model_states=model_states(stored.models),
            known_nodes=list(stored.hellos.values()),
            drained_nodes=frozenset(stored.documents["nodes"]),
        ),
        0.0,
    )
    return Picture(
        leading=False,
        as_of_ms=stored.now_ms,
        view=reconciler.view(0.0),
        catalog=catalog,
        file=in_force,
        keys=read_stored_keys(stored.documents["keys"]),
        reconciler=reconciler,
    )
