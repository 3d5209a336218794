"""The file systems that weights are looked for on or fetched to."""

from __future__ import annotations

import os
from collections.abc import Iterable

from orchestrator.wire.reports import Disk


def disks(folders: Iterable[str]) -> list[Disk]:
    """One entry per folder that is there; bytes; ``free`` is what we may use."""
    found: list[Disk] = []
    for folder in dict.fromkeys(folders):
        try:
            facts = os.statvfs(folder)
        except OSError:
            continue
        size = facts.f_frsize
        found.append(Disk(folder, facts.f_blocks * size, facts.f_bavail * size))
    return found
