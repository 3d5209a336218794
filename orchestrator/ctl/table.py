"""Plain tables: blanks between columns, upper-case heads, no frames; a row is always one line.

When a row is wider than the terminal the last column (NOTE) is cut first, down to a few words; then
the columns that are spare are left out (``-o wide`` shows them); then the widest gives way, the
first (the name that one types) last of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.text import Text

GAP = "  "
_CUT = "…"
#: No column is cut below this.
_LEAST = 6
#: NOTE keeps this much as long as a spare column can go instead.
_LEAST_NOTE = 20

_COLOURED = ("STATE", "LEVEL", "VERDICT")
#: Colour of a state's word; other words stay plain.
STATE_COLOURS = {
    "ready": "green",
    "external": "green",
    "leader": "green",
    "fits": "green",
    "loading": "cyan",
    "preparing": "cyan",
    "starting": "cyan",
    "draining": "cyan",
    "drained": "yellow",
    "stopping": "yellow",
    "unreachable": "yellow",
    "pending": "yellow",
    "warning": "yellow",
    "unconfirmed": "yellow",
    "lost": "red",
    "failed": "red",
    "stuck": "red",
    "problem": "red",
    "error": "red",
    "refused": "red",
    "off": "dim",
    "idle": "dim",
}


class Column(NamedTuple):
    """A head; whether its cells are numbers (right-aligned); how early it gives way (0: never)."""

    head: str
    right: bool = False
    spare: int = 0


def _cut(cell: str, width: int) -> str:
    return cell if len(cell) <= width else cell[: width - 1] + _CUT


def _one_line(cell: str) -> str:
    return " ".join(cell.split())


def _over(widths: Sequence[int], available: int) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1) - available


def fit(columns: Sequence[Column], widths: Sequence[int], available: int | None) -> dict[int, int]:
    """Index of each column that is shown -> its width. ``available`` None: as wide as it likes."""
    shown = dict(enumerate(widths))
    if available is None or not shown:
        return shown
    last = len(columns) - 1
    note = min(shown[last], _LEAST_NOTE)
    for index in sorted(shown, key=lambda index: -columns[index].spare):
        if not columns[index].spare or _over([*list(shown.values())[:-1], note], available) <= 0:
            break
        del shown[index]
    over = _over(list(shown.values()), available)
    if over > 0:
        taken = min(over, max(0, shown[last] - _LEAST))
        shown[last] -= taken
        over -= taken
    while over > 0:
        widest = max(shown, key=lambda index: (shown[index] if index else 0, shown[index]))
        if shown[widest] <= _LEAST:
            widest = 0
        if shown[widest] <= _LEAST:
            break
        shown[widest] -= 1
        over -= 1
    return shown


def lines(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    width: int | None,
    *,
    heads: bool = True,
) -> list[Text]:
    """The table's lines. ``width`` None: nothing is cut (not a terminal, or wide)."""
    clean = [[_one_line(cell) for cell in row] for row in rows]
    widest = [
        max([len(column.head) if heads else 0, *(len(row[index]) for row in clean)])
        for index, column in enumerate(columns)
    ]
    widths = fit(columns, widest, width)
    out: list[Text] = []
    if heads:
        out.append(_line(columns, [column.head for column in columns], widths, coloured=False))
    out.extend(_line(columns, row, widths, coloured=True) for row in clean)
    return out


def _line(
    columns: Sequence[Column], cells: Sequence[str], widths: Mapping[int, int], *, coloured: bool
) -> Text:
    line = Text(no_wrap=True)
    last = len(columns) - 1
    for index, width in widths.items():
        column, cell = columns[index], cells[index]
        shown = _cut(cell, width)
        if column.right:
            shown = shown.rjust(width)
        elif index != last:
            shown = shown.ljust(width)
        state = column.head in _COLOURED
        colour = STATE_COLOURS.get(cell.partition(" ")[0], "") if coloured and state else ""
        line.append(shown, style=colour)
        if index != last:
            line.append(GAP)
    line.rstrip()
    return line
