"""The faults that the simulated engine can have: one row each, and how one is written.

On the command line: `--fault NAME[:VALUE...]`, repeatable. While it runs: `PUT /sim/faults` with
`{"faults": ["break-stream:3"]}`, from this machine only, which replaces the whole set; [] mends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from agent.sim_engine.errors import BadSetting


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with this engine; a default value means nothing is."""

    #: SIGTERM and SIGINT change nothing.
    ignore_sigterm: bool = False
    #: (seconds after the fault was set, exit code): the process ends, whatever it was doing.
    exit_after: tuple[float, int] | None = None
    #: The connection breaks off after this many tokens of an answer.
    break_stream: int | None = None
    #: Connections are accepted and no request is answered at all.
    hang: bool = False
    #: /health, /v1/models and /metrics answer as ever, but nothing is generated.
    health_lies: bool = False


class _Row(msgspec.Struct, frozen=True):
    """usage: how it is written. read: the values after the name -> the field's value."""

    usage: str
    field: str
    read: Callable[[list[str]], Any]


def _flag(values: list[str]) -> bool:
    if values:
        raise ValueError
    return True


def _positive(values: list[str]) -> int:
    (count,) = values
    if int(count) < 1:
        raise ValueError
    return int(count)


def _exit_after(values: list[str]) -> tuple[float, int]:
    seconds, code = values
    if not 0 <= float(seconds) < 1e9 or not 0 <= int(code) <= 255:
        raise ValueError
    return float(seconds), int(code)


TABLE: dict[str, _Row] = {
    "ignore-sigterm": _Row("ignore-sigterm", "ignore_sigterm", _flag),
    "exit-after": _Row("exit-after:SECONDS:CODE", "exit_after", _exit_after),
    "break-stream": _Row("break-stream:TOKENS", "break_stream", _positive),
    "hang": _Row("hang", "hang", _flag),
    "health-lies": _Row("health-lies", "health_lies", _flag),
}
USAGES = ", ".join(row.usage for row in TABLE.values())


def read_faults(texts: Iterable[str]) -> Faults:
    """Raises BadSetting when a text is not a fault of the table, or its values do not fit."""
    fields: dict[str, Any] = {}
    for text in texts:
        name, *values = text.split(":")
        row = TABLE.get(name)
        if row is None:
            raise BadSetting(f"fault {text!r} is unknown; write one of: {USAGES}")
        try:
            fields[row.field] = row.read(values)
        except ValueError:
            raise BadSetting(f"fault {text!r} cannot be read; write {row.usage}") from None
    return Faults(**fields)
