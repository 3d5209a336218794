"""The agent's own page for Prometheus, behind the loopback guard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agent.reach import Reach
from agent.supervise import Supervisor
from orchestrator.wire.loopback_guard import refusal

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class AgentCollector(Collector):
    """Reads the supervisor at each scrape. A number that is unknown is left out."""

    def __init__(self, supervisor: Supervisor, reach: Reach) -> None:
        self._supervisor = supervisor
        self._reach = reach

    def collect(self) -> Iterator[Metric]:
        """Every family."""
        up = GaugeMetricFamily("llmgw_agent_up", "1 while the agent runs")
        up.add_metric([], 1)
        yield up
        store = GaugeMetricFamily("llmgw_agent_redis_reachable", "0 while Redis is away")
        store.add_metric([], float(self._reach.reachable is True))
        yield store
        yield from self._engines()

    def _engines(self) -> Iterator[Metric]:
        labels = ["model", "replica"]
        running = GaugeMetricFamily(
            "llmgw_agent_requests_running", "Requests that the engine works on", labels=labels
        )
        waiting = GaugeMetricFamily(
            "llmgw_agent_requests_waiting", "Requests that wait in the engine", labels=labels
        )
        cache = GaugeMetricFamily(
            "llmgw_agent_kv_cache_usage_ratio", "Use of the engine's cache, 0 to 1", labels=labels
        )
        failures = CounterMetricFamily(
            "llmgw_agent_engine_scrape_failures",
            "Scrapes of an engine that failed",
            labels=["replica"],
        )
        states = GaugeMetricFamily(
            "llmgw_agent_shard_state",
            "1 for the state that the shard is in",
            labels=[*labels, "state"],
        )
        for row in self._supervisor.rows:
            names = [row.shard.model, row.shard.replica]
            states.add_metric([*names, row.state], 1)
            if row.scraper is None:
                continue
            n = row.scraper.numbers
            failures.add_metric([row.shard.replica], row.scraper.failures)
            for family, value in (
                (running, n.running),
                (waiting, n.waiting),
                (cache, n.cache_use),
            ):
                if value is not None:
                    family.add_metric(names, value)
        yield from (running, waiting, cache, failures, states)


class MetricsServer:
    """``/metrics`` and ``/healthz`` on one address."""

    def __init__(self, collector: Collector) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(collector)
        application = web.Application(middlewares=[_guard])
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/healthz", self._healthz)
        self._runner = web.AppRunner(application, access_log=None)

    async def start(self, host: str, port: int) -> int:
        """Listens; the port, which matters where 0 was asked for. OSError when it is taken."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Stops listening."""
        await self._runner.cleanup()

    async def _metrics(self, _: web.Request) -> web.Response:
        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": _CONTENT_TYPE})

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")


@web.middleware
async def _guard(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    no = refusal(request.method, str(request.rel_url), list(request.headers.items()))
    if no is not None:
        return web.Response(status=no.status, text=no.reason + "\n")
    return await handler(request)
