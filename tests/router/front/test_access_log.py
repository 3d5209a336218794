"""The access log: whole lines, rotation, and nothing lost silently."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from router import access_log
from router.access_log import AccessLine, AccessLog
from tests.router.front.running_router import eventually


def line(number: int) -> AccessLine:
    return AccessLine(
        time=time.time(), id=f"r{number}", client="127.0.0.1:5", method="POST",
        route="/v1/chat/completions", status=200, outcome="ok", seconds=0.5, tokens_out=7,
    )  # fmt: skip


def ids(path: Path) -> list[str]:
    return [json.loads(text)["id"] for text in path.read_text().splitlines()]


def test_lines_are_whole_and_unknown_values_left_out(tmp_path):
    path = tmp_path / "access.log"
    log = AccessLog(str(path))
    log.open()
    for number in range(1000):
        log.add(line(number))
    log.close()
    assert ids(path) == [f"r{number}" for number in range(1000)]
    first = json.loads(path.read_text().splitlines()[0])
    assert first["tokens_out"] == 7
    assert "cached" not in first


def test_a_rotated_file_is_left_and_a_new_one_begun(tmp_path):
    path = tmp_path / "access.log"
    log = AccessLog(str(path))
    log.open()
    log.add(line(1))
    eventually(lambda: path.read_text())
    path.rename(tmp_path / "access.log.1")
    log.add(line(2))
    log.close()
    assert ids(tmp_path / "access.log.1") == ["r1"]
    assert ids(path) == ["r2"]


def test_what_cannot_be_written_is_counted(capsys):
    log = AccessLog("/dev/full")
    log.open()
    log.add(line(1))
    log.add(line(2))
    log.close()
    assert log.dropped == 2
    assert "the access log cannot be written" in capsys.readouterr().err


def test_too_many_waiting_lines_are_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr(access_log, "LINES_HELD", 3)
    monkeypatch.setattr(access_log, "FLUSH_S", 60)
    path = tmp_path / "access.log"
    log = AccessLog(str(path))
    log.open()
    for number in range(5):
        log.add(line(number))
    log.close()
    assert log.dropped == 2
    assert ids(path) == ["r0", "r1", "r2"]


def test_off_and_a_path_that_cannot_be_opened(tmp_path):
    off = AccessLog(None)
    off.open()
    off.add(line(1))
    off.close()
    assert off.dropped == 0
    with pytest.raises(OSError, match="No such file"):
        AccessLog(str(tmp_path / "missing" / "access.log")).open()
