"""Starts simulated engines as real processes on free ports, and ends them."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 20.0  # seconds until a wait counts as failed; far above what is needed


class SimProcess:
    """One process of `python -m agent.sim_engine`. said: its first line on stdout, when read."""

    def __init__(self, flags: list[str]) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LLMGW_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agent.sim_engine", "--port", "0", *flags],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def hear(self) -> dict:
        """Its next line on stdout."""
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        return json.loads(line)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Sim(SimProcess):
    """An engine that listens."""

    def __init__(self, flags: list[str]) -> None:
        super().__init__(flags)
        self.said = self.hear()
        self.host, port = self.said["listening"].rsplit(":", 1)
        self.port = int(port)
        self.url = f"http://{self.said['listening']}"

    def call(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        try:
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, None if body is None else raw, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def post(self, path: str, body: object, **headers: str) -> tuple[int, dict]:
        status, raw = self.call("POST", path, body, headers)
        return status, json.loads(raw)

    def metrics(self) -> dict[str, float]:
        """vLLM's names without prefix and labels; of request_success_total the sum."""
        status, raw = self.call("GET", "/metrics")
        assert status == 200
        values: dict[str, float] = {}
        for line in raw.decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = name.partition("{")[0].removeprefix("vllm:")
                values[name] = values.get(name, 0.0) + float(value)
        return values

    def dial(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=PATIENCE)

    def begin(self, path: str, body: dict) -> socket.socket:
        """Sends a request and leaves the answer unread."""
        raw = json.dumps(body).encode()
        dialled = self.dial()
        head = f"POST {path} HTTP/1.1\r\nhost: sim\r\ncontent-length: {len(raw)}\r\n\r\n"
        dialled.sendall(head.encode() + raw)
        return dialled

    def wait_ready(self) -> None:
        wait_until(lambda: self.call("GET", "/health")[0] == 200)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def read_all(dialled: socket.socket) -> bytes:
    """Until the server closes."""
    parts = []
    while part := dialled.recv(65536):
        parts.append(part)
    return b"".join(parts)


def read_until(dialled: socket.socket, mark: bytes) -> bytes:
    data = b""
    while mark not in data:
        part = dialled.recv(65536)
        assert part, data
        data += part
    return data


def fall_silent(dialled: socket.socket) -> bytes:
    """Reads until nothing has come for a while; returns what came. The connection stays open."""
    dialled.settimeout(0.3)
    data = b""
    try:
        while part := dialled.recv(65536):
            data += part
    except TimeoutError:
        dialled.settimeout(PATIENCE)
        return data
    raise AssertionError(f"closed after {data!r}")


@pytest.fixture(name="wait_until")
def _wait_until() -> Callable[[Callable[[], bool]], None]:
    return wait_until


@pytest.fixture
def start_process() -> Iterator[Callable[..., SimProcess]]:
    """start_process(*flags): a process that need not listen."""
    started: list[SimProcess] = []

    def start(*flags: str) -> SimProcess:
        started.append(SimProcess(list(flags)))
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.fixture
def start_sim() -> Iterator[Callable[..., Sim]]:
    """start_sim(*flags): an engine that listens, perhaps still loading."""
    started: list[Sim] = []

    def start(*flags: str) -> Sim:
        started.append(Sim(list(flags)))
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.fixture(scope="module")
def sim() -> Iterator[Sim]:
    """A fast, healthy engine for tests that only ask it things."""
    one = Sim(
        ["--decode-rate", "2000", "--prefill-rate", "0", "--served-model-name", "greek,koine"]
    )
    one.wait_ready()
    yield one
    one.end()
