"""Which columns each list has, and what of an item stands in each cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from orchestrator.ctl import figures
from orchestrator.ctl.figures import UNKNOWN
from orchestrator.ctl.table import Column

Item = Mapping[str, Any]


class Shown(NamedTuple):
    """A column and its cell. ``wide``: only with ``-o wide``."""

    column: Column
    cell: Callable[[Item], str]
    wide: bool = False


class Listing(NamedTuple):
    """A list's columns; the key that ``-o name`` prints; the key of a line of its own under a row."""

    columns: tuple[Shown, ...]
    name: str
    under: str = ""
    empty: str = "none"


def _text(key: str) -> Callable[[Item], str]:
    def cell(item: Item) -> str:
        value = item.get(key)
        if isinstance(value, list):
            return ",".join(map(str, value)) or UNKNOWN
        return UNKNOWN if value is None or value == "" else str(value)

    return cell


def _note(key: str = "note") -> Callable[[Item], str]:
    """A note that there is not is empty, not unknown."""
    return lambda item: str(item.get(key) or "")


def _number(key: str) -> Callable[[Item], str]:
    return lambda item: figures.number(item.get(key))


def _whole(key: str) -> Callable[[Item], str]:
    """A number that is not rounded."""
    return lambda item: UNKNOWN if item.get(key) is None else str(item[key])


def _age(key: str) -> Callable[[Item], str]:
    return lambda item: figures.age(item.get(key))


def _percent(key: str) -> Callable[[Item], str]:
    return lambda item: figures.percent(item.get(key))


def _pairs(key: str) -> Callable[[Item], str]:
    def cell(item: Item) -> str:
        value = item.get(key)
        if value is None:
            return UNKNOWN
        return ",".join(f"{name}={one}" for name, one in sorted(value.items())) or UNKNOWN

    return cell


def node_cards(item: Item) -> str:
    """``1/2 H100-80GB``, one per type; a node that has none says so by 0, one that never said by "-"."""
    cards = item.get("cards")
    if cards is None:
        return UNKNOWN
    return " ".join(f"{one['held']}/{one['total']} {one['type']}" for one in cards) or "0"


def _memory(item: Item) -> str:
    return figures.of_total(item.get("memory_reserved"), item.get("memory_total"))


def _cores(item: Item) -> str:
    return figures.counts(item.get("cpus_reserved"), item.get("cpus"))


def _disk(item: Item) -> str:
    free = item.get("disk_free")
    return UNKNOWN if free is None else f"{figures.size(free)} free"


def _ready(item: Item) -> str:
    return UNKNOWN if item.get("wanted") is None else f"{item.get('ready', 0)}/{item['wanted']}"


def replica_cards(item: Item) -> str:
    """How many cards, and of which type."""
    cards = item.get("cards")
    if cards is None:
        return UNKNOWN
    return f"{len(cards)} {item.get('gpu', '')}".strip() if cards else "CPU"


def _expires(item: Item) -> str:
    written = item.get("expires")
    if written is None:
        return "never"
    left = figures.seconds_since(str(written), datetime.now(UTC))
    if left is None:
        return str(written)
    return f"in {figures.age(-left)}" if left < 0 else "expired"


def _event_age(item: Item) -> str:
    return figures.age(figures.seconds_since(str(item.get("at", "")), datetime.now(UTC)))


def _left(head: str, cell: Callable[[Item], str], spare: int = 0, wide: bool = False) -> Shown:
    return Shown(Column(head, spare=spare), cell, wide)


def _right(head: str, cell: Callable[[Item], str], spare: int = 0, wide: bool = False) -> Shown:
    return Shown(Column(head, right=True, spare=spare), cell, wide)


NODES = Listing(
    (
        _left("NAME", _text("name")),
        _left("STATE", _text("state")),
        _right("SEEN", _age("seen_s")),
        _left("FABRIC", _text("fabric"), spare=2),
        _left("CARDS", node_cards),
        _right("CPU", _cores),
        _right("MEM", _memory),
        _right("DISK", _disk, spare=3),
        _right("REPLICAS", _whole("replicas"), spare=1),
        _left("VERSION", _text("version"), spare=4),
        _left("LABELS", _pairs("labels"), wide=True),
        _left("DRIVER", _text("driver"), wide=True),
        _left("ADDRESS", _text("address"), wide=True),
        _left("NOTE", _note()),
    ),
    name="name",
    empty="no node has reported yet; on each node run: llmgw agent --redis-file FILE",
)

MODELS = Listing(
    (
        _left("NAME", _text("name")),
        _left("STATE", _text("state")),
        _right("READY", _ready),
        _right("RUN", _number("running")),
        _right("WAIT", _number("waiting")),
        _right("TOK/S", _number("tokens_per_second"), spare=3),
        _right("TTFT95", _text("first_token_p95"), spare=4),
        _right("KV%", _percent("cache_use"), spare=2),
        _left("CLASS", _text("class"), spare=1),
        _left("SOURCE", _text("source"), wide=True),
        _right("CONTEXT", _whole("context_length"), wide=True),
        _left("ORIGIN", _text("origin"), wide=True),
        _left("OWNER", _text("owner"), wide=True),
        _left("ALIASES", _text("aliases"), wide=True),
        _left("NOTE", _note()),
    ),
    name="name",
    under="description",
    empty="no models; add one: llmgw ctl model add FILE, or write it into cluster.yaml",
)

REPLICAS = Listing(
    (
        _left("ID", _text("id")),
        _left("MODEL", _text("model")),
        _left("STATE", _text("state")),
        _right("AGE", _age("age_s")),
        _left("NODES", _text("nodes")),
        _left("CARDS", replica_cards),
        _left("ENGINE", _text("engine"), spare=1),
        _right("RUN", _number("running")),
        _right("WAIT", _number("waiting"), spare=2),
        _right("KV%", _percent("cache_use"), spare=3),
        _right("RESTARTS", _whole("restarts"), spare=4),
        _left("PID", _text("pids"), wide=True),
        _left("URL", _text("url"), wide=True),
        _left("FINGERPRINT", _text("fingerprint"), wide=True),
        _left("NOTE", _note()),
    ),
    name="id",
    empty="no replicas; llmgw ctl models shows what is wanted and why nothing runs",
)

KEYS = Listing(
    (
        _left("NAME", _text("name")),
        _left("PREFIX", _text("prefix")),
        _left("OWNER", _text("owner"), spare=1),
        _left(
            "MODELS", lambda item: "all" if item.get("models") is None else _text("models")(item)
        ),
        _right("RPM", _number("rpm"), spare=3),
        _right("TPM", _number("tpm"), spare=3),
        _right("CONC", _number("concurrency"), spare=3),
        _left("USED-TODAY", _text("used_today"), spare=2),
        _left("LAST-USED", _text("last_used"), spare=2),
        _left("EXPIRES", _expires),
    ),
    name="name",
    empty="no keys; make one: llmgw ctl key create NAME",
)

EVENTS = Listing(
    (
        _right("AGE", _event_age),
        _left("LEVEL", _text("level")),
        _left("SUBJECT", _text("subject")),
        _left("WHAT", _text("what")),
        _left("REASON", _note("reason")),
    ),
    name="id",
    empty="nothing has happened yet",
)

EXPLAIN = Listing(
    (
        _left("NODE", _text("node")),
        _left("VERDICT", _text("verdict")),
        _left("NEEDS", _text("needs")),
        _left("HAS", _text("has")),
    ),
    name="node",
    empty="there are no nodes",
)
