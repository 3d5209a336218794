"""What the cluster has, less what records book: the immutable view that placement decides on.

Unknown is None and passes a filter, except for labels (R36, R37). Bytes everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.wire.profile import Profile


@dataclass(frozen=True, slots=True)
class CardView:
    """One card. ``held_by`` is the replica that books it; ``resting`` why it stays out for now."""

    uuid: str
    type: str
    total: int | None = None
    foreign: int | None = None
    foreign_pids: tuple[int, ...] = ()
    healthy: bool = True
    held_by: str | None = None
    resting: str = ""


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node. ``state`` is its word (only ``ready`` is a candidate, R46). ``cores`` and ``memory``
    are totals, ``*_booked`` what records reserve; ``disk`` is the free room of the roomiest file
    system, ``disk_booked`` what fetches on their way still need. ``holds`` are complete sources."""

    name: str
    state: str = "ready"
    obeying: bool = True
    drained: bool = False
    simulated: bool = False
    cards: tuple[CardView, ...] = ()
    cores: int | None = None
    cores_booked: int = 0
    memory: int | None = None
    memory_booked: int = 0
    disk: int | None = None
    disk_booked: int = 0
    labels: Mapping[str, str] | None = None
    fabric: str | None = None
    engines: frozenset[str] = frozenset()
    holds: frozenset[str] = frozenset()
    shards: int = 0


@dataclass(frozen=True, slots=True)
class Booking:
    """What one shard reserves on a node. ``disk`` only while its weights are not there."""

    replica: str
    node: str
    cards: tuple[str, ...] = ()
    cores: int = 0
    memory: int = 0
    disk: int = 0


class Inventory:
    """All nodes by name, in order of name."""

    __slots__ = ("nodes",)

    def __init__(self, nodes: Iterable[NodeView]) -> None:
        self.nodes: Mapping[str, NodeView] = {
            node.name: node for node in sorted(nodes, key=lambda node: node.name)
        }

    def less(self, bookings: Sequence[Booking]) -> Inventory:
        """The inventory with these taken besides; nodes that it does not know are passed by."""
        by_node: dict[str, list[Booking]] = {}
        for booking in bookings:
            by_node.setdefault(booking.node, []).append(booking)
        return Inventory(
            _booked(node, by_node[node.name]) if node.name in by_node else node
            for node in self.nodes.values()
        )


def _booked(node: NodeView, bookings: Sequence[Booking]) -> NodeView:
    holders = {uuid: booking.replica for booking in bookings for uuid in booking.cards}
    return replace(
        node,
        cards=tuple(
            replace(card, held_by=holders[card.uuid]) if card.uuid in holders else card
            for card in node.cards
        ),
        cores_booked=node.cores_booked + sum(booking.cores for booking in bookings),
        memory_booked=node.memory_booked + sum(booking.memory for booking in bookings),
        disk_booked=node.disk_booked + sum(booking.disk for booking in bookings),
        shards=node.shards + len(bookings),
    )


@dataclass(frozen=True, slots=True)
class Need:
    """What one copy needs. ``avoid`` maps a node to why this model keeps away from it for now."""

    model: str
    profile: Profile
    avoid: Mapping[str, str]
