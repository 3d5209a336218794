"""The transition tables of a replica: (state, cause) -> row. What is not here raises and changes nothing.

``pending`` is not a state but "below wanted"; ``gone`` is the deleted record. A row that keeps the
state changes goals or the reason. "charged" counts for the model's back-off and the node.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from orchestrator.errors import IllegalTransition
from orchestrator.reconcile.records import ReplicaState

Cause = Literal[
    "prepared",  # every shard is prepared and the digests agree
    "workers_up",  # every rank but 0 is up
    "ready",  # rank 0 ready, the others up
    "failed",  # a shard ended, hangs, is stuck, was refused, computes on the CPU, lost a card
    "excused",  # a shard failed for what is not its fault: card or address not free
    "stalled",  # no progress, or the hard limit
    "absent",  # a Full that knows the shard does not list it
    "not_obeying",  # the node has not applied its want for 60 s
    "cards_taken",  # an engine unknown to the records was found on its cards
    "node_lost",
    "rank_lost",  # one node Lost, another heard
    "all_lost",
    "not_serving",  # node Unreachable, and every router that used it says down
    "returned",
    "rank_gone",
    "rank_missing",
    "forgotten",
    "surplus",
    "idle",
    "off",
    "removed",
    "shadowed",  # its name now belongs to a model of another origin
    "node_drain",
    "operator",
    "edited",
    "wanted",  # wanted again
    "drained",
    "limit",
    "gone",
]


class Row(NamedTuple):
    """``failed``: shown as failed while it stops."""

    to: ReplicaState | Literal["gone"]
    charged: bool = False
    failed: bool = False


_FAILURE = Row("stopping", charged=True, failed=True)
_STOP = Row("stopping")

TABLE: dict[tuple[ReplicaState, Cause], Row] = {
    ("preparing", "prepared"): Row("starting"),
    ("preparing", "failed"): _FAILURE,
    ("preparing", "stalled"): _FAILURE,
    ("preparing", "excused"): Row("stopping", failed=True),
    ("preparing", "absent"): Row("stopping", failed=True),
    ("preparing", "not_obeying"): Row("stopping", failed=True),
    ("preparing", "cards_taken"): _STOP,
    ("preparing", "node_lost"): _STOP,
    ("preparing", "surplus"): _STOP,
    ("preparing", "off"): _STOP,
    ("preparing", "removed"): _STOP,
    ("preparing", "shadowed"): _STOP,
    ("preparing", "node_drain"): _STOP,
    ("preparing", "operator"): _STOP,
    ("preparing", "edited"): _STOP,
    ("starting", "workers_up"): Row("starting"),
    ("starting", "ready"): Row("ready"),
    ("starting", "failed"): _FAILURE,
    ("starting", "stalled"): _FAILURE,
    ("starting", "excused"): Row("stopping", failed=True),
    ("starting", "absent"): Row("stopping", failed=True),
    ("starting", "node_lost"): _STOP,
    ("starting", "surplus"): _STOP,
    ("starting", "off"): _STOP,
    ("starting", "removed"): _STOP,
    ("starting", "shadowed"): _STOP,
    ("starting", "node_drain"): _STOP,
    ("starting", "operator"): _STOP,
    ("ready", "failed"): _FAILURE,
    ("ready", "absent"): _FAILURE,
    ("ready", "excused"): Row("stopping", failed=True),
    ("ready", "not_serving"): Row("stopping", failed=True),
    ("ready", "rank_lost"): Row("stopping", failed=True),
    ("ready", "all_lost"): Row("lost"),
    ("ready", "surplus"): Row("draining"),
    ("ready", "idle"): Row("draining"),
    ("ready", "off"): Row("draining"),
    ("ready", "removed"): Row("draining"),
    ("ready", "shadowed"): Row("draining"),
    ("ready", "node_drain"): Row("draining"),
    ("ready", "operator"): Row("draining"),
    ("draining", "drained"): _STOP,
    ("draining", "limit"): _STOP,
    ("draining", "failed"): _STOP,
    ("draining", "excused"): _STOP,
    ("draining", "absent"): _STOP,
    ("draining", "node_lost"): _STOP,
    ("draining", "wanted"): Row("ready"),
    ("draining", "off"): Row("draining"),
    ("draining", "removed"): Row("draining"),
    ("draining", "shadowed"): Row("draining"),
    ("draining", "node_drain"): Row("draining"),
    ("draining", "operator"): Row("draining"),
    ("stopping", "gone"): Row("gone"),
    ("lost", "returned"): Row("ready"),
    ("lost", "rank_gone"): Row("stopping", failed=True),
    ("lost", "rank_missing"): Row("stopping", failed=True),
    ("lost", "off"): _STOP,
    ("lost", "removed"): _STOP,
    ("lost", "shadowed"): _STOP,
    ("lost", "forgotten"): Row("gone"),
}

#: Draining for one of these can be taken back as long as no stop was written.
WAY_BACK: frozenset[str] = frozenset({"surplus", "idle"})
#: States of a copy that counts for what is wanted.
LIVE: tuple[ReplicaState, ...] = ("preparing", "starting", "ready")


def row_for(subject: str, state: ReplicaState, cause: Cause) -> Row:
    """The row, or IllegalTransition."""
    row = TABLE.get((state, cause))
    if row is None:
        raise IllegalTransition(subject, state, cause)
    return row
