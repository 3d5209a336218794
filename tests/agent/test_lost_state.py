"""State folders that are damaged or full: clear words, no engine stopped by it, none lost from sight."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from agent.marks import EngineRecord
from agent.process_facts import is_alive
from orchestrator.wire.reports import Failure
from tests.agent.conftest import engines_of
from tests.agent.leader_and_agents import ROOT, AgentProcess, Leader
from tests.agent.shards import shard

pytestmark = pytest.mark.system

Make = Callable[..., AgentProcess]


def run_agent(*flags: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "agent", *flags]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)


def record_of(one: AgentProcess) -> Path:
    return one.folder / "state/engines/7/engine.msgpack"


@pytest.mark.parametrize("damage", ["garbage", "gone", "a folder"])
def test_an_engine_whose_record_is_lost_is_ended_before_it_is_called_ended(
    leader: Leader, agent: Make, damage: str
):
    one = agent()
    leader.want("n1", shard())
    one.start()
    leader.shard("n1", "ready")
    one.kill()
    record = record_of(one)
    record.unlink()
    if damage == "garbage":
        record.write_bytes(b"\x81\xa5shard")
    elif damage == "a folder":
        record.mkdir()
    leader.forget_reports()
    one.start()
    ended = leader.shard("n1", "ended")
    assert engines_of(one) == []
    assert ended.reason == "vanished"
    assert isinstance(ended.first_failure, Failure)
    assert "record of this engine is lost" in ended.first_failure.text


def test_a_live_stranger_under_the_pid_of_a_record_is_left_alone(leader: Leader, agent: Make):
    one = agent()
    leader.want("n1", shard())
    one.start()
    ready = leader.shard("n1", "ready")
    one.kill()
    assert isinstance(ready.pid, int)
    os.kill(ready.pid, 9)
    with subprocess.Popen(["sleep", "50"]) as stranger:
        try:
            text = Path(f"/proc/{stranger.pid}/stat").read_text()
            start = int(text.rpartition(")")[2].split()[19])
            record = msgspec.msgpack.decode(record_of(one).read_bytes(), type=EngineRecord)
            other = msgspec.structs.replace(record.identity, pid=stranger.pid, start=start)
            changed = msgspec.structs.replace(record, identity=other)
            record_of(one).write_bytes(msgspec.msgpack.encode(changed))
            leader.forget_reports()
            one.start()
            assert leader.shard("n1", "ended").reason == "vanished"
            assert "is left alone" in one.log.read_text()
            assert is_alive(other)
        finally:
            stranger.kill()


def test_engines_that_a_killed_agent_left_can_be_ended(leader: Leader, agent: Make):
    one = agent()
    leader.want("n1", shard(), shard(8))
    one.start()
    leader.shard("n1", "ready")
    leader.shard("n1", "ready", 8)
    busy = run_agent("--end-engines", "--state", str(one.folder / "state"))
    assert busy.returncode == 2
    assert "another agent works on" in busy.stderr
    one.kill()
    assert len(engines_of(one)) == 2
    done = run_agent("--end-engines", "--state", str(one.folder / "state"))
    assert done.returncode == 0, done.stderr
    assert engines_of(one) == []


@pytest.mark.parametrize("text", [b"\xff\xfe", b"two words", b"a\nb"])
def test_a_damaged_node_id_is_refused_with_words(tmp_path: Path, text: bytes):
    (tmp_path / "node_id").write_bytes(text)
    flags = ("--redis", "redis://127.0.0.1:1/0", "--metrics-bind", "127.0.0.1:0")
    done = run_agent("--node", "n1", "--state", str(tmp_path), *flags)
    assert done.returncode == 2
    assert "node_id holds no node id" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("flag", ["--config", "--redis-file"])
def test_a_file_that_is_no_text_is_refused_with_words(tmp_path: Path, flag: str):
    (tmp_path / "file").write_bytes(b"\xff\xfe\x00")
    flags = ("--redis", "redis://127.0.0.1:1/0", flag, str(tmp_path / "file"))
    done = run_agent("--node", "n1", "--state", str(tmp_path / "state"), *flags)
    assert done.returncode == 2
    assert f"{flag} {tmp_path / 'file'} is no text" in done.stderr
