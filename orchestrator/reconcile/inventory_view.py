"""Nodes and records -> the inventory that placement decides on."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from orchestrator.placement.inventory import Booking, CardView, Inventory, NodeView
from orchestrator.reconcile.adoption import NOTHING_THERE
from orchestrator.reconcile.cluster_state import ClusterState
from orchestrator.reconcile.nodes import Node
from orchestrator.reconcile.wants import obeys


class InventoryCache:
    """Views of nodes, made anew only where something about the node changed: a pass over a large
    cluster touches few of them."""

    def __init__(self) -> None:
        self._views: dict[str, tuple[tuple[object, ...], NodeView]] = {}
        #: Raised whenever anything in the inventory may be different.
        self.version = 0

    def of(self, state: ClusterState) -> Inventory:
        """What there is less what records, and engines that no record knows yet, hold."""
        views = {}
        if self._views.keys() != state.nodes.by_name.keys():
            self.version += 1
        for name, node in state.nodes.by_name.items():
            stamp = _stamp(state, node)
            known = self._views.get(name)
            if known is None or known[0] != stamp:
                view = Inventory([_node_view(state, node)]).less(_bookings(state, node))
                known = (stamp, view.nodes[name])
                self.version += 1
            views[name] = known
        self._views = views
        return Inventory(view for _, view in views.values())


def _stamp(state: ClusterState, node: Node) -> tuple[object, ...]:
    """Differs when a view would. Reports are numbered, and so are changes of records on the node."""
    resting = node.card_rest and tuple(
        uuid for uuid in node.card_rest if not node.usable(uuid, state.now)
    )
    return (
        node.reports,
        node.state,
        node.drained,
        obeys(state, node),
        state.node_changes.get(node.name, 0),
        resting,
    )


def _bookings(state: ClusterState, node: Node) -> list[Booking]:
    """Cards, cores and memory of every shard that has not ended, whatever its record's state; disk
    while its weights are still to come. And of engines that no record knows yet."""
    held = [
        Booking(
            record.id,
            shard.node,
            tuple(shard.cards),
            _count(shard.cores),
            _count(shard.memory),
            _count(shard.disk) if shard.seen is UNSET or shard.seen.state == "fetching" else 0,
        )
        for record in state.on_node(node.name)
        for shard in record.shards
        if shard.node == node.name and not shard.gone
    ]
    if node.state != "ready":
        return held
    return held + [
        Booking(
            replica, node.name, tuple(report.cards), _count(report.cores), _count(report.memory)
        )
        for (replica, _), report in node.shards.items()
        if replica not in state.records and report.state not in NOTHING_THERE
    ]


def _count(value: int | UnsetType) -> int:
    return 0 if value is UNSET else value


def _node_view(state: ClusterState, node: Node) -> NodeView:
    known = node.inventory
    if known is None:
        return NodeView(node.name, state=node.state)
    disks = [] if known.disks is UNSET else [disk.free for disk in known.disks]
    return NodeView(
        node.name,
        state=node.state,
        obeying=obeys(state, node),
        drained=node.drained,
        simulated=known.simulated,
        cards=tuple(
            CardView(
                card.uuid,
                card.type,
                None if card.memory is UNSET else card.memory,
                None if card.foreign is UNSET else card.foreign,
                tuple(card.foreign_pids),
                card.healthy,
                resting="" if node.usable(card.uuid, state.now) else "resting after an error",
            )
            for card in known.cards
        ),
        cores=None if known.cpus is UNSET else known.cpus,
        memory=None if known.memory is UNSET else known.memory,
        disk=max(disks, default=None),
        labels=None if known.labels is UNSET else known.labels,
        fabric=None if known.fabric is UNSET else known.fabric.name,
        engines=frozenset(engine.kind for engine in known.engines),
        holds=node.holds,
    )
