"""What a bench hands over: one JSON file with everything measured, and one line per target."""

from __future__ import annotations

import datetime
import enum
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

RESULTS = Path(__file__).resolve().parent / "results"


class Verdict(enum.Enum):
    """An unmeasured target is neither met nor missed: what it compares was left out of the run."""

    MET = "met"
    MISSED = "missed"
    UNMEASURED = "unmeasured"


class Target(msgspec.Struct, frozen=True):
    """A figure that must be at most `limit`; both in `unit`. None: it was not measured."""

    name: str
    figure: float | None
    limit: float
    unit: str

    @property
    def verdict(self) -> Verdict:
        if self.figure is None:
            return Verdict.UNMEASURED
        return Verdict.MET if self.figure <= self.limit else Verdict.MISSED

    def line(self) -> str:
        """name, figure, target, verdict: the one line that a person reads."""
        figure = "-" if self.figure is None else f"{self.figure:.1f} {self.unit}"
        return f"{self.name}: {figure}, target <= {self.limit:g} {self.unit}: {self.verdict.value}"


class Result(msgspec.Struct, frozen=True):
    """One bench: the question it answers, what it ran with, every raw round, the medians, the targets."""

    bench: str
    question: str
    versions: dict[str, str]
    settings: dict[str, Any]
    rounds: list[Any]
    figures: dict[str, dict[str, float]]
    targets: list[Target]


def percent(part: float | None, whole: float | None) -> float | None:
    """`part` in percent of `whole`; None when one of them was not measured."""
    if part is None or whole is None:
        return None
    return 100.0 * part / whole


def any_missed(targets: Iterable[Target]) -> bool:
    return any(target.verdict is Verdict.MISSED for target in targets)


def write_result(result: Result, folder: Path = RESULTS) -> Path:
    """Writes `<bench>.json`: the result with date, machine and each target's verdict; gives its path."""
    content = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        **msgspec.to_builtins(result),
    }
    for written, target in zip(content["targets"], result.targets, strict=True):
        written["verdict"] = target.verdict.value
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.bench}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
    return path


def machine() -> dict[str, Any]:
    """What the figures depend on beside the code."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()
