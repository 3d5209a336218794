"""``may_start``: the one gate on every route to a start."""

from __future__ import annotations

from typing import Literal, NamedTuple

NoKind = Literal["off", "stopped", "refused", "external"]


class MayNot(NamedTuple):
    """Why nothing of a model may start; ``text`` for a person."""

    kind: NoKind
    text: str


def may_start(
    *, most: int, stopped: bool, refused: str | None = None, external: bool = False
) -> MayNot | None:
    """None, or why not. ``most`` is the model's maximum of copies, ``refused`` why its stored
    definition was skipped."""
    if refused is not None:
        return MayNot("refused", f"definition refused: {refused}")
    if external:
        return MayNot("external", "served by its provider; nothing is placed for it")
    if stopped:
        return MayNot("stopped", "stopped by an operator; start it with: model start")
    if most == 0:
        return MayNot("off", "configured and deliberately not running; set scaling.max to run it")
    return None
