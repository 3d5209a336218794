"""What /proc says about processes: who is who, and who belongs to an engine.

A process is known by pid *and* start time (*and* the boot), because pids are used again. What belongs
to an engine is found three ways, since each alone has a hole: its session (a child may leave it), the
mark in its environment (a child may clear it), its cgroup (may not be writable).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

#: In the environment of every process of an engine; the value names the engine.
MARK_VARIABLE = "LLMGW_ENGINE"
_PROC = Path("/proc")
_EXEC_LOOKS = 20
_EXEC_PAUSE = 0.01  # seconds


class Identity(msgspec.Struct, frozen=True):
    """One process for ever: ``start`` in clock ticks since that boot. ``command``: hash of its argv."""

    pid: int
    start: int
    boot: str
    command: str
    mark: str


class Stat(NamedTuple):
    """From /proc/PID/stat."""

    state: str
    parent: int
    group: int
    session: int
    start: int

    @property
    def dead(self) -> bool:
        """A zombie holds nothing but its number."""
        return self.state in ("Z", "X")


def boot_id() -> str:
    """Changes with each boot of the machine."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def stat_of(pid: int) -> Stat | None:
    """None when there is no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return Stat(fields[0], int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def hash_of(argv: Sequence[str]) -> str:
    """A short hash of a command line."""
    joined = b"\0".join(os.fsencode(word) for word in argv)
    return hashlib.sha256(joined).hexdigest()[:32]


def command_hash(pid: int) -> str | None:
    """The hash of a live process's command line; None when it is gone."""
    try:
        raw = (_PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return hashlib.sha256(raw.removesuffix(b"\0")).hexdigest()[:32]


def is_alive(identity: Identity) -> bool:
    """Whether exactly this process lives."""
    stat = stat_of(identity.pid)
    return (
        stat is not None
        and not stat.dead
        and stat.start == identity.start
        and identity.boot == boot_id()
    )


def is_ours(identity: Identity) -> str | None:
    """None when this very process lives with our command line or mark, else what does not match."""
    if not is_alive(identity):
        return "gone"
    for _ in range(_EXEC_LOOKS):
        if command_hash(identity.pid) == identity.command:
            return None
        # An engine may set its own title; then the mark in its environment speaks for it.
        environ = _environ(identity.pid)
        if _is_marked(environ, identity.mark):
            return None
        if environ:
            break
        # For a moment of its exec a process has neither; ours is never without for longer.
        time.sleep(_EXEC_PAUSE)
    return "command line differs"


def members(identity: Identity, cgroup: Path | None = None) -> dict[int, int]:
    """pid -> start time of every live process that belongs to the engine."""
    if identity.boot != boot_id():
        return {}
    leader = stat_of(identity.pid)
    # A session's number stays taken while it has members, so another start time means: none left.
    session_known = leader is None or leader.start == identity.start
    in_cgroup = set(_pids_in(cgroup))
    found: dict[int, int] = {}
    for pid in _all_pids():
        stat = stat_of(pid)
        if stat is None or stat.dead:
            continue
        if (
            (session_known and stat.session == identity.pid)
            or pid in in_cgroup
            or _has_mark(pid, identity.mark)
        ):
            found[pid] = stat.start
    return found


def marked(mark: str) -> dict[int, int]:
    """pid -> start time of every live process that carries this mark."""
    found: dict[int, int] = {}
    for pid in _all_pids():
        stat = stat_of(pid)
        if stat is not None and not stat.dead and _has_mark(pid, mark):
            found[pid] = stat.start
    return found


def send_signal(pid: int, start: int, number: signal.Signals) -> bool:
    """Signals exactly that process; False when it is gone or not ours to signal."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        stat = stat_of(pid)
        if stat is None or stat.start != start:
            return False
        signal.pidfd_send_signal(fd, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(fd)
    return True


def private_memory(pids: Sequence[int]) -> int | None:
    """Bytes of memory without file-backed pages (mapped weights are page cache), summed."""
    total: int | None = None
    for pid in pids:
        with contextlib.suppress(OSError, ValueError):
            for line in (_PROC / str(pid) / "status").read_text().splitlines():
                if line.startswith(("RssAnon:", "RssShmem:")):
                    total = (total or 0) + int(line.split()[1]) * 1024
    return total


def _all_pids() -> Iterator[int]:
    return (int(name) for name in os.listdir(_PROC) if name.isdecimal())


def _pids_in(cgroup: Path | None) -> list[int]:
    if cgroup is None:
        return []
    try:
        return [int(line) for line in (cgroup / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _has_mark(pid: int, mark: str) -> bool:
    return _is_marked(_environ(pid), mark)


def _is_marked(environ: bytes, mark: str) -> bool:
    return f"{MARK_VARIABLE}={mark}".encode() in environ.split(b"\0")


def _environ(pid: int) -> bytes:
    """Empty where it cannot be read."""
    try:
        return (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return b""
