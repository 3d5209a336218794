"""Documents carry ``schema``: whoever knows only a lower one must not lead, it would write back less."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from orchestrator.shell_errors import StoreTooNew
from orchestrator.store import Stored

#: The newest form of every document that this version knows.
KNOWN = 1


class _Row(msgspec.Struct):
    schema: int = 1


def _hashes(stored: Stored) -> Iterator[tuple[str, Mapping[str, str]]]:
    for name, rows in stored.documents.items():
        yield f"doc:{name}", rows
    yield "replicas", stored.replicas
    yield "models", stored.models


def check_schemas(stored: Stored) -> None:
    """StoreTooNew names the first row that a newer version has written."""
    decoder = msgspec.json.Decoder(_Row)
    for name, rows in _hashes(stored):
        for field, text in rows.items():
            try:
                schema = decoder.decode(text).schema
            except msgspec.MsgspecError:
                continue
            if schema > KNOWN:
                raise StoreTooNew(f"{name} {field}", schema, KNOWN)
