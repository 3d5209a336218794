"""NVIDIA cards by NVML. No library, no driver, no card: an empty list, not an error."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from msgspec import UNSET, UnsetType

from orchestrator.wire.reports import Card

_MARKETING = re.compile(r"^NVIDIA\s+|\s+(PCIe|SXM\d*|HBM\d\w*|NVL)\b", re.IGNORECASE)
_HAS_SIZE = re.compile(r"\d+\s*GB", re.IGNORECASE)


def card_class(name: str, memory: int | None) -> str:
    """The class used in profiles, from the driver's name: "NVIDIA H100 80GB HBM3" -> "H100-80GB"."""
    short = _MARKETING.sub("", name).strip()
    if memory is not None and not _HAS_SIZE.search(short):
        short = f"{short} {round(memory / 2**30)}GB"
    return re.sub(r"\s+", "-", short)


class Nvml:
    """The library, opened once. ``driver`` UNSET where there is none."""

    def __init__(self) -> None:
        self._library: Any = None
        self.driver: str | UnsetType = UNSET
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception:  # absent library, absent driver, no permission: all mean no cards
            return
        self._library = pynvml
        version = pynvml.nvmlSystemGetDriverVersion()
        self.driver = version if isinstance(version, str) else version.decode()

    @property
    def present(self) -> bool:
        """Whether there are cards to ask for."""
        return self._library is not None

    def cards(self, our_pids: Collection[int]) -> list[Card]:
        """Every card; memory of processes is split into ours and strangers'."""
        if self._library is None:
            return []
        try:
            count = self._library.nvmlDeviceGetCount()
        except self._library.NVMLError:
            return []
        return [card for i in range(count) if (card := self._card(i, our_pids)) is not None]

    def _card(self, index: int, our_pids: Collection[int]) -> Card | None:
        nvml = self._library
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = _text(nvml.nvmlDeviceGetUUID(handle))
            name = _text(nvml.nvmlDeviceGetName(handle))
        except nvml.NVMLError:
            return None  # a card that cannot name itself is absent; want naming it is refused
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError as error:
            return Card(uuid=uuid, type=card_class(name, None), healthy=False, problem=str(error))
        ours, foreign, foreign_pids = self._use(handle, our_pids)
        return Card(
            uuid=uuid,
            type=card_class(name, int(memory.total)),
            memory=int(memory.total),
            free=int(memory.free),
            ours=ours,
            foreign=foreign,
            foreign_pids=foreign_pids,
        )

    def _use(
        self, handle: Any, our_pids: Collection[int]
    ) -> tuple[int | UnsetType, int | UnsetType, list[int]]:
        """(ours, foreign, pids of strangers); unset where the driver does not say."""
        nvml = self._library
        try:
            processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except nvml.NVMLError:
            return UNSET, UNSET, []
        known = all(p.usedGpuMemory is not None for p in processes)
        foreign_pids = sorted(int(p.pid) for p in processes if p.pid not in our_pids)
        if not known:
            return UNSET, UNSET, foreign_pids
        ours = sum(int(p.usedGpuMemory) for p in processes if p.pid in our_pids)
        foreign = sum(int(p.usedGpuMemory) for p in processes if p.pid not in our_pids)
        return ours, foreign, foreign_pids


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()
