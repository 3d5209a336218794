"""A definition as plain values (YAML or JSON) -> ``ModelDefinition``; only its form is checked here."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from orchestrator.catalog.definition import External, ModelDefinition, Scaling, TimeoutKeys
from orchestrator.errors import CatalogRefused
from orchestrator.wire.durations import seconds_of
from orchestrator.wire.errors import BadDuration
from orchestrator.wire.profile import Adapter, Profile
from orchestrator.wire.snapshots import Limits

#: Seconds; longer ones mean "never" and can be written as this.
_LONGEST = 366 * 86400.0
_PATH = re.compile(r"^(?P<reason>.*?)(?: - at `(?:key )?\$(?P<path>[^`]*)`)?$", re.DOTALL)


def read_definition(written: Any, place: str, unknown: list[str] | None = None) -> ModelDefinition:
    """The definition; CatalogRefused names the place. ``unknown`` collects keys that llmgw does not
    know instead of refusing them (a row written by a newer version)."""
    if not isinstance(written, Mapping):
        raise CatalogRefused(place, "a model is a mapping", "write name, profiles, scaling")
    _known_keys(written, place, unknown)
    try:
        definition = msgspec.convert(written, ModelDefinition)
    except msgspec.ValidationError as error:
        match = _PATH.match(str(error))
        path = (match["path"] or "") if match else ""
        reason = match["reason"] if match else str(error)
        raise CatalogRefused(
            place + path, _in_words(reason), "write it as the reference shows"
        ) from None
    _durations(definition, place)
    return definition


def _in_words(reason: str) -> str:
    words = reason.replace("Object missing required field", "it lacks the key")
    return words[:1].lower() + words[1:]


def _durations(definition: ModelDefinition, place: str) -> None:
    written: list[tuple[str, Any]] = [
        (f"timeouts.{key}", value)
        for key, value in msgspec.structs.asdict(definition.timeouts).items()
    ]
    if definition.scaling is not msgspec.UNSET:
        written.append(("scaling.idle_timeout", definition.scaling.idle_timeout))
    for key, value in written:
        if value is msgspec.UNSET:
            continue
        try:
            seconds = seconds_of(value)
        except BadDuration as error:
            raise CatalogRefused(f"{place}.{key}", str(error)) from None
        if not seconds <= _LONGEST:
            raise CatalogRefused(
                f"{place}.{key}", "it is longer than a year", "write at most 8784h"
            )


def _known_keys(written: Mapping[str, Any], place: str, unknown: list[str] | None) -> None:
    _keys_of(ModelDefinition, written, place, unknown)
    mappings: tuple[tuple[str, type[msgspec.Struct]], ...] = (
        ("scaling", Scaling),
        ("external", External),
        ("timeouts", TimeoutKeys),
        ("limits", Limits),
    )
    for key, kind in mappings:
        inner = written.get(key)
        if isinstance(inner, Mapping):
            _keys_of(kind, inner, f"{place}.{key}", unknown)
    lists: tuple[tuple[str, type[msgspec.Struct]], ...] = (
        ("profiles", Profile),
        ("adapters", Adapter),
    )
    for key, kind in lists:
        listed = written.get(key)
        if isinstance(listed, Sequence) and not isinstance(listed, str):
            for number, inner in enumerate(listed):
                if isinstance(inner, Mapping):
                    _keys_of(kind, inner, f"{place}.{key}[{number}]", unknown)


def _keys_of(
    kind: type[msgspec.Struct], written: Mapping[str, Any], place: str, unknown: list[str] | None
) -> None:
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    for key in written:
        if key in known:
            continue
        if unknown is not None:
            unknown.append(f"{place}.{key}")
            continue
        near = difflib.get_close_matches(str(key), known, n=1)
        remedy = f"did you mean {near[0]}?" if near else f"write one of {', '.join(known)}"
        raise CatalogRefused(f"{place}.{key}", "llmgw does not know this key", remedy)
