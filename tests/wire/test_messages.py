"""Messages of one version older and one newer are read; unknown stays unknown (R185, R186)."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import UNSET

from orchestrator.wire.codec import encode
from orchestrator.wire.errors import UnreadableMessage
from orchestrator.wire.feed import Load, ReplicaLoad, read_feed
from orchestrator.wire.profile import Profile
from orchestrator.wire.reports import Applied, Beat, Echo, read_report
from orchestrator.wire.snapshots import (
    CatalogSnapshot,
    ModelEntry,
    parse_versions_field,
    read_catalog,
    versions_field,
)
from orchestrator.wire.want import ShardWant, Want, WantChanged, read_command, read_want


def shard(**changes):
    known = {
        "replica": "a",
        "generation": 7,
        "model": "m",
        "origin": "stored",
        "fingerprint": "1:0",
        "rank": 0,
        "world_size": 1,
        "goal": "run",
        "profile": Profile(engine="sim"),
        "served_name": "m",
        "slots": 4,
    }
    return ShardWant(**{**known, **changes})


def test_what_is_sent_is_what_is_read():
    want = Want(epoch=5, revision=2, shards=[shard(cards=["GPU-1"], cores=2)])
    assert read_want(encode(want)) == want
    assert read_command(encode(WantChanged(5, 2))) == WantChanged(5, 2)
    for report in (Echo("o", 5, 9), Beat("n", "s", Applied(5, 2), cpus=4)):
        assert read_report(encode(report)) == report


def test_a_field_of_a_newer_version_is_ignored():
    raw = msgspec.to_builtins(Echo("o", 5, 9)) | {"new": [1, 2]}
    assert read_report(msgspec.msgpack.encode(raw)) == Echo("o", 5, 9)


def test_a_number_that_was_not_sent_is_unknown_and_not_zero():
    load = read_feed(encode(Load("n", "s", [ReplicaLoad("a", 7, 0.1)])))
    assert isinstance(load, Load)
    assert load.replicas[0].running is UNSET
    assert load.replicas[0].cache_use is UNSET


def test_a_rank_is_never_guessed():
    raw = msgspec.to_builtins(Want(1, 1, [shard()]))
    del raw["shards"][0]["rank"]
    with pytest.raises(UnreadableMessage, match="rank"):
        read_want(msgspec.msgpack.encode(raw))


def test_what_is_no_message_is_said():
    with pytest.raises(UnreadableMessage):
        read_report(b"\xc1")
    with pytest.raises(UnreadableMessage):
        read_report(msgspec.msgpack.encode({"type": "unheard-of"}))


def test_class_keeps_its_name_on_the_wire():
    catalog = CatalogSnapshot(1, 1, [ModelEntry("m", klass="critical")])
    assert b"class" in encode(catalog)
    assert read_catalog(encode(catalog)) == catalog


def test_absent_is_absent():
    assert "description" not in msgspec.to_builtins(ModelEntry("m"))


def test_versions_field():
    assert parse_versions_field(versions_field(17, 4).encode()) == (17, 4)
