"""Choosing a server and a port, the state folder's lock, the demo's cluster file, what is missing."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from orchestrator.up import demo_models, embedded_redis, install_steps
from orchestrator.up.child_process import Child, last_lines, wait_until
from orchestrator.up.errors import AlreadyRunning, CannotStart, MissingPart, PortTaken
from orchestrator.up.free_port import choose, is_free
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
    text = embedded_redis.configuration(Path("/var/x"), 6390, "secret")
    assert "appendonly yes" in text
    assert "bind 127.0.0.1\n" in text
    assert "requirepass secret" in text


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


def test_secrets_are_their_owners_alone(tmp_path):
    folder = StateFolder(tmp_path / "state")
    password = folder.password()
    assert len(password) > 30
    assert StateFolder(tmp_path / "state").password() == password
    mode = stat.S_IMODE((tmp_path / "state" / "redis_password").stat().st_mode)
    assert mode == 0o600
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


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
