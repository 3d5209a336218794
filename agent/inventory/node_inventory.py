"""Everything that a node has, gathered for a report."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping

from msgspec import UNSET

from agent.config import AgentConfig
from agent.engines.launch_plan import EngineCommand
from agent.inventory.cards_nvml import Nvml
from agent.inventory.cards_simulated import simulated_cards
from agent.inventory.cpu_memory import cpu_count, memory
from agent.inventory.disks import disks
from agent.inventory.engines_found import as_reported
from orchestrator.wire.reports import Card, Inventory


class NodeInventory:
    """What stays is asked once; memory, disks and cards each time."""

    def __init__(
        self,
        config: AgentConfig,
        node_id: str,
        address: str,
        commands: Mapping[str, EngineCommand],
    ) -> None:
        self._config = config
        self._node_id = node_id
        self._address = address
        self._commands = commands
        self._nvml = None if config.simulated is not None else Nvml()

    def cards(self, our_pids: Callable[[], Collection[int]] = frozenset) -> list[Card]:
        """The node's cards. A node with simulated ones shows no real ones."""
        if self._config.simulated is not None:
            return simulated_cards(self._config.simulated, self._node_id)
        if self._nvml is None or not self._nvml.present:
            return []
        return self._nvml.cards(our_pids())

    def gather(self, our_pids: Callable[[], Collection[int]] = frozenset) -> Inventory:
        """The inventory now. ``our_pids`` is asked only where there are cards to share."""
        total, available = memory()
        config = self._config
        folders = [*config.weights, *([] if config.cache is None else [config.cache])]
        return Inventory(
            address=self._address,
            cpus=cpu_count(),
            memory=UNSET if total is None else total,
            memory_available=UNSET if available is None else available,
            disks=disks(folders),
            cards=self.cards(our_pids),
            engines=as_reported(self._commands),
            labels=dict(config.labels),
            fabric=UNSET if config.fabric is None else config.fabric,
            simulated=config.simulated is not None,
            kernel=os.uname().release,
            driver=UNSET if self._nvml is None else self._nvml.driver,
        )
