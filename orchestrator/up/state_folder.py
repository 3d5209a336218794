"""The folder of a one-machine cluster: its lock, its secrets, and what is running."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from orchestrator.up.errors import AlreadyRunning, CannotStart

#: Bytes for the store, the logs and the agent's files; with less the parts fail one by one.
LEAST_ROOM = 32_000_000
#: What our own secrets look like; a file that holds anything else was damaged.
_SECRET = re.compile(r"[!-~]{8,512}")


class Running(msgspec.Struct, frozen=True):
    """What a running ``llmgw up`` tells a second one."""

    pid: int
    router: str
    admin: str


def default_folder(environ: dict[str, str]) -> Path:
    """``$XDG_STATE_HOME/llmgw``, else ``~/.local/state/llmgw``."""
    base = environ.get("XDG_STATE_HOME")
    if base:
        return Path(base) / "llmgw"
    try:
        return Path.home() / ".local" / "state" / "llmgw"
    except RuntimeError:
        raise CannotStart(
            "where to keep the state cannot be told",
            "HOME is not set and this user has no home folder",
            "llmgw up --state FOLDER",
        ) from None


class StateFolder:
    """One folder, held by one process at a time by flock (a lock file would outlive its owner)."""

    def __init__(self, path: Path) -> None:
        # The parts get this path as an argument and are not all started where we are.
        self.path = path.absolute()
        self._lock: int | None = None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CannotStart(
                f"cannot write to {self.path}",
                f"{error.filename or self.path}: {error.strerror}",
                "llmgw up --state FOLDER, or make room and leave to write there",
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
        with self._writing():
            for folder in (
                *(self.path, self.logs, self.redis, self.run),
                *(self.agent, self.orchestrator),
            ):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
        with self._writing():
            # What a run that crashed has said of itself is not true of us.
            for stale in (self._running_file, *self.run.glob("*.json")):
                stale.unlink(missing_ok=True)
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
            facts = os.statvfs(self.path)
        free = facts.f_bavail * facts.f_frsize
        if free < LEAST_ROOM:
            self.release()
            raise CannotStart(
                f"the disk of {self.path} is full",
                f"{free / 1e6:.0f} MB are free, {LEAST_ROOM / 1e6:.0f} MB are needed",
                "llmgw up --state FOLDER on another disk, or make room",
            )

    def release(self) -> None:
        """Give the lock back; the kernel does the same when the process dies."""
        if self._lock is not None:
            with suppress(OSError):
                self._running_file.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def is_held(self) -> bool:
        """Whether some process holds the lock."""
        try:
            lock = os.open(self._lock_file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise CannotStart(f"cannot read {self._lock_file}", str(error.strerror)) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(lock)
        return False

    def holder(self) -> int | None:
        """The pid of the process that holds the lock, also while it is still starting."""
        try:
            return int(self._lock_file.read_bytes()) if self.is_held() else None
        except (OSError, ValueError):
            return None

    @property
    def _lock_file(self) -> Path:
        return self.path / "lock"

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
        with self._writing():
            part.unlink(missing_ok=True)
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            part.rename(path)
        return path

    def secret(self, name: str) -> str | None:
        """A key or password that was written here, or None where there is none that can be one."""
        try:
            kept = (self.path / name).read_bytes().decode("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None
        return kept if _SECRET.fullmatch(kept) else None

    def password(self) -> str:
        """The store's password: drawn once, then kept."""
        kept = self.secret("redis_password")
        if kept is None:
            kept = secrets.token_urlsafe(32)
            self.write_secret("redis_password", kept)
        return kept
