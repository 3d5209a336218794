"""Routing hashes: digests of the beginnings of a prompt."""

from collections.abc import Sequence

def xxh64(data: bytes | bytearray | memoryview, seed: int = 0) -> int:
    """XXH64 of `data`, 0 to 2**64 - 1."""

def chain(text: bytes | bytearray | memoryview, ends: Sequence[int] = ()) -> list[tuple[int, int]]:
    """(position, digest) of each boundary of `text`, ascending: every 256 bytes up to 2,048, then the powers of two,
    and the first 8 and last 56 of `ends`. Equal beginnings have equal digests.

    `ends`: byte positions where messages end, ascending, within the text (else ValueError).
    """

def mix(digest: int, seed: int) -> int:
    """`digest` for one model, adapter and salt; different digests stay different under one seed."""

def seed(*parts: bytes) -> int:
    """A seed for `mix` from any number of parts; where one part ends and the next begins matters."""
