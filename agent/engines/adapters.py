"""Which adapter stands for which engine kind, and whose metric names are used."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET

from agent.engines.launch_plan import Adapter, MetricKeys, NodeFacts
from agent.engines.llama_cpp import LlamaCppAdapter
from agent.engines.sim import SimAdapter
from agent.want_state import Refusal
from orchestrator.wire.want import ShardWant

ADAPTERS: Mapping[str, Adapter] = {"llama.cpp": LlamaCppAdapter(), "sim": SimAdapter()}


def refusal(shard: ShardWant, node: NodeFacts) -> Refusal | None:
    """Why this node will not run the shard, or None."""
    adapter = ADAPTERS.get(shard.profile.engine)
    if adapter is None:
        known = ", ".join(ADAPTERS)
        return Refusal(
            "unknown-engine", f"this agent runs {known}; it knows no {shard.profile.engine!r}"
        )
    return adapter.refusal(shard, node)


def metric_keys(shard: ShardWant) -> MetricKeys:
    """The names to look for. A mapping that names its own running metric is complete (R84)."""
    defaults = ADAPTERS[shard.profile.engine].metrics
    given = shard.metrics
    if given is UNSET:
        return defaults
    running, waiting, cache_use = (
        None if name is UNSET or not name else str(name)
        for name in (given.running, given.waiting, given.cache_use)
    )
    if running is not None:
        return defaults._replace(running=running, waiting=waiting, cache_use=cache_use)
    return defaults._replace(
        waiting=waiting or defaults.waiting, cache_use=cache_use or defaults.cache_use
    )
