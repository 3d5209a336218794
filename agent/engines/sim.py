"""The simulated engine: a process of ours that behaves like an engine and computes nothing."""

from __future__ import annotations

from msgspec import UNSET

from agent.engines.launch_plan import (
    COMPLETION_PATH,
    MODELS_PATH,
    LaunchPlan,
    MetricKeys,
    NodeFacts,
    Paths,
    Probes,
)
from agent.engines.profile_rules import (
    KEY_FILE,
    allowed_environment,
    arguments,
    card_environment,
    key_flags,
    missing_cards,
    refused_argument,
)
from agent.ports import Band
from agent.want_state import Refusal
from orchestrator.wire.want import ShardWant

#: These add up rather than replace, so that putting ours last would not be enough.
_OWNED = ("--served-model-name", "--api-key", "--api-key-file")


class SimAdapter:
    """``python -m agent.sim_engine``. The metric names are vLLM's."""

    needs_weights = False
    metrics = MetricKeys(
        running="vllm:num_requests_running",
        waiting="vllm:num_requests_waiting",
        cache_use="vllm:kv_cache_usage_perc",
        prompt_tokens="vllm:prompt_tokens_total",
        generated_tokens="vllm:generation_tokens_total",
    )

    def refusal(self, shard: ShardWant, node: NodeFacts) -> Refusal | None:
        """Cards that are not here; no fabric for several ranks; names or keys in the arguments."""
        if shard.world_size > 1 and node.fabric is None:
            return Refusal("no-fabric", "several nodes need a fabric; agent.yaml names none")
        if "," in shard.served_name:
            return Refusal("bad-name", f"the engine splits names at commas: {shard.served_name!r}")
        return missing_cards(shard, node) or refused_argument(
            arguments(shard), _OWNED, "set by llmgw"
        )

    def plan(self, shard: ShardWant, node: NodeFacts, ports: Band, paths: Paths) -> LaunchPlan:
        """The process of one rank. Ranks above 0 serve no HTTP."""
        env, dropped = allowed_environment(shard)
        flags, files = key_flags(shard, paths.file(KEY_FILE))
        owned = [
            *("--host", node.address, "--port", str(ports.http)),
            *("--served-model-name", shard.served_name, "--slots", str(shard.slots)),
        ]
        if shard.profile.prefill_rate is not UNSET:
            owned += ["--prefill-rate", f"{shard.profile.prefill_rate:g}"]
        if shard.context is not UNSET:
            owned += ["--max-model-len", str(shard.context)]
        if shard.world_size > 1:
            owned += [
                *("--world-size", str(shard.world_size), "--rank", str(shard.rank)),
                *("--master", str(shard.head_address)),
            ]
        owned_env = {**card_environment(shard.cards), "PYTHONUNBUFFERED": "1"}
        if node.package_root:
            owned_env["PYTHONPATH"] = node.package_root
        return LaunchPlan(
            argv=(*node.commands["sim"].argv, *arguments(shard), *owned, *flags),
            env={**env, **owned_env},
            files=files,
            probes=Probes("/health", MODELS_PATH, COMPLETION_PATH) if shard.rank == 0 else None,
            dropped_env=dropped,
        )
