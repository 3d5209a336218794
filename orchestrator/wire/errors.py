"""Errors of the wire package."""

from __future__ import annotations


class WireError(Exception):
    """Base of this package's errors; never raised itself."""


class UnreadableMessage(WireError):
    """A peer sent bytes that are not a message this side knows."""


class NameClash(WireError):
    """Two things of one catalog want the same client-visible name (R15)."""

    def __init__(self, name: str, first: str, second: str) -> None:
        super().__init__(
            f"the name {name!r} is wanted by {first} and by {second}; rename one of them"
        )
        self.name = name
        self.first = first
        self.second = second


class BadDuration(WireError, ValueError):
    """A duration that is not a number with one of the units ms, s, m, h."""
