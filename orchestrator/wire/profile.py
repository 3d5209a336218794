"""The engine's view of a model: one profile with the same keys as in cluster.yaml.

A key that is not set is ``UNSET``; the fingerprint counts set keys only, so a new optional key that
is left out changes nothing (R186).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

#: Number of the fingerprint's rule: a fingerprint of another number is unknown, not stale.
FINGERPRINT_RULE = 1
#: Keys that the engine does not see; changing them makes no running replica stale.
_UNSEEN = ("node_selector", "disk_gb", "min_memory_gb", "prefill_rate")

EngineKind = Literal["vllm", "sglang", "llama.cpp", "sim"]
ENGINES: tuple[EngineKind, ...] = ("vllm", "sglang", "llama.cpp", "sim")
#: Engines that can serve without a card (R25).
CPU_ENGINES: tuple[EngineKind, ...] = ("llama.cpp", "sim")


class Adapter(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """A LoRA adapter: the name clients ask for and where its file comes from."""

    name: str
    source: str


class Profile(msgspec.Struct, frozen=True, omit_defaults=True):
    """One way to run a model. Memory and disk in GB (10**9 bytes), widths in cards or nodes."""

    engine: str
    source: str | UnsetType = UNSET
    gpu: str | UnsetType = UNSET
    tp: int | UnsetType = UNSET
    pp: int | UnsetType = UNSET
    nodes: int | UnsetType = UNSET
    gpus_per_node: int | UnsetType = UNSET
    gpu_memory_gb: float | UnsetType = UNSET
    min_memory_gb: float | UnsetType = UNSET
    disk_gb: float | UnsetType = UNSET
    cpu_cores: int | UnsetType = UNSET
    slots: int | UnsetType = UNSET
    prefill_rate: float | UnsetType = UNSET
    multi_node: str | UnsetType = UNSET
    node_selector: dict[str, str] | UnsetType = UNSET
    env: dict[str, str] | UnsetType = UNSET
    args: list[str] | UnsetType = UNSET

    @property
    def world_size(self) -> int:
        """Nodes that one replica spans, one rank each."""
        return 1 if self.nodes is UNSET else int(self.nodes)

    @property
    def cards_per_node(self) -> int:
        """Cards that one rank needs: 0 on the CPU, else gpus_per_node or what tp x pp leaves per node."""
        if self.gpu is UNSET:
            return 0
        if self.gpus_per_node is not UNSET:
            return int(self.gpus_per_node)
        tp = 1 if self.tp is UNSET else int(self.tp)
        pp = 1 if self.pp is UNSET else int(self.pp)
        return max(1, tp * pp // self.world_size)


def fingerprint(
    profile: Profile, context_length: int | UnsetType, adapters: Sequence[Adapter]
) -> str:
    """What the engine sees, as ``<rule>:<32 hex digits>`` of SHA-256 over canonical JSON."""
    seen = msgspec.to_builtins(profile)
    for key in _UNSEEN:
        seen.pop(key, None)
    if context_length is not UNSET:
        seen["context_length"] = context_length
    if adapters:
        seen["adapters"] = sorted([a.name, a.source] for a in adapters)
    canonical = msgspec.json.encode(seen, order="deterministic")
    return f"{FINGERPRINT_RULE}:{hashlib.sha256(canonical).hexdigest()[:32]}"


def is_stale(placed_with: str, now: str) -> bool | None:
    """Whether a replica runs an older profile; None = unknown (empty, or of another rule; R50)."""
    if not placed_with or placed_with.partition(":")[0] != now.partition(":")[0]:
        return None
    return placed_with != now
