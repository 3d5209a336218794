"""What a name and a key mean, and what an engine is told."""

from __future__ import annotations

import hashlib
import json

import pytest

from ext.scan import Scanner
from orchestrator.wire.errors import NameClash
from orchestrator.wire.snapshots import Absence, AdapterEntry, External, KeyEntry, ModelEntry
from router.access import check_present, credentials, find_key, is_allowed
from router.errors import BadMember, NoValidKey, UnknownModel
from router.model_list import list_models
from router.resolve import engine_name, lookup, require, rewrite, serves
from tests.router.core_values import endpoint, state

MODELS = [
    ModelEntry("m", aliases=["a"], adapters=[AdapterEntry("ad")], context_length=1000),
    ModelEntry("sim", simulated=True, created=1_700_000_000),
]


class TestNames:
    def test_model_alias_and_adapter(self):
        built = state(MODELS, [endpoint()])
        assert lookup(built, "m") == lookup(built, "a")
        assert lookup(built, "ad").adapter == "ad"
        assert lookup(built, "ad").served is lookup(built, "m").served
        assert lookup(built, "nobody") is None

    def test_no_name(self):
        with pytest.raises(BadMember) as refused:
            lookup(state(MODELS), None)
        assert refused.value.param == "model"

    def test_two_of_one_name(self):
        with pytest.raises(NameClash):
            state([*MODELS, ModelEntry("a")])

    def test_a_long_name_is_not_sent_back_whole(self):
        with pytest.raises(UnknownModel) as refused:
            require(None, "x" * 10_000, None)
        assert len(refused.value.message) < 300


class TestEndpoints:
    def test_draining_takes_nothing_and_unconfirmed_only_alone(self):
        ready, lost = endpoint("r"), endpoint("u", state="unconfirmed")
        gone = endpoint("d", state="draining")
        served = state(MODELS, [ready, lost, gone]).models["m"]
        assert [each.id for each in served.endpoints] == ["r"]
        served = state(MODELS, [lost, gone]).models["m"]
        assert [each.id for each in served.endpoints] == ["u"]
        built = state(MODELS, [gone])
        assert built.models["m"].endpoints == ()
        assert set(built.endpoints) == {"d"}

    def test_windows(self):
        served = state(MODELS, [endpoint("x", context=500), endpoint("y")]).models["m"]
        assert (served.window, served.smallest_window) == (1000, 500)
        assert state(MODELS, [endpoint("x", context=500)]).models["m"].window == 500
        unknown = [endpoint("x", model="sim"), endpoint("y", model="sim", context=9)]
        served = state(MODELS, unknown).models["sim"]
        assert (served.window, served.smallest_window) == (None, 9)

    def test_external_ones_are_not_reached_as_engines(self):
        outside = endpoint("x", external=External("https://api", "gpt", "key"))
        assert state(MODELS, [outside]).models["m"].endpoints == ()


class TestEngineNames:
    @pytest.mark.parametrize(
        ("adapters", "expected"), [({"ad": 3}, ("m", 3)), ({"ad": "lora-ad"}, ("lora-ad", None))]
    )
    def test_adapters(self, adapters, expected):
        where = endpoint(adapters=adapters)
        assert engine_name(where, "ad") == expected
        assert engine_name(where, None) == ("m", None)
        assert serves(where, "ad")
        assert not serves(where, "other")

    @pytest.mark.parametrize(
        "raw",
        [
            b'{"model":"m","messages":[{"role":"user","content":"\\"model\\":\\"m\\""}]}',
            b'  { "messages" : [] , "model" : "m" }',
            b'{"mod\\u0065l":"m"}',
        ],
    )
    def test_splicing_keeps_the_rest(self, raw):
        scanned = Scanner().scan(raw)
        before = json.loads(raw)

        def written(model, lora):
            wanted = engine_name(endpoint(), None)._replace(model=model, lora=lora)
            return rewrite(raw, wanted, "m", scanned.model_span, scanned.insert_at)

        assert written("m", None) is raw
        assert json.loads(written('ser"ved', None)) == before | {"model": 'ser"ved'}
        expected = before | {"model": "x", "lora": [{"id": 0, "scale": 1.0}]}
        assert json.loads(written("x", 0)) == expected


KEY = "sk-1"
ENTRY = KeyEntry("k", "team", models=["m", "ad"], expires_ms=5_000)
KEYS = {hashlib.sha256(KEY.encode()).hexdigest(): ENTRY}


class TestKeys:
    @pytest.mark.parametrize(
        ("authorization", "api_key", "found"),
        [
            (None, None, ()),
            ("Bearer a", None, ("a",)),
            ("bearer  a ", "b", ("a", "b")),
            ("Basic a", None, ()),
            ("Bearer ", "", ()),
            (None, "b", ("b",)),
        ],
    )
    def test_credentials(self, authorization, api_key, found):
        assert credentials(authorization, api_key) == found

    def test_found_by_hash_and_clock(self):
        built = state(MODELS, keys=KEYS, keys_required=True)
        assert find_key(built, (KEY,), 4_999.0) is ENTRY
        assert find_key(built, ("wrong", KEY), 0.0) is ENTRY
        with pytest.raises(NoValidKey, match="expired"):
            find_key(built, (KEY,), 5_000.0)
        with pytest.raises(NoValidKey, match="not known"):
            find_key(built, ("wrong",), 0.0)
        with pytest.raises(NoValidKey, match="no API key"):
            check_present(built, ())

    def test_none_required(self):
        built = state(MODELS)
        check_present(built, ())
        assert find_key(built, ("anything",), 0.0) is None

    def test_allowlists(self):
        assert is_allowed(ENTRY, "ad")
        assert not is_allowed(ENTRY, "a")
        assert is_allowed(KeyEntry("k", "n"), "a")
        assert not is_allowed(KeyEntry("k", "n", models=[]), "m")


class TestModelList:
    def test_by_key_and_under_every_name(self):
        built = state(MODELS, [endpoint(context=500)], [Absence("sim", "loading")])
        listed = list_models(built, None)
        assert [entry["id"] for entry in listed["data"]] == ["m", "a", "ad", "sim"]
        assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("m", "sim", False)
        assert [entry["id"] for entry in list_models(built, ENTRY)["data"]] == ["m", "ad"]
        assert list_models(built, KeyEntry("k", "n", models=[]))["first_id"] is None

    def test_members(self):
        built = state(MODELS, [endpoint(context=500)], [Absence("sim", "loading")])
        model, alias, adapter, sim = list_models(built, None)["data"]
        assert model["context_length"] == model["max_model_len"] == model["max_input_tokens"] == 500
        assert "description" not in model
        assert "capabilities" not in model
        assert (model["parent"], alias["root"]) == (None, "m")
        assert (adapter["parent"], adapter["root"]) == ("m", "m")
        assert (sim["owned_by"], sim["name"]) == ("llmgw-sim", "sim (simulated)")
        assert sim["display_name"] == "sim (simulated)"
        assert "context_length" not in sim
        assert sim["status"] == {"value": "loading"}
        assert sim["created_at"] == "2023-11-14T22:13:20Z"
