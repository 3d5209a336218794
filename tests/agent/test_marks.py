"""The state folder: one agent, durable, private, and an error rather than a guess."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from agent.errors import BadStateFolder, StateFolderBusy
from agent.marks import ENDED_KEPT, EngineRecord, StateFolder
from agent.process_facts import Identity
from tests.agent.shards import shard, want

IDENTITY = Identity(123, 456, "boot", "hash", "node:7:0")


@pytest.fixture
def folder(tmp_path: Path):
    folder = StateFolder(tmp_path / "state")
    yield folder
    folder.close()


def test_one_agent_per_folder(folder: StateFolder):
    with pytest.raises(StateFolderBusy, match="--state"):
        StateFolder(folder.path)


def test_a_closed_folder_can_be_opened_again(tmp_path: Path):
    StateFolder(tmp_path).close()
    StateFolder(tmp_path).close()


def test_the_node_id_stays(folder: StateFolder):
    assert folder.node_id("first") == "first"
    assert folder.node_id("second") == "first"


def test_want_and_marks_come_back(folder: StateFolder):
    assert folder.want() is None
    assert folder.marks() == {}
    folder.keep_want(want(3, shard(engine_key="sesame")))
    folder.keep_marks({7: 1000})
    assert folder.want() == want(3, shard(engine_key="sesame"))
    assert folder.marks() == {7: 1000}


@pytest.mark.parametrize("name", ["want.msgpack", "marks.json"])
def test_an_unreadable_file_is_an_error_that_says_what_to_do(folder: StateFolder, name: str):
    (folder.path / name).write_bytes(b"\xc1 not it")
    with pytest.raises(BadStateFolder, match="launched twice"):
        folder.want() if name.startswith("want") else folder.marks()


def test_a_half_written_file_does_no_harm(folder: StateFolder):
    folder.keep_marks({7: 1000})
    (folder.path / "marks.json.tmp").write_bytes(b'{"7": 10')
    assert folder.marks() == {7: 1000}


def test_engine_records_come_back_until_they_end(folder: StateFolder):
    record = EngineRecord(shard(7), IDENTITY, [20_000], 5, url="http://x")
    folder.keep_engine(record)
    assert folder.engines() == ([record], [])
    folder.keep_engine(msgspec.structs.replace(record, ended=True))
    assert folder.engines() == ([], [])


def test_an_unreadable_record_is_said_and_left(folder: StateFolder):
    (folder.engine_folder(8) / "engine.msgpack").write_bytes(b"\xc1")
    records, problems = folder.engines()
    assert records == []
    assert "left alone" in problems[0]


def test_nobody_else_reads_keys(folder: StateFolder):
    folder.keep_want(want(1, shard(engine_key="sesame")))
    folder.keep_engine(EngineRecord(shard(7), IDENTITY, [20_000], 5))
    for path in [folder.path, *folder.path.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_only_the_newest_ended_engines_keep_their_logs(folder: StateFolder):
    for generation in range(1, ENDED_KEPT + 4):
        (folder.engine_folder(generation) / "log").write_text("x")
    folder.drop_old_engines(frozenset({1}))
    left = sorted(int(f.name) for f in (folder.path / "engines").iterdir())
    assert left == [1, *range(4, ENDED_KEPT + 4)]
