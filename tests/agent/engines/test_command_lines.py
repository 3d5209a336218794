"""Profile -> command line, for each engine, word by word; and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent.engines.adapters import ADAPTERS, refusal
from agent.engines.launch_plan import EngineCommand, NodeFacts, Paths
from agent.ports import Band
from orchestrator.wire.profile import Adapter, Profile
from orchestrator.wire.reports import Fabric
from orchestrator.wire.want import ShardWant
from tests.agent.shards import shard

SIM = EngineCommand(("py", "-m", "agent.sim_engine"))
LLAMA = EngineCommand(("/usr/bin/llama-server",))
NODE = NodeFacts(
    address="10.0.0.7",
    simulated=False,
    commands={"sim": SIM, "llama.cpp": LLAMA},
    fabric=Fabric("ib0", "10.1.0.7"),
    package_root="/opt/llmgw",
    cards=frozenset({"GPU-a", "GPU-b"}),
)
PATHS = Paths("/state/engines/7", "/data/m.gguf")


def plan(one: ShardWant, node: NodeFacts = NODE, paths: Paths = PATHS):
    assert refusal(one, node) is None
    return ADAPTERS[one.profile.engine].plan(one, node, Band(20_000), paths)


def llama(**given: Any) -> ShardWant:
    profile = Profile(engine="llama.cpp", source="file:/data/m.gguf", **given.pop("profile", {}))
    return shard(profile=profile, **given)


def test_sim_alone():
    made = plan(shard(context=4096, engine_key="sesame"))
    assert " ".join(made.argv) == (
        "py -m agent.sim_engine --host 10.0.0.7 --port 20000 --served-model-name greek --slots 4"
        " --max-model-len 4096 --api-key-file /state/engines/7/api-key"
    )
    assert made.files == {"api-key": "sesame\n"}
    assert made.env["PYTHONPATH"] == "/opt/llmgw"
    assert made.probes is not None
    assert "sesame" not in " ".join(made.argv)


def test_sim_with_the_profiles_arguments_first():
    profile = Profile(engine="sim", args=["--port", "1", "--start-delay", "3"], prefill_rate=900.0)
    made = plan(shard(profile=profile))
    assert " ".join(made.argv) == (
        "py -m agent.sim_engine --port 1 --start-delay 3 --host 10.0.0.7 --port 20000"
        " --served-model-name greek --slots 4 --prefill-rate 900"
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_sim_over_two_nodes(rank: int):
    cards = ["GPU-a", "GPU-b"]
    made = plan(shard(rank=rank, world_size=2, head_address="10.1.0.9:20001", cards=cards))
    assert made.argv[-6:] == tuple(f"--world-size 2 --rank {rank} --master 10.1.0.9:20001".split())
    assert made.env["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert (made.probes is None) == (rank > 0)


def test_llama_cpp_on_the_cpu():
    made = plan(llama(context=2048, cores=6, engine_key="sesame"))
    assert " ".join(made.argv) == (
        "/usr/bin/llama-server -m /data/m.gguf --alias greek --host 10.0.0.7 --port 20000"
        " -np 4 -c 8192 -ngl 0 --metrics --fit off --no-kv-unified --cache-ram 0 --offline --jinja --no-webui"
        " -t 6 -tb 6 --api-key-file /state/engines/7/api-key"
    )
    assert made.env == {"CUDA_VISIBLE_DEVICES": "", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_llama_cpp_on_two_cards_with_adapters():
    one = llama(
        profile={"gpu": "H100-80GB", "gpus_per_node": 2, "args": ["-fa", "on"]},
        cards=["GPU-a", "GPU-b"],
        adapters=[Adapter("x", "file:/data/x.gguf"), Adapter("y", "file:/data/y.gguf")],
    )
    made = plan(one, paths=PATHS._replace(adapters=("/data/x.gguf", "/data/y.gguf")))
    assert " ".join(made.argv) == (
        "/usr/bin/llama-server -fa on -m /data/m.gguf --alias greek --host 10.0.0.7 --port 20000"
        " -np 4 -c 0 -ngl all --metrics --fit off --no-kv-unified --cache-ram 0 --offline --jinja --no-webui"
        " -sm layer --lora /data/x.gguf --lora /data/y.gguf --lora-init-without-apply"
    )
    assert made.env["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert made.probes is not None
    assert made.probes.adapters == "/lora-adapters"


def test_flags_that_a_build_is_known_not_to_have_are_left_out():
    old = EngineCommand(("llama-server",), flags=frozenset({"--no-ui", "--jinja"}))
    made = plan(llama(), node_with(commands={"llama.cpp": old}))
    assert "--fit" not in made.argv
    assert "--offline" not in made.argv
    assert "--no-webui" not in made.argv
    assert {"--no-ui", "--jinja"} <= set(made.argv)


def node_with(**changes: Any) -> NodeFacts:
    return msgspec.structs.replace(NODE, **changes)


def test_the_shim_finds_our_packages():
    shim = EngineCommand(("py", "-m", "agent.llama_server"))
    made = plan(llama(), node_with(commands={"llama.cpp": shim}))
    assert made.env["PYTHONPATH"] == "/opt/llmgw"


def test_forbidden_variables_are_dropped_here_too_and_said():
    env = {
        "LD_PRELOAD": "/x.so",
        "Path": "/evil",
        "CUDA_VISIBLE_DEVICES": "0",
        "LLAMA_ARG_TOOLS": "all",
        "LLMGW_ENGINE": "other",
        "OMP_NUM_THREADS": "4",
    }
    made = plan(llama(profile={"env": env}))
    assert made.env["OMP_NUM_THREADS"] == "4"
    assert made.env["CUDA_VISIBLE_DEVICES"] == ""
    assert set(made.dropped_env) == set(env) - {"OMP_NUM_THREADS"}
    assert "LD_PRELOAD" not in made.env


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (shard(engine="warp"), "unknown-engine"),
        (shard(engine="vllm"), "unknown-engine"),
        (shard(cards=["GPU-z"]), "no-such-card"),
        (shard(profile=Profile(engine="sim", gpu="H100-80GB")), "no-cards"),
        (shard(profile=Profile(engine="sim", args=["--api-key=x"])), "refused-argument"),
        (shard(served_name="a,b"), "bad-name"),
        (llama(served_name="a,b"), "bad-name"),
        (llama(profile={"tp": 2}), "one-node-engine"),
        (llama(profile={"pp": 2}), "one-node-engine"),
        (llama(world_size=2, head_address="10.1.0.9:1"), "one-node-engine"),
        (llama(profile={"args": ["--tools", "all"]}), "refused-argument"),
        (llama(profile={"args": ["--rpc=evil:1"]}), "refused-argument"),
        (llama(profile={"args": ["--model_url=http://evil"]}), "refused-argument"),
        (llama(profile={"args": ["--api_key", "x"]}), "refused-argument"),
        (llama(profile={"args": ["-hfd", "a/b"]}), "refused-argument"),
        (llama(profile={"args": ["-hf", "a/b"]}), "refused-argument"),
        (llama(profile={"args": ["-m", "/etc/passwd"]}), "refused-argument"),
        (llama(profile={"args": ["a\0b"]}), "refused-argument"),
    ],
)
def test_refusals_by_name(one: ShardWant, reason: str):
    no = refusal(one, NODE)
    assert no is not None
    assert no.reason == reason


def test_a_node_without_the_engine_a_fabric_or_real_cards_refuses():
    none = node_with(commands={"sim": SIM}, fabric=None, simulated=True)
    for one, reason in (
        (llama(), "engine-absent"),
        (shard(world_size=2, goal="prepare"), "no-fabric"),
        (llama(cards=["GPU-a"]), "simulated-cards"),
    ):
        no = refusal(one, none)
        assert no is not None
        assert no.reason == reason


def test_the_text_of_a_refusal_says_what_to_write():
    no = refusal(shard(engine="warp"), NODE)
    assert no is not None
    assert no.detail == "this agent runs llama.cpp, sim; it knows no 'warp'"


def test_a_prompt_cache_of_llama_cpp_is_the_profiles_own_wish():
    made = plan(llama(profile={"args": ["--cache-ram", "512"]}))
    assert made.argv.count("--cache-ram") == 1
    assert made.argv[made.argv.index("--cache-ram") + 1] == "512"
