"""Which copies are too many: one answer for scale-down, return, adoption and a lowered maximum."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.reconcile.records import Record


def surplus(
    live: Sequence[Record],
    keep: int,
    on_drained: Callable[[Record], bool],
    held: Callable[[Record], int],
) -> list[Record]:
    """The ``len(live) - keep`` copies to let go, first one first: not yet ready (newest first),
    returned ones (older generation first), on drained nodes, fewest requests held, newest."""
    return sorted(live, key=lambda record: _order(record, on_drained, held))[
        : max(0, len(live) - keep)
    ]


def _order(
    record: Record, on_drained: Callable[[Record], bool], held: Callable[[Record], int]
) -> tuple[int, int, int]:
    if record.state != "ready":
        return (0, 0, -record.generation)
    if record.returned:
        return (1, 0, record.generation)
    if on_drained(record):
        return (2, 0, -record.generation)
    return (3, held(record), -record.generation)
