"""What a worker counts, in plain lists, and the one file a second that carries it out.

Counters are cumulative since the worker's start. ``metrics_page`` adds the files of all workers up.
A name that is not in FAMILIES, or labels that do not fit it, raise: they are mistakes of ours.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable

import msgspec

from router.metric_families import FAMILIES, Family

#: The label of every model name that nobody configured: free text never becomes a label.
UNKNOWN_MODEL = "unknown"

Labels = tuple[str, ...]


class Histogram:
    """Counts per bucket (the last one is for what is above every bound), not yet added up."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class CounterRow(msgspec.Struct, frozen=True, array_like=True):
    name: str
    labels: Labels
    value: float


class HistogramRow(msgspec.Struct, frozen=True, array_like=True):
    name: str
    labels: Labels
    counts: list[int]
    total: float


class WorkerFile(msgspec.Struct, frozen=True):
    """``<run>/metrics/<index>-<pid>``."""

    worker: str
    index: int
    pid: int
    draining: bool
    #: Why it takes no requests; None when it does.
    not_ready: str | None
    counters: list[CounterRow]
    gauges: list[CounterRow]
    histograms: list[HistogramRow]


class _RequestRow:
    """Everything that a request of one route and model adds to, looked up once."""

    __slots__ = (
        "cached", "duration", "ended", "first_plain", "first_stream", "input", "input_size",
        "label", "output", "output_size", "per_token", "route",
    )  # fmt: skip

    def __init__(self, metrics: Metrics, route: str, label: str) -> None:
        self.route = route
        self.label = label
        self.ended: dict[tuple[int, str], list[float]] = {}
        self.duration = metrics.histogram("request_duration_seconds", route, label)
        self.first_stream = metrics.histogram("time_to_first_token_seconds", label, "true")
        self.first_plain = metrics.histogram("time_to_first_token_seconds", label, "false")
        self.per_token = metrics.histogram("time_per_output_token_seconds", label)
        self.input = metrics.counter("input_tokens", label)
        self.cached = metrics.counter("cached_input_tokens", label)
        self.output = metrics.counter("output_tokens", label)
        self.input_size = metrics.histogram("request_input_tokens", label)
        self.output_size = metrics.histogram("request_output_tokens", label)


class Metrics:
    """One worker's counters. Not thread-safe: the loop's thread alone uses it."""

    def __init__(self, worker: str = "", index: int = 0, pid: int = 0) -> None:
        self.worker = worker
        self.index = index
        self.pid = pid
        self.draining = False
        self.not_ready: str | None = "starting"
        self._models: frozenset[str] = frozenset()
        self._rows: dict[tuple[str, str | None], _RequestRow] = {}
        self._counters: dict[tuple[str, Labels], list[float]] = {}
        self._gauges: dict[tuple[str, Labels], float] = {}
        self._histograms: dict[tuple[str, Labels], Histogram] = {}
        self._refreshers: list[Callable[[], None]] = []

    def set_models(self, names: Iterable[str]) -> None:
        """The names that may be labels; every other is counted as ``unknown``."""
        self._models = frozenset(names)
        self._rows.clear()

    def model_label(self, model: str | None) -> str:
        """The label for a model name as it was asked for; None: the request named none."""
        return model if model is not None and model in self._models else UNKNOWN_MODEL

    def request_ended(
        self,
        route: str,
        model: str | None,
        code: int,
        outcome: str,
        seconds: float,
        *,
        stream: bool = False,
        first_token: float | None = None,
        per_token: float | None = None,
        tokens_in: int | None = None,
        cached: int | None = None,
        tokens_out: int | None = None,
    ) -> None:
        """One request, once. ``route`` is a constant of the route table; None is unknown, not 0.

        ``outcome`` is ok, client_gone, broken, refused or failed; times in seconds from its head.
        """
        row = self._rows.get((route, model))
        if row is None:
            row = self._row(route, model)
        ended = row.ended.get((code, outcome))
        if ended is None:
            ended = self.counter("requests", route, row.label, _code_class(code), outcome)
            row.ended[(code, outcome)] = ended
        ended[0] += 1
        row.duration.observe(seconds)
        if first_token is not None:
            (row.first_stream if stream else row.first_plain).observe(first_token)
        if per_token is not None:
            row.per_token.observe(per_token)
        if tokens_in is not None:
            row.input[0] += tokens_in
            row.input_size.observe(tokens_in)
        if cached is not None:
            row.cached[0] += cached
        if tokens_out is not None:
            row.output[0] += tokens_out
            row.output_size.observe(tokens_out)

    def _row(self, route: str, model: str | None) -> _RequestRow:
        label = self.model_label(model)
        key = (route, model if label == model else None)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = _RequestRow(self, route, label)
        return row

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Add to a counter."""
        self.counter(name, *labels)[0] += by

    def observe(self, name: str, *labels: str, value: float) -> None:
        """Add an observation to a histogram."""
        self.histogram(name, *labels).observe(value)

    def gauge(self, name: str, labels: Labels, value: float | None) -> None:
        """Set a gauge; None takes it away (what it was about is gone or unknown)."""
        _check(name, "gauge", labels)
        if value is None:
            self._gauges.pop((name, labels), None)
        else:
            self._gauges[(name, labels)] = value

    def counter(self, name: str, *labels: str) -> list[float]:
        """The cell of a counter, for hot paths: ``cell[0] += 1``."""
        cell = self._counters.get((name, labels))
        if cell is None:
            _check(name, "counter", labels)
            cell = self._counters[(name, labels)] = [0]
        return cell

    def histogram(self, name: str, *labels: str) -> Histogram:
        """The histogram with these labels, for hot paths."""
        found = self._histograms.get((name, labels))
        if found is None:
            family = _check(name, "histogram", labels)
            found = self._histograms[(name, labels)] = Histogram(family.buckets)
        return found

    def refresh_with(self, callback: Callable[[], None]) -> None:
        """Called before each writing, to set gauges."""
        self._refreshers.append(callback)

    def snapshot(self) -> WorkerFile:
        """All of it as it is now."""
        for refresh in self._refreshers:
            refresh()
        return WorkerFile(
            worker=self.worker,
            index=self.index,
            pid=self.pid,
            draining=self.draining,
            not_ready=self.not_ready,
            counters=[CounterRow(*key, cell[0]) for key, cell in self._counters.items()],
            gauges=[CounterRow(*key, value) for key, value in self._gauges.items()],
            histograms=[
                HistogramRow(*key, list(found.counts), found.total)
                for key, found in self._histograms.items()
                if any(found.counts)
            ],
        )


def _check(name: str, kind: str, labels: Labels) -> Family:
    family = FAMILIES[name]
    if family.kind != kind or len(family.labels) != len(labels):
        raise ValueError(f"{name} is a {family.kind} with labels {family.labels}, not {labels}")
    return family


def _code_class(code: int) -> str:
    return "429" if code == 429 else f"{code // 100}xx"


def write_worker_file(folder: str, index: int, pid: int, body: bytes) -> None:
    """Write, then rename: a reader sees the old or the new file, never half of one."""
    path = os.path.join(folder, f"{index}-{pid}")
    with open(f"{path}.new", "wb") as file:
        file.write(body)
    os.replace(f"{path}.new", path)


encode_worker_file = msgspec.msgpack.Encoder().encode
decode_worker_file = msgspec.msgpack.Decoder(WorkerFile).decode
