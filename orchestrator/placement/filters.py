"""May one rank of this profile run on this node: every filter that says no, with its numbers."""

from __future__ import annotations

from msgspec import UNSET

from orchestrator.placement.inventory import CardView, Need, NodeView
from orchestrator.placement.reasons import GB, Reason, gigabytes
from orchestrator.wire.profile import Profile

#: Of a card's memory where the profile does not say.
CARD_SHARE = 0.9


def reasons_against(node: NodeView, need: Need) -> list[Reason]:
    """Empty when the node can take one rank."""
    profile = need.profile
    found = [
        _state(node),
        _avoided(node, need),
        _engine(node, profile),
        _memory(node, profile),
        _cores(node, profile),
        _disk(node, profile),
        *_selector(node, profile),
        _cards(node, profile),
    ]
    if profile.world_size > 1 and node.fabric is None:
        found.append(Reason("fabric", "a fabric, to span nodes", "none"))
    return [reason for reason in found if reason is not None]


def _state(node: NodeView) -> Reason | None:
    if node.state != "ready":
        return Reason("state", "a ready node", node.state)
    if not node.obeying:
        return Reason(
            "not_obeying", "a node that obeys", "an agent that has not applied its orders"
        )
    if node.drained:
        return Reason("drained", "a node that is not drained", "the drain flag")
    return None


def _avoided(node: NodeView, need: Need) -> Reason | None:
    why = need.avoid.get(node.name)
    return None if why is None else Reason("avoided", "a node without recent failures", why)


def _engine(node: NodeView, profile: Profile) -> Reason | None:
    if profile.engine in node.engines:
        return None
    return Reason("engine", profile.engine, ", ".join(sorted(node.engines)) or "none")


def _memory(node: NodeView, profile: Profile) -> Reason | None:
    if profile.min_memory_gb is UNSET or node.memory is None:
        return None
    needs = profile.min_memory_gb * GB
    free = node.memory - node.memory_booked
    if free >= needs:
        return None
    detail = f"{gigabytes(node.memory_booked)} of {gigabytes(node.memory)} reserved"
    return Reason(
        "memory", gigabytes(needs), gigabytes(max(0, free)), detail if node.memory_booked else ""
    )


def _cores(node: NodeView, profile: Profile) -> Reason | None:
    if profile.cpu_cores is UNSET or node.cores is None:
        return None
    free = node.cores - node.cores_booked
    if free >= profile.cpu_cores:
        return None
    detail = f"{node.cores_booked} of {node.cores} reserved" if node.cores_booked else ""
    return Reason("cores", str(profile.cpu_cores), str(max(0, free)), detail)


def _disk(node: NodeView, profile: Profile) -> Reason | None:
    """A node that holds the weights needs no room for them (R39)."""
    if profile.disk_gb is UNSET or node.disk is None or holds(node, profile):
        return None
    needs = profile.disk_gb * GB
    free = node.disk - node.disk_booked
    if free >= needs:
        return None
    return Reason("disk", gigabytes(needs), gigabytes(max(0, free)))


def _selector(node: NodeView, profile: Profile) -> list[Reason | None]:
    """An absent selector constrains nothing (R191); unknown labels do not pass (R37)."""
    if profile.node_selector is UNSET:
        return []
    found: list[Reason | None] = []
    for key, value in sorted(profile.node_selector.items()):
        if node.labels is None:
            found.append(Reason("selector", f"{key}: {value}", "labels unknown"))
        elif node.labels.get(key) != value:
            has = f"{key}: {node.labels[key]}" if key in node.labels else f"no label {key}"
            found.append(Reason("selector", f"{key}: {value}", has))
    return found


def _cards(node: NodeView, profile: Profile) -> Reason | None:
    count = profile.cards_per_node
    if not count:
        return None
    if (profile.engine == "sim") != node.simulated:
        if node.simulated:
            return Reason("simulated", "real cards", "simulated ones, for the sim engine only")
        return Reason("simulated", "simulated cards", "real ones" if node.cards else "no cards")
    free = free_cards(node, profile)
    if len(free) >= count:
        return None
    needs = f"{count} x {profile.gpu}"
    of_type = [card for card in node.cards if card.type == profile.gpu]
    if not of_type:
        types = sorted({card.type for card in node.cards})
        return Reason("cards", needs, ", ".join(types) or "no cards")
    why_not = [word for card in of_type if (word := _not_free(card, profile)) is not None]
    return Reason("cards", needs, f"{len(free)} free of {len(of_type)}", "; ".join(why_not[:4]))


def free_cards(node: NodeView, profile: Profile) -> list[CardView]:
    """Cards of the wanted class that the profile may have, in the node's order."""
    return [
        card for card in node.cards if card.type == profile.gpu and _not_free(card, profile) is None
    ]


def _not_free(card: CardView, profile: Profile) -> str | None:
    if card.held_by is not None:
        return f"{card.uuid}: held by replica {card.held_by}"
    if not card.healthy:
        return f"{card.uuid}: not healthy"
    if card.resting:
        return f"{card.uuid}: {card.resting}"
    if card.total is None or card.foreign is None:
        return None
    needs = (
        CARD_SHARE * card.total if profile.gpu_memory_gb is UNSET else profile.gpu_memory_gb * GB
    )
    free = card.total - card.foreign
    if free >= needs:
        return None
    words = f"{card.uuid}: {gigabytes(free)} free, needs {gigabytes(needs)}"
    if card.foreign:
        pids = ", ".join(str(pid) for pid in card.foreign_pids)
        words += (
            f", {gigabytes(card.foreign)} held" + (f" by pid {pids}" if pids else "") + " outside"
        )
    return words


def holds(node: NodeView, profile: Profile) -> bool:
    """Whether the node has the whole weights. Never asked equals has nothing (R41)."""
    return profile.source is not UNSET and profile.source in node.holds
