"""The catalog as a whole: two sources, names, fallbacks, what is refused and what is skipped."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import UNSET

from orchestrator.catalog.build import build, with_added, with_removed
from orchestrator.errors import CatalogRefused
from orchestrator.wire.want import MetricNames

SIM = {"engine": "sim"}


def model(name: str, **more):
    return {"name": name, "profiles": [SIM], **more}


def row(definition, created: int = 5) -> str:
    return msgspec.json.encode({"definition": definition, "created": created}).decode()


def refused(place: str, reason: str, *declared, **more) -> CatalogRefused:
    with pytest.raises(CatalogRefused) as caught:
        build(list(declared), {}, **more)
    assert caught.value.place == place
    assert reason in caught.value.reason
    return caught.value


def test_declared_and_stored_models_are_one_catalog():
    catalog = build([model("a")], {"b": row(model("b"))})
    assert [(one.name, one.origin, one.created) for one in catalog.models.values()] == [
        ("a", "declared", 0),
        ("b", "stored", 5),
    ]
    assert [entry.name for entry in catalog.entries()] == ["a", "b"]


def test_a_catalog_does_not_change():
    """R4."""
    catalog = build([model("a")], {})
    with pytest.raises(TypeError):
        catalog.models["b"] = catalog.models["a"]  # type: ignore[index]


def test_an_entry_has_what_routers_need_and_no_key_that_was_not_written():
    """R18-R21."""
    full = model(
        "a",
        description="General chat.",
        aliases=["x"],
        context_length=4096,
        capabilities=["tools"],
        owner="acme/search",
        limits={"rpm": 6},
        timeouts={"first_byte": "10s", "idle": 5},
        adapters=[{"name": "ad", "source": "mirror:ad@1"}],
        max_output_tokens=100,
        stream_keepalive="off",
    )
    (entry,) = build([full], {}).entries()
    assert entry.description == "General chat."
    assert (entry.aliases, entry.context_length, entry.capabilities) == (["x"], 4096, ["tools"])
    assert (entry.timeouts.first_byte, entry.timeouts.idle, entry.timeouts.total) == (10, 5, 3600)
    assert entry.limits.rpm == 6
    assert [adapter.name for adapter in entry.adapters] == ["ad"]
    (bare,) = build([model("a", description="  ")], {}).entries()
    assert bare.description is UNSET
    assert "description" not in msgspec.to_builtins(bare)


@pytest.mark.parametrize(
    ("scaling", "written", "klass"),
    [
        ({"min": 1}, None, "standard"),
        ({"min": 0, "max": 2}, None, "opportunistic"),
        (None, None, "opportunistic"),
        ({"min": 1}, "critical", "critical"),
    ],
)
def test_an_unset_class_follows_scaling(scaling, written, klass):
    """R101."""
    more = {} if scaling is None else {"scaling": scaling}
    if written:
        more["class"] = written
    assert build([model("a", **more)], {}).models["a"].klass == klass


def test_overrides_fill_what_a_definition_leaves_open():
    catalog = build(
        [model("a"), model("b", **{"class": "standard", "owner": "x"})],
        {},
        {"a": {"class": "critical", "owner": "acme"}, "b": {"class": "critical", "owner": "acme"}},
    )
    assert (catalog.models["a"].klass, catalog.models["a"].owner) == ("critical", "acme")
    assert (catalog.models["b"].klass, catalog.models["b"].owner) == ("standard", "x")


@pytest.mark.parametrize(
    ("profiles", "simulated"),
    [([SIM], True), ([SIM, {"engine": "llama.cpp", "source": "file:/m"}], False)],
)
def test_simulated_is_derived_and_needs_every_profile(profiles, simulated):
    """R29."""
    assert build([{"name": "a", "profiles": profiles}], {}).entries()[0].simulated is simulated


def test_simulated_cannot_be_configured():
    refused("models[0].simulated", "does not know", model("a", simulated=False))


@pytest.mark.parametrize(
    ("first", "second", "place"),
    [
        (model("a"), model("a"), "models[1].name"),
        (model("a"), model("b", aliases=["c", "a"]), "models[1].aliases[1]"),
        (model("a", aliases=["x"]), model("x"), "models[1].name"),
        (
            model("a"),
            model("b", adapters=[{"name": "a", "source": "mirror:l@1"}]),
            "models[1].adapters[0].name",
        ),
    ],
)
def test_models_aliases_and_adapters_share_one_name_space(first, second, place):
    """R15."""
    refused(place, "already taken by models[0]", first, second)


def test_a_model_may_not_take_one_name_twice():
    refused("models[0].aliases[0]", "already taken", model("a", aliases=["a"]))


@pytest.mark.parametrize("name", ["", "-a", "a-", "a b", "ö", "a//b", "/a", "a" * 129])
def test_names_that_are_none(name):
    refused("models[0].name", "", model(name))


@pytest.mark.parametrize("name", ["a", "Qwen/Qwen3-8B", "llama3.1:8b", "a_b", "A" * 128])
def test_names_of_the_ecosystem(name):
    assert build([model(name)], {}).target(name) == name


def test_a_name_resolves_to_its_model():
    catalog = build(
        [model("a", aliases=["x"], adapters=[{"name": "l", "source": "mirror:l@1"}])], {}
    )
    assert [catalog.target(name) for name in ("a", "x", "l", "nothing")] == ["a", "a", "a", None]
    assert catalog.names["l"].adapter == "l"


def test_fallbacks_are_resolved_through_aliases():
    """R2."""
    catalog = build([model("a", fallbacks=["x"]), model("b", aliases=["x"])], {})
    assert catalog.entries()[0].fallbacks == ["b"]


@pytest.mark.parametrize("fallback", ["nothing", "l"])
def test_a_fallback_to_nothing_is_refused(fallback):
    refused(
        "models[0].fallbacks[0]",
        repr(fallback),
        model("a", fallbacks=[fallback], adapters=[{"name": "l", "source": "mirror:l@1"}]),
    )


def test_a_circle_of_fallbacks_is_refused():
    refused("models[0].fallbacks", "a -> a", model("a", fallbacks=["a"]))
    refused(
        "models[1].fallbacks",
        "b -> c -> b",
        model("a", fallbacks=["b"]),
        model("b", fallbacks=["c"]),
        model("c", fallbacks=["b"]),
    )


def test_a_diamond_is_no_circle():
    build(
        [
            model("a", fallbacks=["b", "c"]),
            model("b", fallbacks=["d"]),
            model("c", fallbacks=["d"]),
            model("d"),
        ],
        {},
    )


# -- stored rows


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "cannot be read"),
        (row({"name": "b", "profiles": [{"engine": "nope"}]}), "no engine 'nope'"),
        (row(model("c")), "the row of 'b' names 'c'"),
        (row(model("b", aliases=["a"])), "already taken by models[0].name"),
        (row(model("b", fallbacks=["gone"])), "no model or alias is called 'gone'"),
        (
            msgspec.json.encode({"definition": model("b"), "schema": 99}).decode(),
            "schema 99 is newer",
        ),
    ],
)
def test_a_bad_row_is_skipped_and_named(text, reason):
    """R12."""
    catalog = build([model("a")], {"b": text, "z": row(model("z"))})
    assert set(catalog.models) == {"a", "z"}
    assert reason in catalog.skipped["b"].reason


def test_rows_that_lean_on_a_skipped_one_are_skipped_too():
    rows = {"b": row(model("b", fallbacks=["c"])), "c": row(model("c", fallbacks=["gone"]))}
    catalog = build([], rows)
    assert set(catalog.skipped) == {"b", "c"}


def test_a_circle_in_rows_skips_one_of_them():
    rows = {name: row(model(name, fallbacks=[other])) for name, other in ("bc", "cb")}
    catalog = build([model("a")], rows)
    assert "a" in catalog.models
    assert len(catalog.skipped) >= 1


def test_the_file_stands_alone():
    """A declared model's fallback to a stored one would fall with that row."""
    with pytest.raises(CatalogRefused):
        build([model("a", fallbacks=["b"])], {"b": row(model("b"))})


def test_a_row_of_a_newer_version_keeps_its_unknown_keys():
    catalog = build([], {"b": row(model("b", newer=1))})
    assert "b" in catalog.models
    assert any("newer" in warning for warning in catalog.warnings)


def test_a_declared_model_takes_the_name_of_a_stored_one():
    """R8."""
    catalog = build([model("b")], {"b": row(model("b"))})
    assert catalog.models["b"].origin == "declared"
    assert "b" in catalog.skipped


# -- adding and removing


def test_an_addition_is_a_row_and_the_catalog_with_it():
    """R10, R13."""
    added = with_added(
        [model("a")],
        {},
        model("b", fallbacks=["a"]) | {"profiles": [SIM | {"min_memory_gb": 1}]},
        77,
    )
    assert added.catalog.models["b"].created == 77
    again = build([model("a")], {added.name: added.row})
    assert again.entries() == added.catalog.entries()


def test_an_addition_is_strict():
    with pytest.raises(CatalogRefused) as caught:
        with_added([], {}, model("b"), 1)
    assert caught.value.place == "model.profiles[0].min_memory_gb"
    with pytest.raises(CatalogRefused, match=r"model\.newer"):
        with_added([], {}, model("b", newer=1), 1)


@pytest.mark.parametrize("name", ["a", "x"])
def test_an_addition_that_collides_is_refused_with_the_place_to_edit(name):
    """R8."""
    memory = {"profiles": [SIM | {"min_memory_gb": 1}]}
    with pytest.raises(CatalogRefused, match=r"models\[0\]"):
        with_added([model("a", aliases=["x"])], {}, model(name) | memory, 1)


def test_replace_must_be_said():
    memory = {"profiles": [SIM | {"min_memory_gb": 1}]}
    stored = {"b": row(model("b"))}
    with pytest.raises(CatalogRefused, match="--replace"):
        with_added([], stored, model("b") | memory, 1)
    assert (
        with_added([], stored, model("b") | memory, 9, replace=True).catalog.models["b"].created
        == 9
    )


def test_a_replacement_that_breaks_another_row_is_refused():
    memory = {"profiles": [SIM | {"min_memory_gb": 1}]}
    stored = {"b": row(model("b", aliases=["x"])), "c": row(model("c", fallbacks=["x"]))}
    with pytest.raises(CatalogRefused, match="'c' would no longer be accepted"):
        with_added([], stored, model("b") | memory, 1, replace=True)


def test_removal():
    """R9, R11."""
    stored = {"b": row(model("b")), "c": row(model("c", fallbacks=["b"]))}
    assert set(with_removed([model("a")], stored, "c").models) == {"a", "b"}
    with pytest.raises(CatalogRefused, match="'c' would no longer be accepted"):
        with_removed([model("a")], stored, "b")
    with pytest.raises(CatalogRefused, match="declared in the configuration"):
        with_removed([model("a")], stored, "a")
    with pytest.raises(CatalogRefused, match="no stored model"):
        with_removed([model("a")], stored, "nothing")


def test_a_skipped_row_can_be_removed():
    assert with_removed([], {"b": "{"}, "b").skipped == {}


# -- metric names


def test_metric_names_pass_through():
    """R82-R84."""
    catalog = build([], {}, engine_metrics={"llama.cpp": {"running": "r"}, "vllm": {}})
    assert catalog.metrics == {"llama.cpp": MetricNames(running="r"), "vllm": MetricNames()}


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ({"nope": {}}, "engine_metrics.nope"),
        ({"vllm": {"runing": "x"}}, "engine_metrics.vllm.runing"),
        ({"vllm": {"running": 3}}, "engine_metrics.vllm"),
    ],
)
def test_bad_metric_names(written, place):
    refused(place, "", engine_metrics=written)
