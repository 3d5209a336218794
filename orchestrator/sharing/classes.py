"""Classes of models and what an unset one follows (R101)."""

from __future__ import annotations

from typing import Literal

ModelClass = Literal["critical", "standard", "opportunistic"]
#: Highest first.
CLASSES: tuple[ModelClass, ...] = ("critical", "standard", "opportunistic")


def class_of(written: str | None, minimum: int, external: bool = False) -> ModelClass:
    """The class in force: the written one; else standard where something always runs (or where
    nothing is placed at all, an external model), opportunistic for the rest."""
    for known in CLASSES:
        if written == known:
            return known
    return "standard" if minimum > 0 or external else "opportunistic"


def rank_of(klass: str) -> int:
    """0 for the highest class; classes are asked in this order."""
    return CLASSES.index(klass) if klass in CLASSES else len(CLASSES)
