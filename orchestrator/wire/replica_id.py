"""A replica's id is its generation in base 32 (Crockford's digits in lower case: no i, l, o, u)."""

from __future__ import annotations

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"


def replica_id(generation: int) -> str:
    """The id of the replica of that generation."""
    if generation <= 0:
        raise ValueError(f"a generation is a positive number, not {generation}")
    digits: list[str] = []
    while generation:
        generation, rest = divmod(generation, 32)
        digits.append(_DIGITS[rest])
    return "".join(reversed(digits))


def next_generation(last: int, now_ms: int) -> int:
    """A generation never given before: above the last one and not below Redis's clock in ms."""
    return max(last + 1, now_ms)
