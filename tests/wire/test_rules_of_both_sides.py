"""Fingerprint, cache name, forbidden environment, replica ids, durations, names, key names."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from orchestrator.wire.cache_name import cache_name, is_cache_name
from orchestrator.wire.durations import seconds_of
from orchestrator.wire.errors import BadDuration, NameClash
from orchestrator.wire.forbidden_env import forbidden, is_forbidden
from orchestrator.wire.keys import Keys
from orchestrator.wire.names import build_names
from orchestrator.wire.profile import Adapter, Profile, fingerprint, is_stale
from orchestrator.wire.replica_id import next_generation, replica_id
from orchestrator.wire.snapshots import AdapterEntry, ModelEntry


def test_the_fingerprint_counts_what_the_engine_sees():
    base = Profile(engine="sim", tp=8, nodes=2)
    mark = fingerprint(base, 4096, [])
    assert mark == fingerprint(Profile(engine="sim", tp=8, nodes=2, disk_gb=3), 4096, [])
    assert mark == fingerprint(
        Profile(engine="sim", tp=8, nodes=2, node_selector={"ram": "32g"}), 4096, []
    )
    assert mark != fingerprint(Profile(engine="sim", tp=4, nodes=2), 4096, [])
    assert mark != fingerprint(base, 8192, [])
    assert mark != fingerprint(base, UNSET, [])
    assert mark != fingerprint(base, 4096, [Adapter("a", "file:/a.gguf")])


def test_the_order_of_keys_and_adapters_is_nothing():
    one = msgspec.yaml.decode("{engine: sim, env: {A: '1', B: '2'}}", type=Profile)
    two = msgspec.yaml.decode("{env: {B: '2', A: '1'}, engine: sim}", type=Profile)
    a, b = Adapter("a", "file:/a"), Adapter("b", "file:/b")
    assert fingerprint(one, 1, [a, b]) == fingerprint(two, 1, [b, a])


def test_an_unknown_fingerprint_is_not_stale():
    now = fingerprint(Profile(engine="sim"), UNSET, [])
    assert is_stale(now, now) is False
    assert is_stale("1:0", now) is True
    assert is_stale("", now) is None
    assert is_stale("2:0", now) is None


def test_cards_per_node_follow_from_the_width():
    assert Profile(engine="llama.cpp").cards_per_node == 0
    assert Profile(engine="vllm", gpu="H100", tp=8, nodes=2).cards_per_node == 4
    assert Profile(engine="vllm", gpu="H100", tp=4, pp=2).cards_per_node == 8
    assert Profile(engine="llama.cpp", gpu="A10", gpus_per_node=2).cards_per_node == 2


@pytest.mark.parametrize(
    "name",
    ["LD_PRELOAD", "ld_library_path", "PATH", "PYTHONSTARTUP", "PYTHONPATH", "BASH_ENV", "A=B", ""],
)
def test_variables_that_change_what_runs_are_forbidden(name):
    assert is_forbidden(name)


def test_other_variables_pass():
    names = ["VLLM_LOGGING_LEVEL", "OMP_NUM_THREADS", "HF_HUB_OFFLINE", "LDX"]
    assert forbidden([*names, "LD_AUDIT"]) == ["LD_AUDIT"]


def test_a_cache_name_is_ours_and_only_ours():
    assert is_cache_name(cache_name("hf:org/repo@1"))
    assert cache_name("hf:org/repo@1") != cache_name("hf:org/repo@2")
    for other in (
        "llama-70b",
        "w-",
        "w-" + "g" * 40,
        cache_name("a") + "/..",
        "../" + cache_name("a"),
    ):
        assert not is_cache_name(other)


@given(st.integers(1, 2**63), st.integers(1, 2**63))
def test_replica_ids_are_as_unique_as_generations(one, two):
    assert (replica_id(one) == replica_id(two)) == (one == two)


@given(st.integers(0, 2**50), st.integers(0, 2**50))
def test_generations_only_grow(last, now_ms):
    assert next_generation(last, now_ms) > last
    assert next_generation(last, now_ms) >= now_ms


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90s", 90), ("15m", 900), ("1h", 3600), ("500ms", 0.5), ("1.5m", 90), (30, 30), ("30", 30)],
)
def test_durations(written, seconds):
    assert seconds_of(written) == pytest.approx(seconds)


@pytest.mark.parametrize("written", ["", "m", "-5s", "5d", "1h30m", -1, True, "1 week"])
def test_a_bad_duration_says_what_to_write(written):
    with pytest.raises(BadDuration, match="90s, 15m or 1h"):
        seconds_of(written)


def test_names_aliases_and_adapters_share_one_space():
    models = [
        ModelEntry("m", aliases=["a"], adapters=[AdapterEntry("legal")]),
        ModelEntry("n"),
    ]
    names = build_names(models)
    assert names["a"].model.name == "m"
    assert names["legal"] == (models[0], "legal")
    with pytest.raises(NameClash, match=r"'a'.*model 'm'.*model 'a'"):
        build_names([*models, ModelEntry("a")])


def test_every_key_of_a_cluster_lies_in_one_slot():
    keys = Keys("acme")
    made = [keys.leader, keys.doc("models"), keys.want("n1"), keys.snapshot("catalog"), keys.feed]
    assert all(key.startswith("llmgw:{acme}:") for key in made)
    assert len(set(made)) == len(made)
