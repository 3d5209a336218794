"""What counts as complete weights, and what a path may be."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agent.want_state import Refusal
from agent.weights.look import Found, look


def reason(source: str) -> str:
    answer = look(source)
    assert isinstance(answer, Refusal)
    assert answer.detail
    return answer.reason


def gguf(path: Path, size: int = 10) -> Path:
    path.write_bytes(b"GGUF" + b"x" * size)
    return path


def test_a_gguf_file(tmp_path: Path):
    found = look(f"file:{gguf(tmp_path / 'm.gguf')}")
    assert isinstance(found, Found)
    assert (found.path, found.size) == (str(tmp_path / "m.gguf"), 14)


def test_the_digest_follows_names_and_sizes(tmp_path: Path):
    first = look(f"file:{gguf(tmp_path / 'm.gguf')}")
    assert look(f"file:{gguf(tmp_path / 'm.gguf')}") == first
    assert look(f"file:{gguf(tmp_path / 'm.gguf', 11)}") != first


def test_a_folder_with_one_gguf_names_the_file(tmp_path: Path):
    gguf(tmp_path / "m.gguf")
    found = look(f"file:{tmp_path}")
    assert isinstance(found, Found)
    assert found.path == str(tmp_path / "m.gguf")


def test_a_folder_with_several_models_must_be_more_exact(tmp_path: Path):
    gguf(tmp_path / "a.gguf")
    gguf(tmp_path / "b.gguf")
    assert reason(f"file:{tmp_path}") == "bad-path"


def test_every_part_of_a_split_gguf(tmp_path: Path):
    parts = [gguf(tmp_path / f"m-{n:05}-of-00003.gguf") for n in (1, 2, 3)]
    found = look(f"file:{parts[0]}")
    assert isinstance(found, Found)
    assert found.size == 42
    assert isinstance(look(f"file:{tmp_path}"), Found)
    assert reason(f"file:{parts[1]}") == "bad-path"
    parts[2].unlink()
    assert reason(f"file:{parts[0]}") == "weights-incomplete"


def test_every_file_that_an_index_names(tmp_path: Path):
    names = ["a.safetensors", "b.safetensors"]
    index = {"weight_map": {"x": names[0], "y": names[1], "z": names[0]}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / names[0]).write_bytes(b"1")
    assert reason(f"file:{tmp_path}") == "weights-incomplete"
    (tmp_path / names[1]).write_bytes(b"1")
    assert isinstance(look(f"file:{tmp_path}"), Found)


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/passwd", ".x"])
def test_an_index_names_nothing_outside(tmp_path: Path, name: str):
    index = {"weight_map": {"x": name}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert reason(f"file:{tmp_path}") == "weights-unreadable"


def test_a_file_that_is_still_copied(tmp_path: Path):
    gguf(tmp_path / "m.gguf")
    (tmp_path / "m.gguf.part").write_bytes(b"")
    assert reason(f"file:{tmp_path}/m.gguf") == "weights-incomplete"


def test_what_is_empty_missing_or_something_else(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.gguf").write_text("hello")
    assert reason(f"file:{tmp_path}/empty") == "weights-incomplete"
    assert reason(f"file:{tmp_path}/text.gguf") == "weights-unreadable"
    assert reason(f"file:{tmp_path}/none.gguf") == "weights-unreadable"
    assert reason("file:/dev/null") == "bad-path"


@pytest.mark.parametrize(
    "path", ["relative.gguf", "/a/../etc/x", "//a", "/a/", "/a//b", "/a/./b", "", "/a\0b"]
)
def test_a_path_must_be_whole_and_plain(path: str):
    assert reason(f"file:{path}") == "bad-path"


@pytest.mark.parametrize("source", ["hf:a/b", "http://x/y.gguf", "/data/m.gguf", "mirror:m"])
def test_what_would_have_to_be_fetched_is_refused_by_name(source: str):
    assert reason(source) == "fetch-not-available"


def test_a_pipe_among_the_parts_is_refused_and_not_opened(tmp_path: Path):
    first = gguf(tmp_path / "m-00001-of-00002.gguf")
    os.mkfifo(tmp_path / "m-00002-of-00002.gguf")
    assert reason(f"file:{first}") == "bad-path"


def test_a_folder_in_the_place_of_a_weight_file_is_refused(tmp_path: Path):
    (tmp_path / "model.safetensors").mkdir()
    assert reason(f"file:{tmp_path}") == "bad-path"


def test_a_link_that_leads_to_itself_is_refused(tmp_path: Path):
    (tmp_path / "m.gguf").symlink_to(tmp_path)
    assert reason(f"file:{tmp_path}") == "weights-unreadable"


def test_a_name_that_is_not_utf_8_is_refused(tmp_path: Path):
    name = os.fsencode(tmp_path / "m") + b"\xff.safetensors"
    with open(name, "wb") as file:
        file.write(b"x")
    assert reason(f"file:{tmp_path}") == "bad-path"
