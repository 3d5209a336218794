"""``place``: filters, then rank, then cards. All ranks or none (R30-R46)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import UNSET

from orchestrator.placement.filters import free_cards, holds, reasons_against
from orchestrator.placement.inventory import Booking, Inventory, Need, NodeView
from orchestrator.placement.reasons import GB, Reason
from orchestrator.wire.profile import Profile


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the ranks go, in rank order; ``fabric`` of a replica that spans nodes."""

    bookings: tuple[Booking, ...]
    fabric: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """One node: fits when there are no reasons."""

    node: str
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Rejections:
    """No placement, and why: one verdict per node."""

    verdicts: tuple[Verdict, ...]

    def summary(self) -> str:
        """One line: the commonest reasons, the best node of each in brackets."""
        if not self.verdicts:
            return "no node fits: there is no node"
        by_kind: dict[str, list[tuple[str, Reason]]] = {}
        for verdict in self.verdicts:
            for reason in verdict.reasons[:1]:
                by_kind.setdefault(reason.kind, []).append((verdict.node, reason))
        parts = []
        for found in sorted(by_kind.values(), key=len, reverse=True)[:3]:
            node, reason = found[0]
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            parts.append(f"{reason.text()} ({node}{more})")
        return "no node fits: " + "; ".join(parts)


def place(need: Need, inventory: Inventory, replica: str = "") -> Placement | Rejections:
    """Where one copy runs. ``replica`` names it in the bookings."""
    profile = need.profile
    verdicts = judge(need, inventory)
    fitting = [inventory.nodes[verdict.node] for verdict in verdicts if not verdict.reasons]
    if not fitting:
        return Rejections(verdicts)
    if profile.world_size == 1:
        best = min(fitting, key=lambda node: _rank(node, profile))
        return Placement((_booking(best, profile, replica),))
    nodes = _nodes_of_one_fabric(fitting, profile)
    if nodes is None:
        return Rejections(verdicts)
    return Placement(
        tuple(_booking(node, profile, replica) for node in nodes), fabric=nodes[0].fabric
    )


def judge(need: Need, inventory: Inventory) -> tuple[Verdict, ...]:
    """Every node with what speaks against it. For a replica that spans nodes a node that would fit
    but has too few like it in its fabric is told so (R32)."""
    verdicts = [
        Verdict(node.name, tuple(reasons_against(node, need))) for node in inventory.nodes.values()
    ]
    width = need.profile.world_size
    if width == 1:
        return tuple(verdicts)
    count: dict[str | None, int] = {}
    for verdict in verdicts:
        if not verdict.reasons:
            fabric = inventory.nodes[verdict.node].fabric
            count[fabric] = count.get(fabric, 0) + 1
    return tuple(
        verdict
        if verdict.reasons or count[inventory.nodes[verdict.node].fabric] >= width
        else Verdict(
            verdict.node,
            (
                Reason(
                    "fabric",
                    f"{width} fitting nodes in one fabric",
                    f"{count[inventory.nodes[verdict.node].fabric]} in "
                    f"{inventory.nodes[verdict.node].fabric}",
                ),
            ),
        )
        for verdict in verdicts
    )


def _rank(node: NodeView, profile: Profile) -> tuple[bool, int, str]:
    """Lower is better: holds the weights (R40); on cards the fullest node, on the CPU the emptiest
    (R42); then by name, so that a run can be repeated."""
    spare = len(free_cards(node, profile)) if profile.cards_per_node else node.shards
    return (not holds(node, profile), spare, node.name)


def _nodes_of_one_fabric(fitting: Sequence[NodeView], profile: Profile) -> list[NodeView] | None:
    width = profile.world_size
    by_fabric: dict[str, list[NodeView]] = {}
    for node in fitting:
        if node.fabric is not None:
            by_fabric.setdefault(node.fabric, []).append(node)
    best: tuple[tuple[int, int, str], list[NodeView]] | None = None
    for fabric, nodes in by_fabric.items():
        if len(nodes) < width:
            continue
        chosen = sorted(nodes, key=lambda node: _rank(node, profile))[:width]
        lacking = sum(not holds(node, profile) for node in chosen)
        key = (lacking, len(nodes), fabric)
        if best is None or key < best[0]:
            best = (key, chosen)
    return None if best is None else best[1]


def _booking(node: NodeView, profile: Profile, replica: str) -> Booking:
    cards = free_cards(node, profile)[: profile.cards_per_node] if profile.cards_per_node else []
    return Booking(
        replica,
        node.name,
        tuple(card.uuid for card in cards),
        cores=0 if profile.cpu_cores is UNSET else profile.cpu_cores,
        memory=0 if profile.min_memory_gb is UNSET else int(profile.min_memory_gb * GB),
        disk=0 if profile.disk_gb is UNSET or holds(node, profile) else int(profile.disk_gb * GB),
    )
