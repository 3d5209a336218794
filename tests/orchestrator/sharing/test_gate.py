"""The one gate."""

from __future__ import annotations

import pytest

from orchestrator.sharing.classes import class_of, rank_of
from orchestrator.sharing.gate import may_start


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"most": 1, "stopped": False}, None),
        ({"most": 0, "stopped": False}, "off"),
        ({"most": 1, "stopped": True}, "stopped"),
        ({"most": 0, "stopped": True}, "stopped"),
        ({"most": 1, "stopped": False, "refused": "bad"}, "refused"),
        ({"most": 0, "stopped": False, "external": True}, "external"),
    ],
)
def test_may_start(given, kind):
    found = may_start(**given)
    assert (None if found is None else found.kind) == kind


def test_classes():
    assert [class_of(None, 1), class_of(None, 0), class_of(None, 0, True)] == [
        "standard",
        "opportunistic",
        "standard",
    ]
    assert class_of("critical", 0) == "critical"
    assert rank_of("critical") < rank_of("standard") < rank_of("opportunistic")
