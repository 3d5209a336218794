"""Cards that do not exist: enough of them to place simulated replicas on."""

from __future__ import annotations

import hashlib

from agent.config import SimulatedCards
from orchestrator.wire.reports import Card


def simulated_cards(cards: SimulatedCards, node_id: str) -> list[Card]:
    """The same UUIDs at each start of the same node, and never those of another node."""
    memory = int(cards.memory_gb * 10**9)
    return [
        Card(
            uuid=f"SIM-{hashlib.sha256(f'{node_id}/{index}'.encode()).hexdigest()[:16]}",
            type=cards.type,
            memory=memory,
            free=memory,
            ours=0,
            foreign=0,
        )
        for index in range(cards.gpus)
    ]
