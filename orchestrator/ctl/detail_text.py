"""``show``: one thing as lines of name and value; what is unknown is "-", what is empty is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.ctl import figures
from orchestrator.ctl.columns import node_cards, replica_cards
from orchestrator.ctl.figures import UNKNOWN

Item = Mapping[str, Any]
Line = tuple[str, str]


def _text(value: Any) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name}={one}" for name, one in sorted(value.items())) or "none"
    return str(value)


def _age(key: str) -> Callable[[Item], str]:
    return lambda item: figures.age(item.get(key))


def _state(item: Item) -> str:
    since = item.get("age_s")
    return _text(item.get("state")) + ("" if since is None else f" for {figures.age(since)}")


def _of(key: str) -> Callable[[Item], str]:
    return lambda item: _text(item.get(key))


NODE: tuple[tuple[str, Callable[[Item], str]], ...] = (
    ("name", _of("name")),
    ("state", _state),
    ("silent for", _age("seen_s")),
    ("address", _of("address")),
    ("fabric", _of("fabric")),
    ("cards", node_cards),
    (
        "cores",
        lambda item: f"{figures.counts(item.get('cpus_reserved'), item.get('cpus'))} reserved",
    ),
    (
        "memory",
        lambda item: (
            f"{figures.of_total(item.get('memory_reserved'), item.get('memory_total'))} reserved,"
            f" {figures.size(item.get('memory_available'))} free as measured"
        ),
    ),
    ("disk free", lambda item: figures.size(item.get("disk_free"))),
    ("engines", _of("engines")),
    ("labels", _of("labels")),
    ("weights", _of("weights")),
    ("version", _of("version")),
    ("note", _of("note")),
)

MODEL: tuple[tuple[str, Callable[[Item], str]], ...] = (
    ("name", _of("name")),
    ("state", _of("state")),
    ("why", _of("reason")),
    ("description", _of("description")),
    (
        "replicas",
        lambda item: f"{item.get('ready', 0)} ready of {_text(item.get('wanted'))} wanted",
    ),
    ("scaling", lambda item: f"min {_text(item.get('min'))}, max {_text(item.get('max'))}"),
    ("class", _of("class")),
    ("origin", _of("origin")),
    ("owner", _of("owner")),
    ("aliases", _of("aliases")),
    ("context", _of("context_length")),
    ("source", _of("source")),
    ("failures", lambda item: f"{_text(item.get('failures'))} in a row"),
    ("first failure", _of("first_failure")),
    ("last failure", _of("last_failure")),
    ("next try", lambda item: f"in {figures.age(item.get('next_try_s'))}"),
)

REPLICA: tuple[tuple[str, Callable[[Item], str]], ...] = (
    ("id", _of("id")),
    ("model", _of("model")),
    ("state", _state),
    ("why", _of("note")),
    ("nodes", _of("nodes")),
    ("cards", replica_cards),
    ("engine", _of("engine")),
    ("url", _of("url")),
    ("slots", _of("slots")),
    ("context", _of("context")),
    ("running", _of("running")),
    ("waiting", _of("waiting")),
    ("pid", _of("pids")),
    ("stale", _of("stale")),
    ("adopted", _of("adopted")),
    ("first failure", _of("first_failure")),
    ("last failure", _of("last_failure")),
)

#: Lines that are left out when the item has no such key: their absence means "none", not "unknown".
_OPTIONAL = {
    "why": ("reason", "note"),
    "note": ("note",),
    "first failure": ("first_failure",),
    "last failure": ("last_failure",),
    "next try": ("next_try_s",),
    "description": ("description",),
    "owner": ("owner",),
}


def detail_lines(shown: tuple[tuple[str, Callable[[Item], str]], ...], item: Item) -> list[str]:
    """``name   value`` for each; the values stand under one another."""
    kept: list[Line] = []
    for name, value in shown:
        needed = _OPTIONAL.get(name)
        if needed is not None and not any(item.get(key) for key in needed):
            continue
        kept.append((name, value(item)))
    width = max(len(name) for name, _ in kept)
    return [f"{name:<{width}}  {value}" for name, value in kept]
