"""``/v1/models``: every name a key may use, in one body for the OpenAI and the Anthropic client.

A member that is unknown is absent, never empty or null (R19); ``parent`` alone may be null, as in the
form it comes from.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec import UNSET

from orchestrator.wire.snapshots import KeyEntry
from router.access import is_allowed
from router.snapshot import Named, Served, State

_STATUS_OF_ABSENCE = {
    "loading": "loading",
    "failed": "failed",
    "needs_change": "failed",
}
_VISION = frozenset({"vision", "image", "images"})
_AUDIO = frozenset({"audio"})
_TOOLS = frozenset({"tools", "function_calling"})


def list_models(state: State, key: KeyEntry | None) -> dict[str, Any]:
    """The whole answer."""
    data = [describe(name, named) for name, named in state.names.items() if is_allowed(key, name)]
    return {
        "object": "list",
        "data": data,
        "has_more": False,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
    }


def describe(name: str, named: Named) -> dict[str, Any]:
    """One entry, under the name the client uses."""
    served, adapter = named
    entry = served.entry
    shown = f"{name} (simulated)" if entry.simulated else name
    described: dict[str, Any] = {
        "id": name,
        "object": "model",
        "created": entry.created,
        "owned_by": "llmgw-sim" if entry.simulated else "llmgw",
        "type": "model",
        "display_name": shown,
        "name": shown,
        "created_at": _rfc3339(entry.created),
        "root": entry.name,
        "parent": entry.name if adapter is not None else None,
        "status": {"value": _status(served)},
    }
    if entry.description is not UNSET:
        described["description"] = entry.description
    if served.smallest_window is not None:
        # Three names for one number: each is what some client reads.
        for member in ("context_length", "max_model_len", "max_input_tokens"):
            described[member] = served.smallest_window
    if entry.max_output_tokens is not UNSET:
        described["max_output_tokens"] = entry.max_output_tokens
    claims = frozenset(entry.capabilities)
    if claims:
        described |= _claimed(claims)
    return described


def _claimed(claims: frozenset[str]) -> dict[str, Any]:
    inputs = ["text"]
    if claims & _VISION:
        inputs.append("image")
    if claims & _AUDIO:
        inputs.append("audio")
    capabilities = dict.fromkeys(sorted(claims), True)
    if claims & _TOOLS:
        capabilities["function_calling"] = True
    claimed: dict[str, Any] = {
        "architecture": {"input_modalities": inputs, "output_modalities": ["text"]},
        "capabilities": capabilities,
    }
    if claims & _TOOLS:
        claimed["supported_parameters"] = ["tools", "tool_choice"]
    return claimed


def _status(served: Served) -> str:
    if served.endpoints:
        return "loaded"
    kind = "" if served.absence is None else served.absence.kind
    return _STATUS_OF_ABSENCE.get(kind, "unloaded")


def _rfc3339(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
