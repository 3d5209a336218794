"""Settings and faults: what is refused, and in which words."""

from __future__ import annotations

import msgspec
import pytest

from agent.sim_engine.errors import BadSetting
from agent.sim_engine.faults import TABLE, Faults, read_faults
from agent.sim_engine.model import EngineShape
from agent.sim_engine.ranks import _Hello, refusal
from agent.sim_engine.settings import Settings, World, check_settings, read_address

SHAPE = EngineShape(slots=1, prefill_rate=1.0, decode_rate=1.0, cache_tokens=1, block_tokens=1)


def test_each_fault_is_read():
    texts = ["ignore-sigterm", "exit-after:1.5:3", "break-stream:4", "hang", "health-lies"]
    assert read_faults(texts) == Faults(
        ignore_sigterm=True, exit_after=(1.5, 3), break_stream=4, hang=True, health_lies=True
    )
    assert {text.partition(":")[0] for text in texts} == set(TABLE)
    assert {row.field for row in TABLE.values()} == set(Faults.__struct_fields__)
    assert read_faults([]) == Faults()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("explode", "fault 'explode' is unknown; write one of: ignore-sigterm, exit-after"),
        ("hang:1", "fault 'hang:1' cannot be read; write hang"),
        ("break-stream", "write break-stream:TOKENS"),
        ("break-stream:0", "write break-stream:TOKENS"),
        ("exit-after:5", "write exit-after:SECONDS:CODE"),
        ("exit-after:x:1", "write exit-after:SECONDS:CODE"),
        ("exit-after:1:256", "write exit-after:SECONDS:CODE"),
        ("exit-after:nan:1", "write exit-after:SECONDS:CODE"),
    ],
)
def test_bad_faults(text, says):
    with pytest.raises(BadSetting, match=says):
        read_faults([text])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"shape": msgspec.structs.replace(SHAPE, slots=0)}, "--slots 0: write a number"),
        ({"shape": msgspec.structs.replace(SHAPE, decode_rate=-1.0)}, "--decode-rate -1.0"),
        ({"shape": msgspec.structs.replace(SHAPE, prefill_rate=float("nan"))}, "--prefill-rate"),
        ({"shape": msgspec.structs.replace(SHAPE, prefill_rate=float("inf"))}, "--prefill-rate"),
        ({"max_model_len": 1}, "--max-model-len 1: write a number of at least 2"),
        ({"names": ()}, "--served-model-name"),
        ({"names": ("a", "")}, "--served-model-name"),
        ({"api_key": ""}, "API key is empty"),
        (
            {"world": World(size=2, rank=2, master=("h", 1), on_loss="hang")},
            "--rank 2: write 0 to 1",
        ),
    ],
)
def test_bad_settings(changes, says):
    check_settings(Settings(shape=SHAPE))
    with pytest.raises(BadSetting, match=says):
        check_settings(Settings(**({"shape": SHAPE} | changes)))


def test_addresses():
    assert read_address("10.0.0.1:80") == ("10.0.0.1", 80)
    assert read_address("[::1]:0") == ("::1", 0)
    for bad in ("", "host", ":80", "host:", "host:x", "host:70000", "host:-1", "host:²"):
        with pytest.raises(BadSetting, match="write HOST:PORT"):
            read_address(bad)


def test_who_may_join():
    def asks(rank=1, size=3, model="greek", present=(), met=False):
        return refusal(_Hello(rank, size, model), 3, "greek", present, met)

    assert asks() is None
    assert asks(met=True) == "this group has met already; start all its ranks anew"
    assert asks(size=2) == "world size 2, but rank 0 has 3"
    assert asks(model="latin") == "model 'latin', but rank 0 has 'greek'"
    assert asks(rank=0) == asks(rank=0, present={1}) == "rank 0 is not in 1 to 2"
    assert asks(rank=3) == "rank 3 is not in 1 to 2"
    assert asks(rank=1, present={1}) == "rank 1 is here already"
