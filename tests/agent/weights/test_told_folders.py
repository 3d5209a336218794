"""What the agent sees in the folders it was told of."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from agent.weights.told_folders import ToldFolders


def test_complete_weights_one_level_deep(tmp_path: Path):
    (tmp_path / "m.gguf").write_bytes(b"GGUF1")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "model.safetensors").write_bytes(b"12")
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "model.safetensors").write_bytes(b"1")
    (tmp_path / "half" / "model.safetensors.part").write_bytes(b"1")
    seen = ToldFolders([str(tmp_path), str(tmp_path / "none")]).seen()
    assert [(w.source, w.size, w.shared) for w in seen] == [
        (f"file:{tmp_path}/m.gguf", 5, False),
        (f"file:{tmp_path}/whole", 2, False),
    ]
    assert all(w.complete for w in seen)


def test_told_nothing_reports_nothing():
    assert ToldFolders([]).seen() == []


def test_names_that_no_message_can_carry_are_passed_over(tmp_path: Path):
    (tmp_path / "m.gguf").write_bytes(b"GGUF1")
    with open(os.fsencode(tmp_path) + b"/\xff.gguf", "wb") as file:
        file.write(b"GGUF1")
    seen = ToldFolders([str(tmp_path)]).seen()
    assert [w.source for w in seen] == [f"file:{tmp_path}/m.gguf"]
    msgspec.msgpack.encode(seen)
