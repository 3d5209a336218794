"""Durations as people write them: ``90s``, ``15m``, ``1h``, ``500ms``, or a plain number of seconds."""

from __future__ import annotations

import re

from orchestrator.wire.errors import BadDuration

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?")


def seconds_of(written: str | int | float) -> float:
    """The duration in seconds; BadDuration names what was written and what to write instead."""
    if isinstance(written, bool):
        raise BadDuration(f"{written!r} is not a duration; write for example 90s, 15m or 1h")
    if isinstance(written, int | float):
        if written < 0:
            raise BadDuration(f"{written!r} is negative; write for example 90s, 15m or 1h")
        return float(written)
    match = _FORM.fullmatch(written.strip())
    if match is None:
        raise BadDuration(f"{written!r} is not a duration; write for example 90s, 15m or 1h")
    return float(match[1]) * _UNITS[match[2] or "s"]
