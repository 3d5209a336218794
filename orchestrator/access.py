"""API keys: made, kept as their SHA-256, and turned into the snapshot that the routers obey.

The key itself is shown once, at its creation, and is nowhere stored. It is 160 random bits, so a
plain digest is enough: there is nothing to guess.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from orchestrator.cluster_file import DeclaredKey
from orchestrator.wire.snapshots import KeyEntry, Limits

KEY_START = "sk-llmgw-"
#: 32 characters of base 32.
RANDOM_BYTES = 20
#: What of a key is kept in the clear, so that its holder can tell which one it is.
_PREFIX_LENGTH = len(KEY_START) + 4


class StoredKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row of ``doc:keys`` under the key's SHA-256 in hex. Times are Unix milliseconds."""

    id: str
    name: str
    prefix: str
    created_ms: int
    owner: str | UnsetType = UNSET
    models: list[str] | UnsetType = UNSET
    expires_ms: int | UnsetType = UNSET
    operator: bool = False
    limits: Limits = Limits()
    schema: int = 1


class NewKey(NamedTuple):
    """A key that was just made: the one moment at which it is known."""

    key: str
    digest: str
    stored: StoredKey


def digest_of(key: str) -> str:
    """What is stored in a key's place."""
    return hashlib.sha256(key.encode()).hexdigest()


def make_key(
    random: bytes,
    now_ms: int,
    *,
    name: str,
    owner: str | UnsetType = UNSET,
    models: list[str] | UnsetType = UNSET,
    expires_ms: int | UnsetType = UNSET,
    operator: bool = False,
) -> NewKey:
    """A key out of 20 random bytes."""
    key = KEY_START + base64.b32encode(random).decode().lower()
    digest = digest_of(key)
    stored = StoredKey(
        id=digest[:12],
        name=name,
        prefix=key[:_PREFIX_LENGTH],
        created_ms=now_ms,
        owner=owner,
        models=models,
        expires_ms=expires_ms,
        operator=operator,
    )
    return NewKey(key, digest, stored)


def read_stored_keys(rows: Mapping[str, str]) -> dict[str, StoredKey]:
    """The rows of ``doc:keys`` that can be read. One that cannot is left out: it must not open a door."""
    keys: dict[str, StoredKey] = {}
    for digest, text in rows.items():
        try:
            keys[digest] = msgspec.json.decode(text, type=StoredKey)
        except msgspec.MsgspecError:
            continue
    return keys


def access_entries(
    declared: Iterable[DeclaredKey], stored: Mapping[str, StoredKey]
) -> dict[str, KeyEntry]:
    """Digest -> entry for the routers. A declared key wins over a stored one of the same digest."""
    entries = {
        digest: KeyEntry(
            id=key.id,
            name=key.name,
            models=key.models,
            scope=key.owner,
            limits=key.limits,
            expires_ms=key.expires_ms,
            operator=key.operator,
        )
        for digest, key in stored.items()
    }
    for key in declared:
        entries[key.sha256] = KeyEntry(
            id=key.sha256[:12],
            name=key.name,
            models=key.models,
            scope=key.owner,
            operator=key.operator,
        )
    return entries
