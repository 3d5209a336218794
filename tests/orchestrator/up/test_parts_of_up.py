"""Choosing a server and a port, the state folder's lock, the demo's cluster file, what is missing."""

from __future__ import annotations

import errno
import io
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from orchestrator.up import demo_models, embedded_redis, install_steps, state_folder
from orchestrator.up.child_process import Child, last_lines, wait_until
from orchestrator.up.errors import AlreadyRunning, CannotStart, MissingPart, PortTaken
from orchestrator.up.free_port import choose, is_free
from orchestrator.up.progress import Steps
from orchestrator.up.state_folder import Running, StateFolder, default_folder


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Redis server v=6.2.14 sha=0:0 malloc=jemalloc", (6, 2, 14)),
        ("Valkey server v=8.0.1 sha=0:0", (8, 0, 1)),
        ("something else", None),
    ],
)
def test_the_version_of_a_server(text, version):
    assert embedded_redis.parse_version(text) == version


def fake_server(folder: Path, name: str, version: str) -> None:
    script = folder / name
    script.write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=0'\n")
    script.chmod(0o755)


def test_an_old_server_is_passed_over(tmp_path, monkeypatch):
    fake_server(tmp_path, "redis-server", "6.0.16")
    fake_server(tmp_path, "valkey-server", "8.0.1")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = embedded_redis.find_server()
    assert (Path(found.path).name, found.version) == ("valkey-server", "8.0.1")


def test_only_old_servers_are_named(tmp_path, monkeypatch):
    fake_server(tmp_path, "redis-server", "6.0.16")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPart, match="no Redis") as refused:
        embedded_redis.find_server()
    assert "6.0.16" in refused.value.why


def test_the_store_keeps_what_it_is_told():
    text = embedded_redis.configuration(Path('/var/x y"z'), 6390, "secret")
    assert "appendonly yes" in text
    assert "bind 127.0.0.1\n" in text
    assert "requirepass secret" in text
    assert 'dir "/var/x y\\"z"\n' in text


def test_a_taken_port():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        assert not is_free(port)
        with pytest.raises(
            PortTaken, match=f"port {port} is taken by .*pid {os.getpid()}"
        ) as refused:
            choose(port, 1, "--port")
        assert refused.value.remedy.startswith("--port ")
        chosen, told = choose(None, port, "--port")
        assert chosen != port
        assert str(chosen) in told
    assert choose(port, 1, "--port") == (port, None)


def test_one_at_a_time(tmp_path):
    first, second = StateFolder(tmp_path), StateFolder(tmp_path)
    assert not first.is_held()
    first.hold()
    first.say_running(Running(1, "http://127.0.0.1:1", "http://127.0.0.1:2"))
    assert second.is_held()
    with pytest.raises(AlreadyRunning) as refused:
        second.hold()
    assert "http://127.0.0.1:1" in refused.value.why
    first.release()
    second.hold()
    assert second.running() is None
    second.release()


def test_what_a_crashed_run_said_of_itself_is_not_believed(tmp_path):
    crashed = StateFolder(tmp_path)
    crashed.hold()
    crashed.say_running(Running(1, "http://127.0.0.1:1", "http://127.0.0.1:2"))
    os.close(crashed._lock)  # what the kernel does
    starting, other = StateFolder(tmp_path), StateFolder(tmp_path)
    assert other.holder() is None
    starting.hold()
    assert other.running() is None
    assert other.holder() == os.getpid(), "--stop must reach the one that is starting"
    with pytest.raises(AlreadyRunning) as refused:
        other.hold()
    assert refused.value.why == "it is starting"
    starting.release()
    assert other.holder() is None


def test_looking_makes_no_folder(tmp_path):
    assert StateFolder(tmp_path / "none").holder() is None
    assert not (tmp_path / "none").exists()


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_folder_that_cannot_be_written_is_said_in_words(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(CannotStart, match="cannot write to"):
        StateFolder(tmp_path / "file").hold()
    folder = StateFolder(tmp_path / "state")
    folder.hold()
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(CannotStart) as refused:
        folder.write_secret("api_key", "x")
    assert "No space left" in refused.value.why
    folder.release()


def test_too_little_room_is_said_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(state_folder, "LEAST_ROOM", 2**62)
    folder = StateFolder(tmp_path)
    with pytest.raises(CannotStart, match="is full") as refused:
        folder.hold()
    assert "MB are free" in refused.value.why
    assert folder.holder() is None


@pytest.mark.parametrize("damage", [b"\xff\xfe\x00", b"two words", b"", b"x" * 4096])
def test_a_damaged_secret_is_drawn_anew(tmp_path, damage):
    folder = StateFolder(tmp_path)
    (tmp_path / "redis_password").write_bytes(damage)
    drawn = folder.password()
    assert len(drawn) > 30
    assert folder.password() == drawn


def test_secrets_are_their_owners_alone(tmp_path):
    folder = StateFolder(tmp_path / "state")
    folder.hold()
    password = folder.password()
    assert len(password) > 30
    assert StateFolder(tmp_path / "state").password() == password
    mode = stat.S_IMODE((tmp_path / "state" / "redis_password").stat().st_mode)
    assert mode == 0o600
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    folder.release()


def test_no_home_is_said_in_words(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(CannotStart, match="cannot be told"):
        default_folder({})


def test_words_in_brackets_are_shown_as_they_are():
    shown = io.StringIO()
    steps = Steps(Console(file=shown, width=200), quiet=False)
    steps.warn("port [/x] is taken")
    with steps.step("model") as step:
        step.doing("[Errno 2] [/b]")
        step.say("the answer [/i] [red]")
    assert "port [/x] is taken" in shown.getvalue()
    assert "the answer [/i] [red]" in shown.getvalue()


def test_where_the_state_lies():
    assert default_folder({"XDG_STATE_HOME": "/s"}) == Path("/s/llmgw")
    assert default_folder({}).parts[-3:] == (".local", "state", "llmgw")


def test_the_demo_is_a_catalog(tmp_path):
    text = demo_models.cluster_file(tmp_path / "a.gguf", 3)
    models = {model["name"]: model for model in msgspec.yaml.decode(text)["models"]}
    assert set(models) == {demo_models.REAL_MODEL, demo_models.SIMULATED_MODEL}
    assert models[demo_models.REAL_MODEL]["profiles"][0]["source"] == f"file:{tmp_path}/a.gguf"


def test_missing_parts_are_pinned(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    arguments = [step.arguments[-1] for step in install_steps.missing_steps()]
    assert len(arguments) == 3
    assert all("==" in argument for argument in arguments)


def test_nothing_is_missing_when_all_is_there():
    assert install_steps.missing_steps() == []


def python(code: str, log: Path) -> Child:
    return Child("part", [sys.executable, "-c", code], log, {})


def test_a_part_that_ends_says_its_last_words(tmp_path):
    child = python("import sys; print('why it ended'); sys.exit(3)", tmp_path / "log")
    with pytest.raises(CannotStart, match="ended with code 3") as refused:
        wait_until(child, tmp_path / "never", 30)
    assert "why it ended" in refused.value.why


def test_a_part_that_is_deaf_to_sigterm_is_killed(tmp_path):
    ready = tmp_path / "ready"
    code = (
        "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"pathlib.Path({str(ready)!r}).touch(); time.sleep(60)"
    )
    child = python(code, tmp_path / "log")
    wait_until(child, ready, 30)
    child.end(0.2)
    with pytest.raises(CannotStart, match="code -9"):
        child.check()


def test_a_part_dies_with_its_parent(tmp_path):
    """However the parent goes: nothing of ours may live on unseen."""
    pid_file = tmp_path / "pid"
    child_code = (
        f"import os, pathlib, time; pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()));"
        "time.sleep(60)"
    )
    parent_code = (
        "import sys, time, pathlib\n"
        "from orchestrator.up.child_process import Child\n"
        f"Child('x', [sys.executable, '-c', {child_code!r}], pathlib.Path({str(tmp_path / 'log')!r}), {{}})\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", parent_code])
    try:
        pid = wait_for_pid(pid_file)
    finally:
        parent.kill()
        parent.wait()
    for _ in range(500):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return
        subprocess.run(["sleep", "0.02"], check=True)
    raise AssertionError("the child lives on")


def wait_for_pid(pid_file: Path) -> int:
    for _ in range(500):
        if pid_file.exists() and pid_file.read_text():
            return int(pid_file.read_text())
        subprocess.run(["sleep", "0.02"], check=True)
    raise AssertionError("the child did not start")


def test_last_lines_of_a_log_that_is_not_there(tmp_path):
    assert last_lines(tmp_path / "none") == ""


def test_the_last_words_are_of_this_run(tmp_path):
    log = tmp_path / "log"
    log.write_text("why the run before ended\n")
    child = python("", log)
    with pytest.raises(CannotStart) as refused:
        wait_until(child, tmp_path / "never", 30)
    assert refused.value.why == "it wrote nothing"


def test_a_part_takes_no_module_from_where_it_was_started(tmp_path, monkeypatch):
    (tmp_path / "agent.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    child = Child("part", [sys.executable, "-m", "agent", "--help"], tmp_path / "log", {})
    assert child.wait(30) == 0
