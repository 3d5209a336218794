"""Bodies of changes, read into values; what does not fit is refused by place."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from aiohttp import web

from orchestrator.errors import CatalogRefused
from orchestrator.wire.durations import seconds_of
from orchestrator.wire.errors import BadDuration

T = TypeVar("T")


class ModelBody(msgspec.Struct, forbid_unknown_fields=True):
    """POST /api/models."""

    definition: dict[str, Any]
    replace: bool = False


class KeyBody(msgspec.Struct, forbid_unknown_fields=True):
    """POST /api/keys. ``expires``: a duration from now (``30d`` is 720h); absent: never."""

    name: str
    models: list[str] | None = None
    owner: str | None = None
    expires: str | float | None = None
    operator: bool = False


class NoBody(msgspec.Struct, forbid_unknown_fields=True):
    """A change that is wholly in its path."""


async def read_body(request: web.Request, kind: type[T]) -> T:
    """The body as ``kind``; an empty one is ``{}``."""
    raw = await request.read()
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except msgspec.MsgspecError as error:
        raise CatalogRefused("the request's body", str(error), "see llmgw ctl --help") from None


def seconds_until(written: str | float | None) -> float | None:
    """A duration as ``seconds_of`` reads it, with ``d`` for days besides."""
    if written is None:
        return None
    try:
        if isinstance(written, str) and written.endswith("d"):
            return float(written[:-1]) * 86400
        return seconds_of(written)
    except (BadDuration, ValueError):
        raise CatalogRefused(
            "expires", f"{written!r} is not a duration", "write for example 12h or 30d"
        ) from None
