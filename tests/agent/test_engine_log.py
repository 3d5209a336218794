"""Logs of engines: bounded, and their last words found."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import engine_log


def test_the_last_line_that_says_something(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text("first\n\x1b[31mout of memory\x1b[0m\n\n  \n")
    assert engine_log.last_line(log) == "out of memory"
    assert engine_log.last_line(tmp_path / "none") == ""


def test_tail_is_the_end(tmp_path: Path):
    (tmp_path / "log").write_text("0123456789")
    assert engine_log.tail(tmp_path / "log", 4) == "6789"
    assert engine_log.tail(tmp_path / "log", 400) == "0123456789"
    assert engine_log.tail(tmp_path / "log", 0) == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("OSError: [Errno 98] Address already in use", True),
        ("couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 1", True),
        ("CUDA out of memory", False),
    ],
)
def test_a_taken_port_is_told_from_other_ends(tmp_path: Path, line: str, said: bool):
    (tmp_path / "log").write_text(line)
    assert engine_log.says_address_in_use(tmp_path / "log") is said


def test_only_the_first_failure_is_kept(tmp_path: Path):
    (tmp_path / "log").write_text("first")
    engine_log.keep_first_failure(tmp_path)
    (tmp_path / "log").write_text("second")
    engine_log.keep_first_failure(tmp_path)
    assert (tmp_path / "first-failure.log").read_text() == "first"


def test_a_long_log_is_cut_under_its_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine_log, "MAX_SIZE", 100)
    monkeypatch.setattr(engine_log, "_COPY", 10)
    with (tmp_path / "log").open("a") as writer:
        writer.write("x" * 100)
        writer.flush()
        assert not engine_log.rotate(tmp_path)
        writer.write("0123456789")
        writer.flush()
        assert engine_log.rotate(tmp_path)
        writer.write("after")
    assert (tmp_path / "log").read_text() == "after"
    assert (tmp_path / "log.1").read_text() == "0123456789"


def test_the_first_error_of_llama_cpp_is_the_cause(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text(
        "0.00.007.394 I srv          init: loading model\n"
        "0.00.032.330 E llama_model_load: tensor data is not within the file bounds\n"
        "0.00.035.617 E llama_model_load_from_file_impl: failed to load model\n"
        "cannot serve m.gguf: Failed to init server\n"
    )
    cause = "llama_model_load: tensor data is not within the file bounds"
    assert engine_log.first_error(log) == cause
    log.write_text("Error: 1.5 E\n")
    assert engine_log.first_error(log) == ""


def test_a_log_is_cut_even_where_its_end_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine_log, "MAX_SIZE", 10)
    monkeypatch.setattr(engine_log, "_COPY", 5)
    (tmp_path / "log").write_text("0123456789abc")
    (tmp_path / "log.1").mkdir()  # as a full disk does: it cannot be written
    assert engine_log.rotate(tmp_path)
    assert (tmp_path / "log").read_text() == ""
