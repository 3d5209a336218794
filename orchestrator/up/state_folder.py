"""The folder of a one-machine cluster: its lock, its secrets, and what is running."""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path

import msgspec

from orchestrator.up.errors import AlreadyRunning, CannotStart


class Running(msgspec.Struct, frozen=True):
    """What a running ``llmgw up`` tells a second one."""

    pid: int
    router: str
    admin: str


def default_folder(environ: dict[str, str]) -> Path:
    """``$XDG_STATE_HOME/llmgw``, else ``~/.local/state/llmgw``."""
    base = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "llmgw"


class StateFolder:
    """One folder, held by one process at a time by flock (a lock file would outlive its owner)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None
        try:
            for folder in (path, self.logs, self.redis, self.run, self.agent, self.orchestrator):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CannotStart(
                f"cannot write to {path}", str(error.strerror), "llmgw up --state FOLDER"
            ) from None

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def redis(self) -> Path:
        return self.path / "redis"

    @property
    def run(self) -> Path:
        return self.path / "run"

    @property
    def agent(self) -> Path:
        return self.path / "agent"

    @property
    def orchestrator(self) -> Path:
        return self.path / "orchestrator"

    def hold(self) -> None:
        """Take the lock; AlreadyRunning says where the other one answers."""
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            other = self.running()
            where = f"it answers at {other.router} (pid {other.pid})" if other else "it is starting"
            raise AlreadyRunning(
                "one llmgw is already running here",
                where,
                "llmgw up --stop ends it; llmgw up --state OTHER_FOLDER starts a second one",
            ) from None
        self._lock = lock
        for stale in self.run.glob("*.json"):
            stale.unlink()

    def release(self) -> None:
        """Give the lock back; the kernel does the same when the process dies."""
        self._running_file.unlink(missing_ok=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def is_held(self) -> bool:
        """Whether some process holds the lock."""
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(lock)
        return False

    @property
    def _running_file(self) -> Path:
        return self.path / "running.json"

    def say_running(self, running: Running) -> None:
        """Write what a second ``up`` reads."""
        self.write_secret("running.json", msgspec.json.encode(running).decode())

    def running(self) -> Running | None:
        """What the holder of the lock has written, if it has."""
        try:
            return msgspec.json.decode(self._running_file.read_bytes(), type=Running)
        except (OSError, msgspec.MsgspecError):
            return None

    def write_secret(self, name: str, text: str) -> Path:
        """A file that only its owner reads, written whole or not at all."""
        path = self.path / name
        part = path.with_name(path.name + ".part")
        part.unlink(missing_ok=True)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
        return path

    def read(self, name: str) -> str | None:
        """A file's text without white space around it, or None where there is none."""
        try:
            return (self.path / name).read_text().strip() or None
        except OSError:
            return None

    def password(self) -> str:
        """The store's password: drawn once, then kept."""
        kept = self.read("redis_password")
        if kept is None:
            kept = secrets.token_urlsafe(32)
            self.write_secret("redis_password", kept)
        return kept
