"""Rows for people: why a profile fits where, and what speaks against the other nodes (R43)."""

from __future__ import annotations

from typing import NamedTuple

from orchestrator.placement.inventory import Inventory, Need
from orchestrator.placement.place import judge


class Row(NamedTuple):
    """One node that fits (``fits``), or one node and one failed filter (its kind)."""

    node: str
    verdict: str
    needs: str
    has: str


def explain(need: Need, inventory: Inventory) -> list[Row]:
    """Nodes that fit first, then the others; every node has at least one row."""
    verdicts = judge(need, inventory)
    rows = [Row(verdict.node, "fits", "", "") for verdict in verdicts if not verdict.reasons]
    for verdict in verdicts:
        for reason in verdict.reasons:
            has = f"{reason.has} ({reason.detail})" if reason.detail else reason.has
            rows.append(Row(verdict.node, reason.kind, reason.needs, has))
    return rows
