"""CPUs and memory that this process may really use: affinity, cgroup quota, cgroup limit."""

from __future__ import annotations

import math
import os
from pathlib import Path

_V2 = Path("/sys/fs/cgroup")


def cpu_count() -> int:
    """Whole CPUs: those of the affinity mask, or fewer where a cgroup quota allows less."""
    affinity = len(os.sched_getaffinity(0))
    quota = min(
        (q for text in _limits("cpu.max") if (q := quota_of(text)) is not None), default=None
    )
    if quota is None:
        quota = _quota_v1()
    return affinity if quota is None else max(1, min(affinity, math.floor(quota)))


def quota_of(text: str) -> float | None:
    """CPUs allowed by the content of cpu.max, None for ``max`` (no limit)."""
    quota, _, period = text.strip().partition(" ")
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0:
        return None
    return int(quota) / int(period)


def memory() -> tuple[int | None, int | None]:
    """(total, available) bytes, each bounded by the cgroup; None where unknown."""
    total, available = meminfo(_read(Path("/proc/meminfo")) or "")
    limits = [int(t) for t in _limits("memory.max") if t.strip().isdecimal()]
    v1 = _read(_V2 / "memory/memory.limit_in_bytes")
    if v1 is not None and v1.strip().isdecimal():
        limits.append(int(v1))
    for limit in limits:
        if total is not None and limit < total:
            total = limit
    if available is not None and total is not None:
        available = min(available, total)
    return total, available


def meminfo(text: str) -> tuple[int | None, int | None]:
    """(MemTotal, MemAvailable) in bytes from the text of /proc/meminfo."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            found[name] = int(rest.split()[0]) * 1024
    return found.get("MemTotal"), found.get("MemAvailable")


def load_average() -> float:
    """Runnable processes over the last minute."""
    return os.getloadavg()[0]


def _limits(name: str) -> list[str]:
    """The content of that file in our own cgroup and each above it (v2)."""
    own = next(
        (
            line.split("::", 1)[1]
            for line in (_read(Path("/proc/self/cgroup")) or "").splitlines()
            if line.startswith("0::")
        ),
        None,
    )
    if own is None:
        return []
    folder = _V2 / own.strip("/")
    texts = [
        _read(level / name) for level in (folder, *folder.parents) if level.is_relative_to(_V2)
    ]
    return [text for text in texts if text is not None]


def _quota_v1() -> float | None:
    quota = _read(_V2 / "cpu/cpu.cfs_quota_us")
    period = _read(_V2 / "cpu/cpu.cfs_period_us")
    return (
        None if quota is None or period is None else quota_of(f"{quota.strip()} {period.strip()}")
    )


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
