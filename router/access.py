"""Whose key a request carries, and which names it may use. Keys are known by their SHA-256 only."""

from __future__ import annotations

import hashlib

from msgspec import UNSET

from orchestrator.wire.snapshots import KeyEntry
from router.errors import NoValidKey
from router.snapshot import State

_BEARER = "bearer "


def credentials(authorization: str | None, api_key: str | None) -> tuple[str, ...]:
    """The keys a request carries: ``Authorization: Bearer`` first, then ``x-api-key``; often both."""
    found = []
    if authorization is not None and authorization[:7].lower() == _BEARER:
        found.append(authorization[7:].strip())
    if api_key is not None:
        found.append(api_key.strip())
    return tuple(key for key in found if key)


def check_present(state: State, keys: tuple[str, ...]) -> None:
    """NoValidKey when keys are required and the request has none: told before the body is read."""
    if state.keys_required and not keys:
        raise NoValidKey(
            "no API key was sent; send the header Authorization: Bearer <key> (or x-api-key: <key>)"
        )


def find_key(state: State, keys: tuple[str, ...], now_ms: float) -> KeyEntry | None:
    """The entry of the first valid key; None where none is required. ``now_ms`` on the store's clock."""
    if not state.keys_required:
        return None
    expired = False
    for key in keys:
        entry = state.keys.get(hashlib.sha256(key.encode()).hexdigest())
        if entry is None:
            continue
        if entry.expires_ms is UNSET or entry.expires_ms > now_ms:
            return entry
        expired = True
    if expired:
        raise NoValidKey("this API key has expired; ask for a new one")
    raise NoValidKey("this API key is not known here; check the key and the base URL")


def is_allowed(entry: KeyEntry | None, name: str) -> bool:
    """Whether the key's allowlist has the name as asked for; adapters and aliases are names of their own."""
    return entry is None or entry.models is UNSET or name in entry.models
