"""What one definition may say: lenient for what is loaded, strict for what is defined."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from orchestrator.catalog.build import build, with_added
from orchestrator.catalog.sources import source_kind
from orchestrator.errors import CatalogRefused

PAGE = "https://huggingface.co/Qwen/Qwen3-8B"


def load(profile, **more):
    """As from cluster.yaml: (definition, warnings)."""
    catalog = build([{"name": "m", "profiles": [profile], **more}], {})
    return catalog.models["m"].definition, catalog.warnings


def define(profile, **more):
    """As by `model add`."""
    return with_added([], {}, {"name": "m", "profiles": [profile], **more}, 1)


def refusal(make, profile, **more) -> CatalogRefused:
    with pytest.raises(CatalogRefused) as caught:
        make(profile, **more)
    return caught.value


def llama(**more):
    return {"engine": "llama.cpp", "source": "file:/m.gguf", "min_memory_gb": 1, **more}


def vllm(**more):
    return {"engine": "vllm", "source": "hf:o/r", "gpu": "H100-80GB", **more}


def test_tp_on_a_llama_card_profile():
    """R24, R181."""
    definition, warnings = load(llama(gpu="A", tp=2))
    assert definition.profiles[0].gpus_per_node == 2
    assert definition.profiles[0].tp is UNSET
    assert any("models[0].profiles[0].tp" in warning for warning in warnings)
    wrong = refusal(define, llama(gpu="A", tp=2))
    assert wrong.place == "model.profiles[0].tp"
    assert wrong.remedy == "write gpus_per_node: 2"


def test_an_old_form_is_the_same_profile_as_the_new_one():
    old = build([{"name": "m", "profiles": [llama(gpu="A", tp=2)]}], {})
    new = build([{"name": "m", "profiles": [llama(gpu="A", gpus_per_node=2)]}], {})
    assert old.models["m"].fingerprints == new.models["m"].fingerprints


@pytest.mark.parametrize("make", [load, define])
@pytest.mark.parametrize(
    ("profile", "key"),
    [(llama(gpu="A", pp=2), "pp"), (llama(gpu="A", nodes=2), "nodes"), (llama(tp=2), "tp")],
)
def test_llama_is_never_wider_than_a_node(make, profile, key):
    assert refusal(make, profile).place.endswith(f"profiles[0].{key}")


def test_a_repository_page():
    """R23, R182."""
    definition, warnings = load(vllm(source=PAGE))
    assert definition.profiles[0].source == "hf:Qwen/Qwen3-8B"
    assert warnings
    wrong = refusal(define, vllm(source=PAGE))
    assert wrong.place == "model.profiles[0].source"
    assert wrong.remedy == "write hf:Qwen/Qwen3-8B"
    for make in (load, define):
        assert "made for people" in refusal(make, llama(source=PAGE)).reason
        assert "made for people" in refusal(make, vllm(engine="sglang", source=PAGE)).reason


def test_a_cpu_model_says_its_memory_when_it_is_defined():
    """R26, R184."""
    bare = {"engine": "llama.cpp", "source": "file:/m.gguf"}
    load(bare)
    assert refusal(define, bare).place == "model.profiles[0].min_memory_gb"
    define({**bare, "min_memory_gb": 2})


@pytest.mark.parametrize("make", [load, define])
@pytest.mark.parametrize("name", ["LD_PRELOAD", "PATH", "PYTHONPATH", "BASH_ENV", "ld_preload"])
def test_environment_that_changes_what_runs(make, name):
    """R27."""
    assert refusal(make, llama(env={name: "x"})).place.endswith(f"profiles[0].env.{name}")


def test_other_environment_passes():
    define(llama(env={"VLLM_LOGGING_LEVEL": "WARNING"}))


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_only_engines_that_can_serve_without_a_card_may_omit_it(engine):
    """R25."""
    wrong = refusal(load, {"engine": engine, "source": "hf:o/r"})
    assert wrong.place == "models[0].profiles[0].gpu"


@pytest.mark.parametrize("key", ["tp", "pp", "nodes", "gpus_per_node", "gpu_memory_gb"])
def test_widths_need_a_card(key):
    profile = {"engine": "sim", "min_memory_gb": 1, key: 2}
    assert refusal(load, profile).place == f"models[0].profiles[0].{key}"


@pytest.mark.parametrize(
    ("profile", "cards"),
    [
        (vllm(), 1),
        (vllm(tp=4), 4),
        (vllm(tp=8, nodes=2), 4),
        (vllm(tp=4, pp=2, nodes=2), 4),
        (vllm(gpus_per_node=2), 2),
        (vllm(tp=2, pp=2, nodes=2, gpus_per_node=2), 2),
    ],
)
def test_arithmetic_that_holds(profile, cards):
    """R3."""
    definition, _ = load(profile)
    assert definition.profiles[0].cards_per_node == cards


@pytest.mark.parametrize(
    ("profile", "key"),
    [
        (vllm(tp=3, nodes=2), "nodes"),
        (vllm(tp=4, gpus_per_node=2), "tp"),
        (vllm(pp=2, gpus_per_node=3), "pp"),
        (vllm(tp=0), "tp"),
        (vllm(gpu_memory_gb=0), "gpu_memory_gb"),
        (vllm(slots=-1), "slots"),
        (vllm(multi_node="mpi"), "multi_node"),
        (vllm(engine="sglang", multi_node="mp"), "multi_node"),
        (vllm(engine="tgi"), "engine"),
        (vllm(source="somewhere"), "source"),
    ],
)
def test_arithmetic_and_words_that_do_not_hold(profile, key):
    assert refusal(load, profile).place == f"models[0].profiles[0].{key}"


def test_every_engine_but_sim_needs_a_source():
    load({"engine": "sim"})
    profile = {"engine": "llama.cpp", "min_memory_gb": 1}
    assert refusal(load, profile).place == "models[0].profiles[0].source"


@pytest.mark.parametrize(
    ("scaling", "least", "most", "on_demand"),
    [
        (None, 0, 0, False),
        ({}, 0, 0, False),
        ({"min": 2}, 2, 2, False),
        ({"min": 0, "max": 0}, 0, 0, False),
        ({"max": 1}, 0, 1, True),
        ({"min": 1, "max": 4}, 1, 4, False),
    ],
)
def test_what_scaling_means(scaling, least, most, on_demand):
    """R14, R90-R93: an absent maximum is never filled in as on demand."""
    more = {} if scaling is None else {"scaling": scaling}
    definition, _ = load({"engine": "sim"}, **more)
    assert (definition.least, definition.most, definition.on_demand) == (least, most, on_demand)
    assert (
        definition.scaling is UNSET or definition.scaling.max is UNSET or "max" in (scaling or {})
    )


@pytest.mark.parametrize(
    ("scaling", "key"),
    [
        ({"min": 1, "max": 0}, "max"),
        ({"min": 3, "max": 2}, "max"),
        ({"min": -1}, "min"),
        ({"headroom": -1}, "headroom"),
        ({"idle_timeout": "soon"}, "idle_timeout"),
    ],
)
def test_scaling_that_is_refused(scaling, key):
    for make in (load, define):
        wrong = refusal(make, {"engine": "sim", "min_memory_gb": 1}, scaling=scaling)
        assert wrong.place.endswith(f"scaling.{key}")


def test_idle_timeout():
    definition, _ = load({"engine": "sim"}, scaling={"max": 1})
    assert definition.idle_timeout == 900
    definition, _ = load({"engine": "sim"}, scaling={"max": 1, "idle_timeout": "2m"})
    assert definition.idle_timeout == 120


EXTERNAL = {"url": "https://api.example.com/v1", "model": "m", "api_key_file": "/etc/k"}


def test_an_external_model():
    """R122."""
    catalog = build([{"name": "e", "external": EXTERNAL}], {})
    (entry,) = catalog.entries()
    assert (entry.external, entry.simulated, entry.klass) == (True, False, "standard")
    assert catalog.models["e"].fingerprints == ()


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"profiles": [{"engine": "sim"}]}, "models[0].external"),
        ({"scaling": {"min": 1}}, "models[0].scaling"),
        ({"external": {**EXTERNAL, "url": "api.example.com"}}, "models[0].external.url"),
        ({"external": {**EXTERNAL, "model": ""}}, "models[0].external.model"),
        ({"external": {**EXTERNAL, "api_key_file": "k"}}, "models[0].external.api_key_file"),
        ({"external": {"url": "x"}}, "models[0].external"),
    ],
)
def test_external_models_that_are_refused(more, place):
    """R28."""
    with pytest.raises(CatalogRefused) as caught:
        build([{"name": "e", "external": EXTERNAL, **more}], {})
    assert caught.value.place == place


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"profiles": []}, "models[0].profiles"),
        ({"profiles": "sim"}, "models[0].profiles"),
        ({"profiles": [{"engine": "sim", "tp": "two"}]}, "models[0].profiles[0].tp"),
        ({"owner": "Acme Inc"}, "models[0].owner"),
        ({"owner": "a/b/c/d"}, "models[0].owner"),
        ({"class": "gold"}, "models[0].class"),
        ({"context_length": 0}, "models[0].context_length"),
        ({"limits": {"rpm": -1}}, "models[0].limits.rpm"),
        ({"limits": {"rps": 1}}, "models[0].limits.rps"),
        ({"timeouts": {"idle": "x"}}, "models[0].timeouts.idle"),
        ({"stream_keepalive": "ping"}, "models[0].stream_keepalive"),
        ({"adapters": [{"name": "l", "source": "x"}]}, "models[0].adapters[0].source"),
        ({"adapters": [{"name": "l"}]}, "models[0].adapters[0]"),
        ({"alias": ["x"]}, "models[0].alias"),
    ],
)
def test_every_refusal_names_the_place(more, place):
    with pytest.raises(CatalogRefused) as caught:
        build([{"name": "m", "profiles": [{"engine": "sim"}], **more}], {})
    assert caught.value.place == place
    assert str(caught.value).startswith(f"{place}: ")


def test_a_near_miss_is_said():
    wrong = refusal(load, {"engine": "sim"}, fallback=["x"])
    assert wrong.remedy == "did you mean fallbacks?"


def test_a_model_that_is_no_mapping():
    with pytest.raises(CatalogRefused, match=r"models\[0\]: a model is a mapping"):
        build(["m"], {})  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("hf:Qwen/Qwen3-8B", "hf"),
        ("hf:Qwen/Qwen3-8B@main", "hf"),
        ("hf:Qwen", "none"),
        ("https://x.example/m.gguf", "http"),
        ("https://huggingface.co/o/r/resolve/main/m.gguf", "http"),
        (PAGE, "page"),
        (PAGE + "/", "page"),
        (PAGE + "/tree/main", "page"),
        (PAGE + "/blob/main/m.gguf", "page"),
        (PAGE + "?x=1", "page"),
        ("mirror:qwen@3", "mirror"),
        ("mirror:qwen", "none"),
        ("file:/data/m.gguf", "file"),
        ("file:data/m.gguf", "none"),
        ("", "none"),
    ],
)
def test_sources(source, kind):
    assert source_kind(source) == kind
