"""A cgroup (v2) of its own for each engine, where the system lets us: nothing leaves it.

No controller is switched on in it: it only names and kills what belongs to one engine.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

_PREFIX = "llmgw-"
_ID_SHOWN = 8


def engine_cgroup(node_id: str, generation: int) -> Path | None:
    """Where this engine's cgroup would be, or None where we may not make one."""
    parent = _parent()
    if parent is None or not os.access(parent, os.W_OK):
        return None
    return parent / f"{_PREFIX}{node_id[:_ID_SHOWN]}-{generation}"


def enter_cgroup(cgroup: Path, pid: int) -> Path | None:
    """Puts the process into its own cgroup; None where the system does not let us."""
    try:
        cgroup.mkdir(exist_ok=True)
        (cgroup / "cgroup.procs").write_text(str(pid))
    except OSError:
        remove_cgroup(cgroup)
        return None
    return cgroup


def kill_cgroup(cgroup: Path | None) -> None:
    """SIGKILL to all in it at once, where the kernel can (5.14)."""
    if cgroup is not None:
        with contextlib.suppress(OSError):
            (cgroup / "cgroup.kill").write_text("1")


def remove_cgroup(cgroup: Path | None) -> bool:
    """False while it is busy."""
    if cgroup is None:
        return True
    try:
        cgroup.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def sweep_cgroups(node_id: str, kept: Collection[int]) -> bool:
    """Removes this node's cgroups of engines that are not in ``kept``; False when one is busy."""
    parent = _parent()
    if parent is None:
        return True
    mine = f"{_PREFIX}{node_id[:_ID_SHOWN]}-"
    removed = True
    for cgroup in parent.glob(mine + "*"):
        generation = cgroup.name.removeprefix(mine)
        if generation.isdecimal() and int(generation) not in kept:
            removed = remove_cgroup(cgroup) and removed
    return removed


def _parent() -> Path | None:
    """Our own cgroup in the v2 tree."""
    try:
        own = next(
            line.split("::", 1)[1]
            for line in Path("/proc/self/cgroup").read_text().splitlines()
            if line.startswith("0::")
        )
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        root = next(m.split()[1] for m in mounts if m.split()[2] == "cgroup2")
    except (OSError, StopIteration):
        return None
    return Path(root + own.rstrip("/"))
