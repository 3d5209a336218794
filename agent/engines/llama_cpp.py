"""llama.cpp's ``llama-server``: one node, CPU or whole layers on cards."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from agent.engines.launch_plan import (
    COMPLETION_PATH,
    MODELS_PATH,
    EngineCommand,
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

#: These run tools, fetch, load or write what want did not name, or hand work to other hosts.
_DANGEROUS = (
    *("--tools", "--agent", "--rpc", "--props", "--path", "--media-path", "--slot-save-path"),
    *("--mcp-servers-config", "--mcp-servers-json", "--webui-mcp-proxy", "--ui-mcp-proxy"),
    *("-mu", "--model-url", "-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-hft", "--hf-token"),
    *("-hfv", "-hfrv", "--hf-repo-v", "-hffv", "--hf-file-v", "-dr", "--docker-repo"),
    *("-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf", "-mmu", "--mmproj-url"),
    *("--models-dir", "--models-preset", "--models-max", "--models-autoload"),
    *("-lcs", "--lookup-cache-static", "-lcd", "--lookup-cache-dynamic", "--prompt-cache"),
    *("--ssl-key-file", "--ssl-cert-file", "--log-file"),
)
#: These add up rather than replace, so that putting ours last would not be enough.
_OWNED = (
    *("-m", "--model", "-a", "--alias", "--host", "--port", "--api-key", "--api-key-file"),
    *("--lora", "--lora-scaled", "--lora-init-without-apply", "--api-prefix", "--reuse-port"),
)
#: Each of llama-server's flags can also be given as a variable.
_FLAG_VARIABLES = ("LLAMA_", "HF_TOKEN")


class LlamaCppAdapter:
    """``llama-server`` or what takes its flags."""

    needs_weights = True
    metrics = MetricKeys(
        running="llamacpp:requests_processing",
        waiting="llamacpp:requests_deferred",
        cache_use="llamacpp:kv_cache_usage_ratio",
        prompt_tokens="llamacpp:prompt_tokens_total",
        generated_tokens="llamacpp:tokens_predicted_total",
    )

    def refusal(self, shard: ShardWant, node: NodeFacts) -> Refusal | None:
        """Multi-node and tensor parallel (R81), simulated cards, dangerous arguments, no command."""
        profile = shard.profile
        if shard.world_size > 1 or any(
            width is not UNSET and int(width) > 1 for width in (profile.tp, profile.pp)
        ):
            return Refusal(
                "one-node-engine",
                "llama.cpp serves from one node and splits layers, not tensors;"
                " write gpus_per_node instead of tp, pp or nodes",
            )
        if shard.cards and node.simulated:
            return Refusal("simulated-cards", "only the sim engine runs on cards that do not exist")
        if "llama.cpp" not in node.commands:
            return Refusal("engine-absent", "neither llama-server nor the xllamacpp wheel is here")
        if "," in shard.served_name:
            return Refusal(
                "bad-name", f"llama-server splits names at commas: {shard.served_name!r}"
            )
        args = arguments(shard)
        return (
            missing_cards(shard, node)
            or refused_argument(args, _DANGEROUS, "refused on every node")
            or refused_argument(args, _OWNED, "set by llmgw")
        )

    def plan(self, shard: ShardWant, node: NodeFacts, ports: Band, paths: Paths) -> LaunchPlan:
        """The process. The context of llama-server is that of all slots together."""
        command = node.commands["llama.cpp"]
        env, dropped = allowed_environment(shard, _FLAG_VARIABLES)
        flags, files = key_flags(shard, paths.file(KEY_FILE))
        context = 0 if shard.context is UNSET else shard.context * shard.slots
        owned = [
            *("-m", str(paths.weights), "--alias", shard.served_name),
            *("--host", node.address, "--port", str(ports.http)),
            *("-np", str(shard.slots), "-c", str(context)),
            *("-ngl", ("all" if shard.cards else "0")),
            "--metrics",
            *_if_known(command, "--fit", "off"),
            *_if_known(command, "--no-kv-unified"),
            *_prompt_cache(command, arguments(shard)),
            *_if_known(command, "--offline"),
            *_if_known(command, "--jinja"),
            *_no_page(command),
        ]
        if shard.cores is not UNSET:
            owned += ["-t", str(shard.cores), "-tb", str(shard.cores)]
        if len(shard.cards) > 1:
            owned += ["-sm", "layer"]
        for adapter in paths.adapters:
            owned += ["--lora", adapter]
        if paths.adapters:
            owned.append("--lora-init-without-apply")
        owned_env = card_environment(shard.cards)
        if node.package_root and command.argv[1:2] == ("-m",):
            owned_env |= {"PYTHONPATH": node.package_root, "PYTHONUNBUFFERED": "1"}
        return LaunchPlan(
            argv=(*command.argv, *arguments(shard), *owned, *flags),
            env={**env, **owned_env},
            files=files,
            probes=Probes(
                "/health",
                MODELS_PATH,
                COMPLETION_PATH,
                adapters="/lora-adapters" if paths.adapters else None,
            ),
            dropped_env=dropped,
        )


def _if_known(command: EngineCommand, *words: str) -> tuple[str, ...]:
    """The flag, unless this build's --help is known not to have it."""
    return () if command.knows(words[0]) is False else words


def _prompt_cache(command: EngineCommand, args: Sequence[str]) -> tuple[str, ...]:
    """No prompts kept beside the slots: llama-server's own 8 GiB are in nobody's books."""
    if any(word.partition("=")[0] in ("-cram", "--cache-ram") for word in args):
        return ()
    return _if_known(command, "--cache-ram", "0")


def _no_page(command: EngineCommand) -> tuple[str, ...]:
    for flag in ("--no-webui", "--no-ui"):
        if command.knows(flag):
            return (flag,)
    return ("--no-webui",) if command.flags is None else ()
