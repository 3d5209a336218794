from __future__ import annotations

import stat
from pathlib import Path

import pytest

from orchestrator.backup import Backup, read_backup, write_backup, write_private

BACKUP = Backup("default", 5, 3, {"keys": {"a": "{}"}}, {"r": "{}"}, {}, {"m": "{}"})


def test_a_backup_is_read_back_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    write_backup(folder, BACKUP)
    assert read_backup(folder) == BACKUP
    assert stat.S_IMODE((folder / "backup.json").stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == ["backup.json"]


def test_what_cannot_be_read_is_no_backup(tmp_path: Path) -> None:
    assert read_backup(tmp_path) is None
    (tmp_path / "backup.json").write_text("{")
    assert read_backup(tmp_path) is None


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_private(path, b"old")

    def full(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_private(path, b"new")
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
