"""A router as a real process, and raw connections to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

ROOT = Path(__file__).resolve().parents[3]
APPLICATION = "tests.router.front.fake_application:FakeApplication"
PATIENCE_S = 20.0
T = TypeVar("T")


def eventually(look: Callable[[], T]) -> T:
    """The first true value of ``look``; fails after PATIENCE_S."""
    end = time.monotonic() + PATIENCE_S
    while not (value := look()):
        assert time.monotonic() < end, f"still {value!r}"
        time.sleep(0.02)
    return value


class RunningRouter:
    """Started with a fake application on free ports; ``stop`` leaves nobody."""

    def __init__(
        self, folder: Path, *options: str, workers: int = 1, patch: str | None = None
    ) -> None:
        self.folder = folder
        self.run_dir = folder / "run"
        self.stderr = folder / "stderr"
        ports = folder / "ports"
        command = [
            sys.executable, *_program(patch), "--application", APPLICATION,
            "--config", str(folder / "router.yaml"), "--bind", "127.0.0.1:0",
            "--metrics-bind", "127.0.0.1:0", "--workers", str(workers), "--grace", "0",
            "--run", str(self.run_dir), "--port-file", str(ports), *options,
        ]  # fmt: skip
        with self.stderr.open("wb") as stderr:
            self.process = subprocess.Popen(command, cwd=ROOT, stderr=stderr)
        self._members: dict[int, psutil.Process] = {}
        eventually(lambda: ports.exists() or self.process.poll() is not None)
        assert self.process.poll() is None, self.stderr.read_text()
        found = json.loads(ports.read_text())
        self.port: int = found["port"]
        self.metrics_port: int = found["metrics_port"]
        self.family()

    def family(self) -> list[psutil.Process]:
        """All children that live now."""
        if self.process.poll() is None:
            for child in psutil.Process(self.process.pid).children():
                self._members[child.pid] = child
        return [each for each in self._members.values() if _lives(each)]

    def workers(self) -> dict[int, int]:
        """Index -> pid of the live workers that have a heartbeat."""
        alive = {each.pid for each in self.family()}
        pairs = (name.split("-") for name in os.listdir(self.run_dir / "metrics"))
        return {int(i): int(pid) for i, pid in pairs if pid.isdigit() and int(pid) in alive}

    def get(self, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        return request(self.port, path, body)

    def metrics(self) -> dict[str, float]:
        """The page's samples by name and labels."""
        text = request(self.metrics_port, "/metrics")[1].decode()
        lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    def stop(self) -> int:
        """SIGTERM; the exit status. Whoever is left is killed by pid."""
        self.family()
        try:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            return self.process.wait(PATIENCE_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            for each in self.family():
                each.kill()


def _program(patch: str | None) -> list[str]:
    """The parent as it is, or with a statement run on ``router.workers`` first."""
    if patch is None:
        return ["-m", "router"]
    return ["-c", f"from router import workers, __main__; workers.{patch}; __main__.main()"]


def request(port: int, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", body, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def head(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: t", *headers, "", ""]).encode()


def until_closed(connection: socket.socket) -> bytes:
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data


def until(connection: socket.socket, mark: bytes) -> bytes:
    """What came up to and with ``mark``; fails when the connection ends before."""
    data = b""
    while mark not in data:
        piece = connection.recv(65536)
        assert piece, f"ended after {data!r}"
        data += piece
    return data


def answer_on(connection: socket.socket) -> tuple[int, bytes]:
    """The next answer; the connection stays open."""
    with http.client.HTTPResponse(connection) as answer:
        answer.begin()
        return answer.status, answer.read()


def raw(port: int, data: bytes) -> tuple[int, bytes]:
    """Send as it is, read one answer."""
    with connect(port) as connection:
        connection.sendall(data)
        return answer_on(connection)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
