"""Heads of answers in HTTP/1.1, as bytes."""

from __future__ import annotations

from email.utils import formatdate
from http import HTTPStatus

from router.exchange import Headers


class AnswerHeads:
    """Begins of heads: status line and date, made anew each second and for each status."""

    def __init__(self, now: float) -> None:
        #: By status; a missing one is made by ``begin``.
        self.begins: dict[int, str] = {}
        self._second = int(now)
        self._date = formatdate(self._second, usegmt=True)

    def tick(self, now: float) -> None:
        """``now``: the wall clock, in seconds."""
        second = int(now)
        if second != self._second:
            self._second = second
            self._date = formatdate(second, usegmt=True)
            self.begins.clear()

    def begin(self, status: int) -> str:
        """Status line and ``date``, each with its end."""
        found = self.begins.get(status)
        if found is None:
            found = f"HTTP/1.1 {status} {_phrase(status)}\r\ndate: {self._date}\r\n"
            self.begins[status] = found
        return found


def header_lines(headers: Headers) -> str:
    """Lines with their ends. A control character in a value becomes a space: it cannot make a line."""
    lines = ""
    for name, value in headers:
        if not value.isprintable():
            value = "".join(each if each.isprintable() else " " for each in value)
        lines += f"{name}: {value}\r\n"
    return lines


def head_bytes(head: str) -> bytes:
    """Encoded as headers are; what they cannot say is ``?``."""
    return head.encode("latin-1", "replace")


def has_no_body(method: str, status: int) -> bool:
    """Whether an answer ends with its head."""
    return method == "HEAD" or status in (204, 304) or status < 200


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
