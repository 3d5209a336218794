"""Why a node does not do: a kind with numbers; the text for a person is made here only (R43)."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal[
    "state",
    "not_obeying",
    "drained",
    "avoided",
    "engine",
    "cards",
    "simulated",
    "memory",
    "cores",
    "disk",
    "selector",
    "fabric",
]

GB = 1_000_000_000


class Reason(NamedTuple):
    """One failed filter. ``needs`` and ``has`` are words with numbers (``24 GB``), ``detail`` more."""

    kind: Kind
    needs: str
    has: str
    detail: str = ""

    def text(self) -> str:
        """``memory: has 8 GB, needs 24 GB``."""
        words = f"{_WORDS[self.kind]}: has {self.has}, needs {self.needs}"
        return f"{words} ({self.detail})" if self.detail else words


_WORDS: dict[Kind, str] = {
    "state": "node",
    "not_obeying": "node",
    "drained": "node",
    "avoided": "node",
    "engine": "engine",
    "cards": "cards",
    "simulated": "cards",
    "memory": "memory",
    "cores": "cores",
    "disk": "disk",
    "selector": "label",
    "fabric": "fabric",
}


def gigabytes(count: float) -> str:
    """Bytes as GB for a person: whole from 100 up, else at most one decimal."""
    value = count / GB
    return f"{value:.0f} GB" if value >= 100 or value == int(value) else f"{value:.1f} GB"
