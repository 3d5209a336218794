from __future__ import annotations

import os
from pathlib import Path

from orchestrator.external_keys import ExternalKeys


def test_a_key_is_read_again_when_its_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(" one\n")
    keys = ExternalKeys()
    assert keys.look({"m": file, "n": file}) == {"m": "one", "n": "one"}
    file.write_text("two")
    os.utime(file, ns=(1, 1))
    assert keys.look({"m": file}) == {"m": "two"}


def test_a_file_that_is_missing_or_empty_is_no_key(tmp_path: Path) -> None:
    file = tmp_path / "key"
    keys = ExternalKeys()
    assert keys.look({"m": file}) == {}
    file.write_text("one")
    assert keys.look({"m": file}) == {"m": "one"}
    file.write_text("")
    os.utime(file, ns=(1, 1))
    assert keys.look({"m": file}) == {}
    file.unlink()
    assert keys.look({"m": file}) == {}
