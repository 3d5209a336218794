"""Numbers as an operator reads them. Unknown is "-", never 0 (R171)."""

from __future__ import annotations

from datetime import UTC, datetime

UNKNOWN = "-"
_GB = 10**9


def age(seconds: float | None) -> str:
    """45s, 12m, 3h, 4d."""
    if seconds is None:
        return UNKNOWN
    whole = max(0, int(seconds))
    for length, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if whole >= length:
            return f"{whole // length}{unit}"
    return f"{whole}s"


def number(value: float | None) -> str:
    """61, 2.1k, 84.2k, 61.2M."""
    if value is None:
        return UNKNOWN
    for thousand, unit in ((10**6, "M"), (10**3, "k")):
        if abs(value) >= thousand:
            return f"{value / thousand:.1f}{unit}"
    return f"{value:.0f}"


def percent(share: float | None) -> str:
    """A share of 1 as a whole number of hundredths."""
    return UNKNOWN if share is None else f"{share * 100:.0f}"


def size(amount: float | None) -> str:
    """Bytes in GB or TB (powers of ten): 0.3G, 6.1G, 512G, 1.0T."""
    if amount is None:
        return UNKNOWN
    gb = amount / _GB
    if gb >= 1000:
        return f"{gb / 1000:.1f}T"
    return f"{gb:.0f}G" if gb >= 100 or gb == 0 else f"{gb:.1f}G"


def of_total(part: float | None, total: float | None) -> str:
    """``0.5G/16.0G``, each unknown by itself; nothing known is one dash."""
    if part is None and total is None:
        return UNKNOWN
    return f"{size(part)}/{size(total)}"


def counts(part: float | None, total: float | None) -> str:
    """``1/2``; nothing known is one dash."""
    if part is None and total is None:
        return UNKNOWN
    return f"{number(part)}/{number(total)}"


def seconds_since(written: str, now: datetime) -> float | None:
    """Seconds from an RFC 3339 time until ``now``; None when it is not one."""
    try:
        then = datetime.fromisoformat(written)
    except ValueError:
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return (now - then).total_seconds()
