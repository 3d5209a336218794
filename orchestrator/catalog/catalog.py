"""The immutable catalog: every model of the cluster, checked as a whole (R1-R6)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from orchestrator.catalog.definition import ModelDefinition
from orchestrator.sharing.classes import ModelClass, class_of
from orchestrator.wire.durations import seconds_of
from orchestrator.wire.names import Target, build_names
from orchestrator.wire.profile import fingerprint
from orchestrator.wire.snapshots import AdapterEntry, ModelEntry, Timeouts
from orchestrator.wire.want import MetricNames, Origin


class Skipped(NamedTuple):
    """A stored row that is not accepted (R12). It has not left the catalog: what runs of it stays."""

    place: str
    reason: str


class CatalogModel:
    """An accepted definition with its origin. ``created`` is Unix seconds, 0 unknown."""

    __slots__ = ("created", "definition", "entry", "fingerprints", "klass", "origin", "owner")

    def __init__(
        self,
        definition: ModelDefinition,
        origin: Origin,
        created: int = 0,
        klass: ModelClass | UnsetType = UNSET,
        owner: str | UnsetType = UNSET,
        fallbacks: tuple[str, ...] = (),
    ) -> None:
        self.definition = definition
        self.origin: Origin = origin
        self.created = created
        written = klass if definition.klass is UNSET else definition.klass
        self.klass: ModelClass = class_of(
            None if written is UNSET else written,
            definition.least,
            definition.external is not UNSET,
        )
        self.owner = owner if definition.owner is UNSET else definition.owner
        self.fingerprints = tuple(
            fingerprint(profile, definition.context_length, definition.adapters)
            for profile in definition.profiles
        )
        self.entry = self._entry(fallbacks)

    @property
    def name(self) -> str:
        """Its name in the catalog."""
        return self.definition.name

    def _entry(self, fallbacks: tuple[str, ...]) -> ModelEntry:
        made = self.definition
        written = msgspec.structs.asdict(made.timeouts)
        return ModelEntry(
            name=made.name,
            created=self.created,
            description=made.description,
            aliases=list(made.aliases),
            adapters=[AdapterEntry(adapter.name) for adapter in made.adapters],
            fallbacks=list(fallbacks),
            context_length=made.context_length,
            capabilities=list(made.capabilities),
            simulated=made.simulated,
            external=made.external is not UNSET,
            owner=self.owner,
            klass=self.klass,
            limits=made.limits,
            max_output_tokens=made.max_output_tokens,
            media_urls=made.media_urls,
            timeouts=Timeouts(
                **{key: seconds_of(value) for key, value in written.items() if value is not UNSET}
            ),
            stream_keepalive=made.stream_keepalive,
        )


class Catalog:
    """Built by `orchestrator.catalog.build.build` only; never changed.

    ``models`` are the accepted ones by name, ``skipped`` the stored rows that are not, ``metrics``
    the cluster's names for an engine's numbers, ``warnings`` what was read leniently.
    """

    __slots__ = ("metrics", "models", "names", "skipped", "warnings")

    def __init__(
        self,
        models: Mapping[str, CatalogModel],
        skipped: Mapping[str, Skipped] = MappingProxyType({}),
        metrics: Mapping[str, MetricNames] = MappingProxyType({}),
        warnings: tuple[str, ...] = (),
    ) -> None:
        self.models: Mapping[str, CatalogModel] = MappingProxyType(dict(models))
        self.skipped: Mapping[str, Skipped] = MappingProxyType(dict(skipped))
        self.metrics: Mapping[str, MetricNames] = MappingProxyType(dict(metrics))
        self.warnings = warnings
        self.names: Mapping[str, Target] = build_names(self.entries())

    def entries(self) -> list[ModelEntry]:
        """Every model as a router needs it, by name."""
        return [self.models[name].entry for name in sorted(self.models)]

    def target(self, name: str) -> str | None:
        """The model that a client's name means, None where nothing has that name."""
        found = self.names.get(name)
        return None if found is None else found.model.name


EMPTY = Catalog({})
