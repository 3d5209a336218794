"""The one map from a client's name to what serves it (R15, R16).

Built from the same entries whether they come from a router's own YAML or from a pushed catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from orchestrator.wire.errors import NameClash
from orchestrator.wire.snapshots import ModelEntry


class Target(NamedTuple):
    """What a name means: a model, and one of its adapters where the name is an adapter's."""

    model: ModelEntry
    adapter: str | None


def build_names(models: Iterable[ModelEntry]) -> Mapping[str, Target]:
    """Every model name, alias and adapter name. NameClash where two want the same."""
    names: dict[str, Target] = {}
    owners: dict[str, str] = {}

    def add(name: str, target: Target, owner: str) -> None:
        if name in names:
            raise NameClash(name, owners[name], owner)
        names[name] = target
        owners[name] = owner

    for model in models:
        add(model.name, Target(model, None), f"model {model.name!r}")
        for alias in model.aliases:
            add(alias, Target(model, None), f"an alias of model {model.name!r}")
        for adapter in model.adapters:
            add(adapter.name, Target(model, adapter.name), f"an adapter of model {model.name!r}")
    return names
