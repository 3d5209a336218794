"""Whether a model's source exists, as far as this machine and the nodes' reports can tell.

"Not found" is said only where somebody looked: a ``file:`` path is on the nodes, and a node that has
never been asked for it is no witness against it (R41).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec import UNSET

from orchestrator.wire.profile import Profile
from orchestrator.wire.reports import Full

Verdict = Literal["found", "missing", "unknown"]
_FILE = "file:"


class SourceFound(NamedTuple):
    """What is known of one source. ``size`` in bytes, None unknown; ``text`` for a person."""

    source: str
    verdict: Verdict
    text: str
    size: int | None = None


def _is_here(address: str) -> bool:
    host = address.rpartition(":")[0] if address.count(":") == 1 else address
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def size_on_disk(path: Path) -> int | None:
    """Bytes of a file, or of all files in a folder; None when there is nothing. Reads the disk."""
    try:
        if path.is_dir():
            return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
        return path.stat().st_size
    except OSError:
        return None


def check_source(source: str, fulls: Iterable[Full]) -> SourceFound:
    """One source, by what the nodes reported, and by this disk when every node is on this machine."""
    seen = list(fulls)
    for full in seen:
        for weights in full.weights:
            if weights.source == source and weights.complete:
                size = None if weights.size is UNSET else weights.size
                return SourceFound(source, "found", f"node {full.node} has it", size)
    if not source.startswith(_FILE):
        return SourceFound(source, "unknown", "it is looked for when a node fetches it")
    if not seen or not all(_is_here(full.inventory.address) for full in seen):
        return SourceFound(source, "unknown", "no node has been asked for this path yet")
    path = Path(source.removeprefix(_FILE))
    size = size_on_disk(path)
    if size is None:
        return SourceFound(source, "missing", f"there is no {path} on this machine")
    return SourceFound(source, "found", "it is on this machine", size)


def check_sources(profiles: Sequence[Profile], fulls: Iterable[Full]) -> list[SourceFound]:
    """Every source of a model's profiles, once each."""
    seen = list(fulls)
    sources = dict.fromkeys(profile.source for profile in profiles if profile.source is not UNSET)
    return [check_source(source, seen) for source in sources]
