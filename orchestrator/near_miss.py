"""The name that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near_miss(written: str, known: Iterable[str]) -> str | None:
    """The known name nearest to what was written, or None when none is near."""
    names = sorted(known)
    starting = [name for name in names if written and name.startswith(written)]
    close = difflib.get_close_matches(written, names, n=1, cutoff=0.6)
    if len(starting) == 1:
        return starting[0]
    return close[0] if close else None
