"""One engine as a process: started detached, watched, ended with proof.

The child is a shell that waits for one line before it becomes the engine. In between, its pid and
start time are written to disk, so an engine without a record cannot exist: if the agent dies first,
the pipe closes and the child ends without having started anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from agent.engine_cgroup import enter_cgroup, kill_cgroup, remove_cgroup
from agent.errors import LaunchFailed
from agent.process_facts import (
    MARK_VARIABLE,
    Identity,
    boot_id,
    hash_of,
    is_alive,
    members,
    send_signal,
    stat_of,
)

_SHELL = "/bin/sh"
_WAIT_THEN_BECOME = 'read -r go <&3 && exec 3<&- && cd "$1" && shift && exec "$@"'
_LOOK_EVERY = 0.1
_REMOVE_TRIES = 20
#: Signals that Python ignores or handles and an engine must find as they are by default.
_DEFAULT_SIGNALS = (
    signal.SIGPIPE,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGXFSZ,
)


class Ending(NamedTuple):
    """How an end went: ``left`` are the pids that could not be brought to an end."""

    left: list[int]
    killed: bool


class EngineProcess:
    """A live engine of ours, our child or adopted."""

    def __init__(self, identity: Identity, cgroup: Path | None) -> None:
        self.identity = identity
        self.cgroup = cgroup
        #: Known only for our own children; negative: minus the signal.
        self.exit_code: int | None = None
        self._gone = asyncio.Event()
        self._fd: int | None = None
        self._watch()

    def _watch(self) -> None:
        try:
            fd = os.pidfd_open(self.identity.pid)
        except ProcessLookupError:
            self._note_exit()
            return
        # The pid may have been taken by another between our looks; after this one it cannot.
        if not is_alive(self.identity):
            os.close(fd)
            self._note_exit()
            return
        self._fd = fd
        asyncio.get_running_loop().add_reader(fd, self._on_exit)

    def _on_exit(self) -> None:
        self.unwatch()
        self._note_exit()

    def _note_exit(self) -> None:
        with contextlib.suppress(ChildProcessError):
            pid, status = os.waitpid(self.identity.pid, os.WNOHANG)
            if pid:
                self.exit_code = os.waitstatus_to_exitcode(status)
        self._gone.set()

    def unwatch(self) -> None:
        """Lets go of the process; it lives on."""
        if self._fd is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

    @property
    def has_exited(self) -> bool:
        """Whether the main process is gone (others of its session may live)."""
        return self._gone.is_set()

    async def exited(self) -> None:
        """Returns when the main process is gone."""
        await self._gone.wait()

    def members(self) -> dict[int, int]:
        """pid -> start time of all that lives of this engine."""
        return members(self.identity, self.cgroup)

    async def end(self, grace: float, verify: float) -> Ending:
        """SIGTERM, up to ``grace`` seconds, SIGKILL, up to ``verify`` seconds until nothing is left."""
        if not self.has_exited:
            for pid, start in self._group().items():
                send_signal(pid, start, signal.SIGTERM)
            await self._until_empty(grace)
        killed = False
        limit = asyncio.get_running_loop().time() + verify
        while (left := self.members()) and asyncio.get_running_loop().time() < limit:
            killed = True
            self._kill(left)
            await asyncio.sleep(_LOOK_EVERY)
        if not left:
            if self._fd is not None:
                await self.exited()
            await self._remove_cgroup()
        return Ending(sorted(left), killed)

    async def _remove_cgroup(self) -> None:
        """The kernel keeps a cgroup busy for a moment after its last process."""
        for _ in range(_REMOVE_TRIES):
            if remove_cgroup(self.cgroup):
                return
            await asyncio.sleep(_LOOK_EVERY)

    def _group(self) -> dict[int, int]:
        """The members in the main process's own group: those who are asked politely."""
        group: dict[int, int] = {}
        for pid, start in self.members().items():
            stat = stat_of(pid)
            if stat is not None and stat.group == self.identity.pid:
                group[pid] = start
        return group

    async def _until_empty(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.members():  # noqa: ASYNC110 - nothing tells when a session is empty
                    await asyncio.sleep(_LOOK_EVERY)

    def _kill(self, left: Mapping[int, int]) -> None:
        kill_cgroup(self.cgroup)
        for pid, start in left.items():
            send_signal(pid, start, signal.SIGKILL)


def launch(
    argv: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    mark: str,
    cgroup: Path | None,
    record: Callable[[Identity], None],
) -> EngineProcess:
    """Starts ``argv`` in its own session with ``folder`` as working folder and ``folder/log`` as output.

    ``record`` is called with the identity before the engine's program runs, and must have written it
    to disk when it returns; if it raises, nothing is started. LaunchFailed when the child cannot be
    made.
    """
    ready, go = os.pipe()
    try:
        pid = _spawn(argv, {**env, MARK_VARIABLE: mark}, folder, ready)
    except OSError as error:
        os.close(go)
        raise LaunchFailed(f"cannot start {argv[0]}: {error}") from None
    finally:
        os.close(ready)
    try:
        stat = stat_of(pid)
        assert stat is not None, "our own child keeps its number until it is waited for"
        identity = Identity(pid, stat.start, boot_id(), hash_of(argv), mark)
        if cgroup is not None:
            cgroup = enter_cgroup(cgroup, pid)
        record(identity)
        with contextlib.suppress(BrokenPipeError):  # the child died: its exit tells
            os.write(go, b"go\n")
    except BaseException:
        os.close(go)
        os.waitpid(pid, 0)
        remove_cgroup(cgroup)
        raise
    os.close(go)
    return EngineProcess(identity, cgroup)


def _spawn(argv: Sequence[str], env: Mapping[str, str], folder: Path, ready: int) -> int:
    log = os.fspath(folder / "log")
    appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        _SHELL,
        ["sh", "-c", _WAIT_THEN_BECOME, "engine", os.fspath(folder), *argv],
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, appending, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            (os.POSIX_SPAWN_DUP2, ready, 3),
            *((os.POSIX_SPAWN_CLOSE, fd) for fd in _inherited() if fd > 3),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=_DEFAULT_SIGNALS,
    )


def _inherited() -> list[int]:
    """Open files that a child would get: a detached engine must not hold our starter's pipes open."""
    inherited: list[int] = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one by which the folder was read
            if os.get_inheritable(int(name)):
                inherited.append(int(name))
    return inherited
