"""The one constructor of a catalog: ``build``; and what would be after an addition or a removal.

Configuration wins every conflict (R8). A stored row is checked on its own against what is accepted
so far; a bad one is skipped and named and never takes a declared model down (R12). An addition or a
removal builds the would-be whole first, so that it is refused rather than stored and skipped for
ever after (R10, R11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from orchestrator.catalog.catalog import Catalog, CatalogModel, Skipped
from orchestrator.catalog.definition import ModelDefinition
from orchestrator.catalog.model_rules import check_model
from orchestrator.catalog.profile_rules import Warn
from orchestrator.catalog.reading import read_definition
from orchestrator.errors import CatalogRefused
from orchestrator.sharing.classes import CLASSES
from orchestrator.wire.profile import ENGINES
from orchestrator.wire.want import MetricNames, Origin

SCHEMA = 1


class StoredModel(msgspec.Struct, frozen=True):
    """One row of ``doc:models``. ``definition`` is kept as it was written, unknown keys too."""

    definition: dict[str, Any]
    created: int = 0
    schema: int = SCHEMA


class Addition(NamedTuple):
    """An accepted addition: the row for ``doc:models`` (JSON text) and the catalog with it."""

    name: str
    row: str
    catalog: Catalog


class _Accepted(NamedTuple):
    definition: ModelDefinition
    origin: Origin
    created: int
    place: str
    fallbacks: tuple[str, ...] = ()


def build(
    declared: Sequence[Mapping[str, Any]],
    stored: Mapping[str, str],
    overrides: Mapping[str, Mapping[str, str]] | None = None,
    engine_metrics: Mapping[str, Any] | None = None,
) -> Catalog:
    """The catalog of the file's models and the rows of ``doc:models`` (name -> JSON text).

    ``overrides`` give class and owner where the definition leaves them open (name -> {class, owner});
    ``engine_metrics`` are the cluster's metric names per engine. CatalogRefused for anything wrong in
    the file; a bad stored row only lands in ``skipped``.
    """
    return _build(declared, stored, overrides or {}, engine_metrics or {}, strict_row=None)


def with_added(
    declared: Sequence[Mapping[str, Any]],
    stored: Mapping[str, str],
    definition: Mapping[str, Any],
    created: int,
    overrides: Mapping[str, Mapping[str, str]] | None = None,
    engine_metrics: Mapping[str, Any] | None = None,
    replace: bool = False,
) -> Addition:
    """The would-be catalog with one more stored model, read strictly; ``created`` is Unix seconds.

    CatalogRefused where the definition or the whole with it is not acceptable, or the name is already
    stored and ``replace`` is not said. Nothing is written here.
    """
    read = read_definition(definition, "model")
    name = read.name
    if name in stored and not replace:
        raise CatalogRefused(
            "model.name",
            f"{name!r} is already stored",
            "say --replace to put this one in its place",
        )
    row = msgspec.json.encode(StoredModel(dict(definition), created)).decode()
    catalog = _build(
        declared, {**stored, name: row}, overrides or {}, engine_metrics or {}, strict_row=name
    )
    before = _build(declared, stored, overrides or {}, engine_metrics or {}, strict_row=None)
    _nobody_newly_skipped(before, catalog, name)
    return Addition(name, row, catalog)


def with_removed(
    declared: Sequence[Mapping[str, Any]],
    stored: Mapping[str, str],
    name: str,
    overrides: Mapping[str, Mapping[str, str]] | None = None,
    engine_metrics: Mapping[str, Any] | None = None,
) -> Catalog:
    """The would-be catalog without one stored model (R9, R11)."""
    before = _build(declared, stored, overrides or {}, engine_metrics or {}, strict_row=None)
    if name not in stored:
        found = before.models.get(name)
        if found is not None:
            raise CatalogRefused(
                name,
                "it is declared in the configuration",
                "remove it from models: in cluster.yaml",
            )
        raise CatalogRefused(name, "no stored model has this name", "see: ctl models")
    rest = {row: text for row, text in stored.items() if row != name}
    after = _build(declared, rest, overrides or {}, engine_metrics or {}, strict_row=None)
    _nobody_newly_skipped(before, after, name)
    return after


def _nobody_newly_skipped(before: Catalog, after: Catalog, changed: str) -> None:
    for row, skipped in after.skipped.items():
        if row != changed and row in before.models:
            raise CatalogRefused(
                changed,
                f"the stored model {row!r} would no longer be accepted: {skipped.reason}",
                f"change {row!r} first",
            )


def _build(
    declared: Sequence[Mapping[str, Any]],
    stored: Mapping[str, str],
    overrides: Mapping[str, Mapping[str, str]],
    engine_metrics: Mapping[str, Any],
    strict_row: str | None,
) -> Catalog:
    """``strict_row`` is the stored row that is being defined just now: it is refused, not skipped."""
    warnings: list[str] = []
    accepted: dict[str, _Accepted] = {}
    taken: dict[str, str] = {}
    for number, written in enumerate(declared):
        place = f"models[{number}]"
        definition = check_model(read_definition(written, place), place, False, warnings.append)
        one = _Accepted(definition, "declared", 0, place)
        _take_names(one, taken)
        accepted[definition.name] = one
    # The file stands alone: a stored row that goes bad must not take a declared model down (R12).
    for _, wrong in _bad_fallbacks(accepted):
        raise wrong
    skipped: dict[str, Skipped] = {}
    for name in sorted(stored):
        try:
            row = _stored_row(name, stored[name], name == strict_row, warnings.append)
            _take_names(row, taken)
            accepted[name] = row
        except CatalogRefused as refusal:
            _skip_or_refuse(name, refusal, skipped, strict_row)
    while refusals := _bad_fallbacks(accepted):
        name, wrong = next((one for one in refusals if one[0] == strict_row), refusals[-1])
        _skip_or_refuse(name, wrong, skipped, strict_row)
        del accepted[name]
    resolved = _resolved_fallbacks(accepted)
    models = {
        name: _model(one, resolved[name], overrides.get(name, {})) for name, one in accepted.items()
    }
    return Catalog(models, skipped, _metrics(engine_metrics), tuple(warnings))


def _skip_or_refuse(
    name: str, refusal: CatalogRefused, skipped: dict[str, Skipped], strict_row: str | None
) -> None:
    if name == strict_row:
        raise refusal
    skipped[name] = Skipped(refusal.place, f"{refusal.place}: {refusal.reason}")


def _take_names(one: _Accepted, taken: dict[str, str]) -> None:
    """Books every client-visible name of a model, all or none; CatalogRefused where one is taken."""
    made = one.definition
    wanted = [(made.name, f"{one.place}.name")]
    wanted += [(alias, f"{one.place}.aliases[{n}]") for n, alias in enumerate(made.aliases)]
    wanted += [(a.name, f"{one.place}.adapters[{n}].name") for n, a in enumerate(made.adapters)]
    mine: dict[str, str] = {}
    for name, place in wanted:
        holder = taken.get(name) or mine.get(name)
        if holder is not None:
            remedy = "choose another name"
            if one.origin == "stored" and holder.startswith("models["):
                remedy += f", or edit {holder} in cluster.yaml, which wins"
            raise CatalogRefused(place, f"the name {name!r} is already taken by {holder}", remedy)
        mine[name] = place
    taken.update(mine)


def _stored_row(name: str, text: str, strict: bool, warn: Warn) -> _Accepted:
    place = "model" if strict else f"stored model {name}"
    try:
        row = msgspec.json.decode(text, type=StoredModel)
    except msgspec.MsgspecError as error:
        raise CatalogRefused(
            place, f"the row cannot be read: {error}", "remove it and add it anew"
        ) from None
    if row.schema > SCHEMA:
        raise CatalogRefused(
            place, f"schema {row.schema} is newer than this version's {SCHEMA}", "upgrade llmgw"
        )
    unknown: list[str] | None = None if strict else []
    read = read_definition(row.definition, place, unknown)
    for key in unknown or ():
        warn(f"{key}: llmgw does not know this key; it is kept and not used")
    if read.name != name:
        raise CatalogRefused(
            f"{place}.name", f"the row of {name!r} names {read.name!r}", "add it anew"
        )
    return _Accepted(check_model(read, place, strict, warn), "stored", row.created, place)


def _resolved_fallbacks(accepted: Mapping[str, _Accepted]) -> dict[str, tuple[str, ...]]:
    """Fallbacks as model names (R2); those that lead nowhere are left out."""
    names = {alias: name for name, one in accepted.items() for alias in one.definition.aliases}
    names.update({name: name for name in accepted})
    return {
        name: tuple(names[written] for written in one.definition.fallbacks if written in names)
        for name, one in accepted.items()
    }


def _bad_fallbacks(accepted: Mapping[str, _Accepted]) -> list[tuple[str, CatalogRefused]]:
    """(model, refusal) for fallbacks to nothing or, where all lead somewhere, in a circle.

    Only one circle is named at a time: without one of its models the rest may be sound.
    """
    names = set(accepted)
    names.update(alias for one in accepted.values() for alias in one.definition.aliases)
    dangling = [
        (
            name,
            CatalogRefused(
                f"{one.place}.fallbacks[{number}]",
                f"no model or alias is called {written!r}",
                "correct it, or add that model first",
            ),
        )
        for name, one in accepted.items()
        for number, written in enumerate(one.definition.fallbacks)
        if written not in names
    ]
    return dangling or _circle(accepted)


def _circle(accepted: Mapping[str, _Accepted]) -> list[tuple[str, CatalogRefused]]:
    graph = _resolved_fallbacks(accepted)
    done: set[str] = set()
    for start in graph:
        path: list[str] = []
        open_ends = [iter([start])]
        while open_ends:
            name = next(open_ends[-1], None)
            if name is None:
                open_ends.pop()
                if path:
                    done.add(path.pop())
                continue
            if name in path:
                members = path[path.index(name) :]
                circle = " -> ".join([*members, name])
                return [
                    (
                        member,
                        CatalogRefused(
                            f"{accepted[member].place}.fallbacks",
                            f"they go in a circle: {circle}",
                            "break it",
                        ),
                    )
                    for member in members
                ]
            if name not in done:
                path.append(name)
                open_ends.append(iter(graph[name]))
    return []


def _model(one: _Accepted, fallbacks: tuple[str, ...], override: Mapping[str, str]) -> CatalogModel:
    klass = override.get("class")
    return CatalogModel(
        one.definition,
        one.origin,
        one.created,
        klass=next((known for known in CLASSES if known == klass), msgspec.UNSET),
        owner=override.get("owner", msgspec.UNSET),
        fallbacks=fallbacks,
    )


def _metrics(written: Mapping[str, Any]) -> dict[str, MetricNames]:
    metrics: dict[str, MetricNames] = {}
    known = MetricNames.__struct_fields__
    for engine, names in written.items():
        place = f"engine_metrics.{engine}"
        if engine not in ENGINES:
            raise CatalogRefused(
                place, "there is no such engine", f"write one of {', '.join(ENGINES)}"
            )
        if isinstance(names, Mapping):
            for key in names:
                if key not in known:
                    raise CatalogRefused(
                        f"{place}.{key}",
                        "llmgw does not know this key",
                        f"write one of {', '.join(known)}",
                    )
        try:
            metrics[engine] = msgspec.convert(names, MetricNames)
        except msgspec.ValidationError as error:
            raise CatalogRefused(
                place, str(error), "write {running: NAME, waiting: NAME}"
            ) from None
    return metrics
