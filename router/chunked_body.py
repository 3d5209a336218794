"""A body in chunks, taken apart strictly, with the place where it ends.

Only what RFC 9112 (7.1) writes passes: CR LF after every size and every chunk, sizes in plain hexadecimal. Trailers
are refused: nobody here reads them, and a reader that skips them is a reader that can be made to disagree.
"""

from __future__ import annotations

#: A line with a chunk's size and its extensions.
LONGEST_LINE = 256
_HEX = frozenset(b"0123456789abcdefABCDEF")
_LONGEST_SIZE = 12


class BrokenChunks(Exception):
    """These bytes are no chunks, or have trailers after them."""


class ChunkedBody:
    """Fed with what arrives; the body's bytes go where ``feed`` is told."""

    __slots__ = ("_left", "_pending")

    def __init__(self) -> None:
        #: Bytes of the present chunk that are still to come, its CR LF (2) included; 0: a size comes.
        self._left = 0
        self._pending = b""

    def feed(self, data: bytes, into: bytearray) -> bytes | None:
        """None while more is to come, else what follows the body's end. Raises BrokenChunks."""
        if self._pending:
            data = self._pending + data
            self._pending = b""
        at = 0
        while True:
            if self._left:
                size = self._left - 2
                if size > 0:
                    piece = data[at : at + size]
                    into += piece
                    at += len(piece)
                    self._left -= len(piece)
                    if self._left > 2:
                        return None
                if not self._line_ends(data, at):
                    return None
                at += 2
                self._left = 0
            end = data.find(b"\r\n", at)
            if end < 0:
                self._pending = data[at:]
                _check_unfinished(self._pending)
                return None
            size = _size_of(data[at:end])
            if not size:
                # The last chunk stays pending with its line until the empty line is there.
                self._pending = data[at : end + 2]
                if not self._line_ends(data, end + 2):
                    return None
                return data[end + 4 :]
            at = end + 2
            self._left = size + 2

    def _line_ends(self, data: bytes, at: int) -> bool:
        """Whether CR LF stands here; False: it is not whole yet, and what there is of it is kept."""
        found = data[at : at + 2]
        if found == b"\r\n":
            self._pending = b""
            return True
        if found not in (b"", b"\r"):
            raise BrokenChunks
        self._pending += found
        return False


def _size_of(line: bytes) -> int:
    digits = line.partition(b";")[0]
    if not digits or len(digits) > _LONGEST_SIZE or not _HEX.issuperset(digits):
        raise BrokenChunks
    if len(line) > LONGEST_LINE or b"\r" in line or b"\n" in line:
        raise BrokenChunks
    return int(digits, 16)


def _check_unfinished(line: bytes) -> None:
    if len(line) > LONGEST_LINE or b"\n" in line or b"\r" in line[:-1]:
        raise BrokenChunks
