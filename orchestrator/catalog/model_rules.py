"""What one definition must hold by itself, whatever else the catalog has."""

from __future__ import annotations

import re

import msgspec
from msgspec import UNSET, UnsetType

from orchestrator.catalog.definition import ModelDefinition
from orchestrator.catalog.profile_rules import MOST, Warn, check_profile
from orchestrator.catalog.sources import FORMS, source_kind
from orchestrator.errors import CatalogRefused

#: Client-visible names: DNS-like, with what the ecosystem uses besides (R15).
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:/-]*[A-Za-z0-9])?")
NAME_LENGTH = 128
OWNER = re.compile(r"[a-z0-9][a-z0-9-]*(?:/[a-z0-9][a-z0-9-]*){0,2}")
_URL = re.compile(r"https?://[^\s/]+(?:/\S*)?")


def check_model(
    definition: ModelDefinition, place: str, strict: bool, warn: Warn
) -> ModelDefinition:
    """The definition in its present form (old forms of profiles are read as the new ones)."""
    _name(definition.name, f"{place}.name")
    for number, alias in enumerate(definition.aliases):
        _name(alias, f"{place}.aliases[{number}]")
    for number, adapter in enumerate(definition.adapters):
        _name(adapter.name, f"{place}.adapters[{number}].name")
        if source_kind(adapter.source) in ("none", "page"):
            raise CatalogRefused(
                f"{place}.adapters[{number}].source",
                f"{adapter.source!r} is no source",
                f"write {FORMS}",
            )
    if definition.owner is not UNSET and not OWNER.fullmatch(definition.owner):
        raise CatalogRefused(
            f"{place}.owner",
            f"{definition.owner!r} is no scope",
            "write org, org/team or org/team/project in lower case",
        )
    for key in ("context_length", "max_output_tokens"):
        value = getattr(definition, key)
        if value is not UNSET and value < 1:
            raise CatalogRefused(f"{place}.{key}", f"{value} is not a count", "write 1 or more")
        _not_too_large(value, f"{place}.{key}")
    for key, value in msgspec.structs.asdict(definition.limits).items():
        if value is not UNSET and value < 0:
            raise CatalogRefused(f"{place}.limits.{key}", f"{value} is negative", "write 0 or more")
        _not_too_large(value, f"{place}.limits.{key}")
    _scaling(definition, place)
    if definition.external is not UNSET:
        _external(definition, place)
        return _without_empty_description(definition)
    if not definition.profiles:
        raise CatalogRefused(
            f"{place}.profiles", "nothing says how to run it", "write a profile, or external"
        )
    checked = [
        check_profile(profile, f"{place}.profiles[{number}]", strict, warn)
        for number, profile in enumerate(definition.profiles)
    ]
    return msgspec.structs.replace(_without_empty_description(definition), profiles=checked)


def _without_empty_description(definition: ModelDefinition) -> ModelDefinition:
    """An absent description is an absent key, not an empty string (R19)."""
    if definition.description is UNSET or definition.description.strip():
        return definition
    return msgspec.structs.replace(definition, description=UNSET)


def _name(name: str, place: str) -> None:
    if len(name) > NAME_LENGTH:
        raise CatalogRefused(
            place, f"{len(name)} characters are too many", f"write at most {NAME_LENGTH}"
        )
    if not _NAME.fullmatch(name) or "//" in name:
        raise CatalogRefused(
            place,
            f"{name!r} is not a name",
            "write letters, digits and . _ : / - inside, a letter or digit at both ends",
        )


def _not_too_large(value: int | UnsetType, place: str) -> None:
    if value is not UNSET and value > MOST:
        raise CatalogRefused(place, "it is too large", f"write at most {MOST}")


def _scaling(definition: ModelDefinition, place: str) -> None:
    scaling = definition.scaling
    if scaling is UNSET:
        return
    for key in ("min", "max", "headroom"):
        value = getattr(scaling, key)
        if value is not UNSET and value < 0:
            raise CatalogRefused(
                f"{place}.scaling.{key}", f"{value} is negative", "write 0 or more"
            )
        _not_too_large(value, f"{place}.scaling.{key}")
    if definition.most < definition.least:
        raise CatalogRefused(
            f"{place}.scaling.max",
            f"max {definition.most} is below min {definition.least}",
            "write max: at least min; to switch the model off write min: 0 and max: 0",
        )


def _external(definition: ModelDefinition, place: str) -> None:
    assert definition.external is not UNSET
    if definition.profiles:
        raise CatalogRefused(
            f"{place}.external",
            "an external model has no profiles",
            "keep external or profiles, not both",
        )
    if definition.scaling is not UNSET:
        raise CatalogRefused(
            f"{place}.scaling", "nothing is placed for an external model", "leave it out"
        )
    if not _URL.fullmatch(definition.external.url):
        raise CatalogRefused(
            f"{place}.external.url",
            f"{definition.external.url!r} is no base URL",
            "write for example https://api.example.com/v1",
        )
    if not definition.external.model:
        raise CatalogRefused(
            f"{place}.external.model", "it is empty", "write the provider's name of it"
        )
    if not definition.external.api_key_file.startswith("/"):
        raise CatalogRefused(
            f"{place}.external.api_key_file",
            "it is not a whole path",
            "write one that begins with /",
        )
