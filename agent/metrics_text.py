"""Reads the few numbers we need from an engine's Prometheus text. A core.

Absent, unreadable or NaN is unknown, never 0 (FO20).
"""

from __future__ import annotations

import math
from collections.abc import Iterator


def samples(text: str) -> Iterator[tuple[str, float]]:
    """(metric name without labels, value) of each line that is a sample."""
    for line in text.splitlines():
        if not line or line[0] == "#":
            continue
        brace = line.find("{")
        if brace >= 0:
            name, rest = line[:brace], line[line.rfind("}") + 1 :].split()
        else:
            name, *rest = line.split()
        if not rest:
            continue
        try:
            value = float(rest[0])
        except ValueError:
            continue
        if not math.isnan(value):
            yield name.strip(), value


def totals(text: str, wanted: frozenset[str]) -> dict[str, float]:
    """Each wanted metric that is there, summed over its label sets (an engine may have several)."""
    found: dict[str, float] = {}
    for name, value in samples(text):
        if name in wanted:
            found[name] = found.get(name, 0.0) + value
    return found


def first_of(found: dict[str, float], names: str | None) -> float | None:
    """The value under the first of the ``|``-separated names that is there."""
    for name in (names or "").split("|"):
        if name in found:
            return found[name]
    return None
