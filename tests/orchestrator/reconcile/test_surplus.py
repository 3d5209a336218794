"""Which copy is let go first."""

from __future__ import annotations

import msgspec
import pytest

from orchestrator.reconcile.surplus import surplus
from tests.orchestrator.reconcile.test_transitions import record_in


def copy(generation: int, state="ready", **more):
    return msgspec.structs.replace(
        record_in(state), id=f"r{generation}", generation=generation, **more
    )


@pytest.mark.parametrize(
    ("copies", "expected"),
    [
        ([copy(1), copy(2, "starting"), copy(3, "preparing")], [3, 2]),
        ([copy(1), copy(2, returned=True), copy(3, returned=True)], [2, 3]),
        ([copy(1), copy(2), copy(3)], [3, 2]),
        ([copy(1, "starting"), copy(2, returned=True), copy(3)], [1, 2]),
    ],
)
def test_order(copies, expected):
    gone = surplus(copies, 1, lambda one: False, lambda one: 0)
    assert [one.generation for one in gone] == expected


def test_drained_nodes_before_few_requests_before_age():
    copies = [copy(1), copy(2), copy(3), copy(4)]
    held = {1: 0, 2: 5, 3: 5, 4: 1}
    gone = surplus(copies, 0, lambda one: one.generation == 2, lambda one: held[one.generation])
    assert [one.generation for one in gone] == [2, 1, 4, 3]


def test_none_where_there_are_few_enough():
    assert surplus([copy(1)], 1, lambda one: False, lambda one: 0) == []
    assert surplus([copy(1)], 3, lambda one: False, lambda one: 0) == []
