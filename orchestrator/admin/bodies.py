"""Bodies of changes, read into values; what does not fit is refused by place."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from aiohttp import web

from orchestrator.shell_errors import BadRequest
from orchestrator.wire.durations import seconds_of
from orchestrator.wire.errors import BadDuration

T = TypeVar("T")
#: Seconds that a key may live at most, so that its end is a date that can be shown.
_LONGEST = 100 * 365 * 86400.0


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
        why = f"its body does not fit: {error}"
    except (UnicodeDecodeError, RecursionError):
        why = "its body is not UTF-8, or is nested too deeply"
    raise BadRequest("the request cannot be understood", why, "see llmgw ctl --help")


def seconds_until(written: str | float | None) -> float | None:
    """A duration as ``seconds_of`` reads it, with ``d`` for days besides."""
    if written is None:
        return None
    remedy = "write for example 12h or 30d; leave it out for never"
    try:
        if isinstance(written, str) and written.endswith("d"):
            seconds = seconds_of(f"{written[:-1]}h") * 24
        else:
            seconds = seconds_of(written)
    except BadDuration:
        raise BadRequest("expires is refused", f"{written!r} is not a duration", remedy) from None
    if not 0 < seconds <= _LONGEST:
        raise BadRequest("expires is refused", f"{written!r} is not within 100 years", remedy)
    return seconds
