"""From the name a client wrote to the model it means, and from that to what is written to an engine."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from orchestrator.wire.snapshots import Endpoint, KeyEntry
from router.access import is_allowed
from router.errors import BadMember, UnknownModel
from router.snapshot import Named, State


def lookup(state: State, name: str | None) -> Named | None:
    """What the name means, or None when nothing has it; BadMember when the body named no model."""
    if name is None:
        raise BadMember("the member 'model' is missing; name one of /v1/models", param="model")
    return state.names.get(name)


def require(named: Named | None, name: str, key: KeyEntry | None) -> Named:
    """``named`` when this key may use it. Unknown and not allowed are one answer, word for word."""
    if named is None or not is_allowed(key, name):
        raise UnknownModel(
            f"the model {_shown(name)} does not exist or this key may not use it; "
            "GET /v1/models lists what it may use",
            param="model",
        )
    return named


def _shown(name: str) -> str:
    return repr(name if len(name) <= 100 else name[:100] + "...")


class EngineName(NamedTuple):
    """How an endpoint is told which model to run.

    ``model`` stands in the body's member, ``lora`` (llama.cpp) is the number of an adapter's ``lora``
    member.
    """

    model: str
    lora: int | None


def engine_name(endpoint: Endpoint, adapter: str | None) -> EngineName:
    """What to write for this endpoint; it has the adapter loaded (``serves`` said so)."""
    if adapter is None:
        return EngineName(endpoint.served_name, None)
    known = endpoint.adapters[adapter]
    if isinstance(known, int):
        return EngineName(endpoint.served_name, known)
    return EngineName(known, None)


def serves(endpoint: Endpoint, adapter: str | None) -> bool:
    """Whether the endpoint has what the name needs loaded."""
    return adapter is None or adapter in endpoint.adapters


def rewrite(
    body: bytes,
    wanted: EngineName,
    asked: str,
    model_span: tuple[int, int],
    insert_at: int,
) -> bytes:
    """The body with the engine's name spliced in; the same object when nothing has to change.

    ``model_span`` is the value of ``model`` with its quotes, ``insert_at`` a place right after the
    opening brace.
    """
    if wanted.lora is None and wanted.model == asked:
        return body
    start, end = model_span
    name = body[start:end] if wanted.model == asked else msgspec.json.encode(wanted.model)
    if wanted.lora is None:
        return b"".join((body[:start], name, body[end:]))
    lora = b'"lora":[{"id":%d,"scale":1.0}],' % wanted.lora
    return b"".join((body[:insert_at], lora, body[insert_at:start], name, body[end:]))
