"""The page of metrics: a small process that adds up what the workers write, so that they need not.

Counters come from all files of this start, those of dead workers too (a counter never falls);
gauges only from files that are fresh. On loopback every request passes the loopback guard; on another
address only what reads no secret and changes nothing is there at all.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import platform
import signal
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_1_0_0
from prometheus_client.registry import Collector

from orchestrator.wire.loopback_guard import refusal
from router.metric_families import FAMILIES, PREFIX, Family
from router.metrics import Labels, WorkerFile, decode_worker_file
from router.orders import ORDER_FD, PageOrder, read_order

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: A file older than this says nothing about the present.
FRESH_S = 5.0


class Written(msgspec.Struct, frozen=True):
    """A worker's file and whether it is fresh."""

    file: WorkerFile
    fresh: bool


class WorkerFiles:
    """The folder of the workers' files; only changed ones are decoded again."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: dict[str, tuple[int, WorkerFile]] = {}

    def read(self, now: float) -> list[Written]:
        """All of them; ``now`` by the wall clock, as the files' times are."""
        found = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith(".new"):
                    continue
                changed = entry.stat().st_mtime_ns
                known = self._known.get(entry.name)
                if known is None or known[0] != changed:
                    with open(entry.path, "rb") as file:
                        known = (changed, decode_worker_file(file.read()))
                    self._known[entry.name] = known
                found.append(Written(known[1], now - changed / 1e9 < FRESH_S))
        return found


class AddedUp(Collector):
    """The sum of the workers, in prometheus-client's form."""

    def __init__(self, written: Iterable[Written]) -> None:
        self._written = list(written)

    def collect(self) -> Iterator[Metric]:
        counters: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        gauges: dict[str, dict[Labels, float]] = defaultdict(dict)
        histograms: dict[str, dict[Labels, tuple[list[int], float]]] = defaultdict(dict)
        for each in self._written:
            for counter in each.file.counters:
                counters[counter.name][counter.labels] += counter.value
            for row in each.file.histograms:
                counts, total = histograms[row.name].get(row.labels, ([0] * len(row.counts), 0.0))
                summed = [a + b for a, b in zip(counts, row.counts, strict=True)]
                histograms[row.name][row.labels] = (summed, total + row.total)
            for gauge in each.file.gauges if each.fresh else ():
                have = gauges[gauge.name].get(gauge.labels)
                if have is None:
                    value = gauge.value
                elif FAMILIES[gauge.name].merge == "sum":
                    value = have + gauge.value
                else:
                    value = max(have, gauge.value)
                gauges[gauge.name][gauge.labels] = value
        for name, family in FAMILIES.items():
            full = PREFIX + name
            if family.kind == "counter":
                counted = CounterMetricFamily(full, family.help, labels=family.labels)
                for labels, value in counters[name].items():
                    counted.add_metric(labels, value)
                yield counted
            elif family.kind == "gauge":
                shown = GaugeMetricFamily(full, family.help, labels=family.labels)
                for labels, value in gauges[name].items():
                    shown.add_metric(labels, value)
                yield shown
            else:
                yield _histogram(full, family, histograms[name])
        info = GaugeMetricFamily(PREFIX + "build_info", "1", labels=("version", "python"))
        info.add_metric((_own_version(), platform.python_version()), 1)
        yield info
        workers = GaugeMetricFamily(PREFIX + "workers", "Worker processes", labels=("state",))
        for state, number in worker_states(self._written).items():
            workers.add_metric((state,), number)
        yield workers


def _own_version() -> str:
    try:
        return version("llmgw")
    except PackageNotFoundError:
        return "not installed"


def _histogram(
    name: str, family: Family, rows: dict[Labels, tuple[list[int], float]]
) -> HistogramMetricFamily:
    metric = HistogramMetricFamily(name, family.help, labels=family.labels)
    bounds = [*(repr(bound) for bound in family.buckets), "+Inf"]
    for labels, (counts, total) in rows.items():
        metric.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
    return metric


def worker_states(written: Iterable[Written]) -> dict[str, int]:
    """How many live workers are in each state."""
    states = {"ready": 0, "not_ready": 0, "draining": 0}
    for each in written:
        if each.fresh:
            states[_state(each.file)] += 1
    return states


def _state(file: WorkerFile) -> str:
    if file.draining:
        return "draining"
    return "ready" if file.not_ready is None else "not_ready"


def why_not_ready(written: Iterable[Written]) -> str | None:
    """None when a worker takes requests, else the workers' reasons."""
    fresh = [each.file for each in written if each.fresh]
    if any(_state(file) == "ready" for file in fresh):
        return None
    reasons = {f"worker {file.index}: {file.not_ready or 'draining'}" for file in fresh}
    return "; ".join(sorted(reasons)) or "no worker is running"


def exposition(written: Iterable[Written]) -> bytes:
    """Prometheus's text."""
    registry = CollectorRegistry()
    registry.register(AddedUp(written))
    return generate_latest(registry)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on ``host``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def build_page(order: PageOrder) -> web.Application:
    """The page's handlers."""
    files = WorkerFiles(order.metrics_dir)

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        headers = list(request.headers.items())
        refused = refusal(request.method, request.raw_path, headers)
        if refused is not None:
            return web.Response(status=refused.status, text=refused.reason + "\n")
        return await handler(request)

    async def metrics(request: web.Request) -> web.Response:
        body = exposition(files.read(time.time()))
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_1_0_0})

    async def health(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readiness(request: web.Request) -> web.Response:
        why = why_not_ready(files.read(time.time()))
        if why is None:
            return web.Response(text="ready\n")
        return web.Response(status=503, text=f"not ready: {why}\n")

    page = web.Application(middlewares=[guarded] if is_loopback(order.host) else [])
    page.router.add_get("/metrics", metrics)
    page.router.add_get("/healthz", health)
    page.router.add_get("/readyz", readiness)
    return page


async def serve_page(order: PageOrder) -> None:
    """Serve until told to end, or until the parent is gone and with it the workers."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    # A Ctrl-C ends it too, but by the parent, after the workers have drained.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    loop.add_reader(ORDER_FD, ended.set)
    runner = web.AppRunner(build_page(order), access_log=None, handler_cancellation=True)
    await runner.setup()
    try:
        await web.SockSite(runner, socket.socket(fileno=order.fd), shutdown_timeout=1.0).start()
        await ended.wait()
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    sys.exit(asyncio.run(serve_page(msgspec.json.decode(read_order(), type=PageOrder))))
