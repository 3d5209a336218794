"""Which models are declared and stored, and the catalog that follows.

A leader uses its own cluster.yaml. Where another instance wrote ``doc:declared``, models that it has
and the own file lacks stay as "declared elsewhere" until the file is read again here: a fail-over
must not tear models down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from orchestrator.catalog.build import Addition, build, with_added, with_removed
from orchestrator.catalog.catalog import Catalog
from orchestrator.cluster_file import ClusterFile
from orchestrator.errors import CatalogRefused


class Declared(msgspec.Struct, frozen=True):
    """``doc:declared``: the declared part in force, who wrote it, and from which file."""

    instance: str
    digest: str
    models: list[dict[str, Any]]
    schema: int = 1


#: The one field of the hash ``doc:declared``.
DECLARED_FIELD = "declared"


def read_declared(rows: Mapping[str, str]) -> Declared | None:
    """What ``doc:declared`` says, or None when it says nothing that we can read."""
    try:
        return msgspec.json.decode(rows.get(DECLARED_FIELD, ""), type=Declared)
    except msgspec.MsgspecError:
        return None


class Definitions(NamedTuple):
    """All that a catalog is built from. ``elsewhere``: declared by another instance's file only."""

    file: ClusterFile
    elsewhere: list[dict[str, Any]]
    stored: dict[str, str]
    overrides: dict[str, dict[str, str]]

    @property
    def declared(self) -> Sequence[Mapping[str, Any]]:
        """Every declared model in force."""
        return [*self.file.models, *self.elsewhere]

    def catalog(self) -> Catalog:
        """The whole, or CatalogRefused."""
        return build(self.declared, self.stored, self.overrides, self.file.engine_metrics)

    def added(self, definition: Mapping[str, Any], created: int, replace: bool) -> Addition:
        """The would-be catalog with one more stored model, or CatalogRefused."""
        return with_added(
            self.declared,
            self.stored,
            definition,
            created,
            self.overrides,
            self.file.engine_metrics,
            replace,
        )

    def removed(self, name: str) -> Catalog:
        """The would-be catalog without one stored model, or CatalogRefused."""
        return with_removed(
            self.declared, self.stored, name, self.overrides, self.file.engine_metrics
        )


def definitions_at_take_over(
    file: ClusterFile,
    instance: str,
    documents: Mapping[str, Mapping[str, str]],
) -> Definitions:
    """What a new leader begins with. Models declared elsewhere that would make it bad are left out."""
    own = Definitions(
        file, [], dict(documents.get("models", {})), _overrides(documents.get("overrides", {}))
    )
    other = read_declared(documents.get("declared", {}))
    if other is None or other.instance == instance or other.digest == file.digest:
        return own
    names = {model.get("name") for model in file.models}
    kept = own._replace(elsewhere=[model for model in other.models if model["name"] not in names])
    try:
        kept.catalog()
    except CatalogRefused:
        return own
    return kept


def _overrides(rows: Mapping[str, str]) -> dict[str, dict[str, str]]:
    overrides: dict[str, dict[str, str]] = {}
    for name, text in rows.items():
        try:
            overrides[name] = msgspec.json.decode(text, type=dict[str, str])
        except msgspec.MsgspecError:
            continue
    return overrides
