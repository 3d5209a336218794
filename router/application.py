"""The router behind its front: one worker's whole state, started and ended here.

Static mode: endpoints and keys from a file, nothing shared. Fed mode: from the orchestrator through Redis;
requests are refused until the first three snapshots are there, and after that nothing waits for Redis.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import traceback
from collections.abc import Coroutine
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from orchestrator.wire.feed import Load
from orchestrator.wire.presence import Presence
from router.access_log import AccessLog
from router.accounts import Accounts
from router.call import Call, own_or_new_id
from router.circuit import CircuitState
from router.config import RouterConfig, WorkerIdentity
from router.dispatch import ClientGone, Dispatch
from router.engines import Engines
from router.error_answers import body_of, headers_of, status_of
from router.errors import (
    NoEndpoint,
    RouterError,
    UpstreamBroke,
)
from router.exchange import Exchange
from router.feed import Feed
from router.handlers import SCANNED_IN_THREAD, Handlers
from router.metrics import Metrics
from router.page_files import read_page_files
from router.presence import WorkerFacts, build_presence, empty_presence
from router.routes import NO_ROUTE, Kind, find_route, form_of_path
from router.snapshot import Snapshots, State, build_state
from router.static_file import check_open_access, load_static_file

SWEEP_EVERY_S = 0.25
#: A sweep that comes this late was not late: the process slept.
SLEPT_S = 1.0
#: The status written down for a client that left before its answer; it is never read.
CLIENT_GONE = 499


def read_static(config: RouterConfig) -> Snapshots | None:
    """The snapshots of static mode, None in fed mode. StaticFileError when it cannot or must not serve."""
    if config.static_file is None:
        return None
    snapshots = load_static_file(config.static_file)
    check_open_access(snapshots, config.bind_host)
    return snapshots


class Application:
    """One worker. Everything runs in its loop's thread."""

    def __init__(
        self, config: RouterConfig, worker: WorkerIdentity, metrics: Metrics, log: AccessLog
    ) -> None:
        self._config = config
        self._metrics = metrics
        self._accounts = Accounts(metrics, log)
        self._facts = WorkerFacts(worker.id, socket.gethostname(), _own_version())
        #: Request ids that this worker makes: unique without a draw per request.
        self._id_prefix = f"req-{os.urandom(6).hex()}-"
        self._requests = 0
        self._running: set[Call] = set()
        self._state: State | None = None
        self._feed: Feed | None = None
        self._draining = False
        self._closed = False
        #: (name, labels) of the gauges that are set.
        self._gauges: set[tuple[str, tuple[str, ...]]] = set()
        #: Set when nothing runs any more, once closing has begun.
        self._closing: asyncio.Event | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop
        self._engines: Engines
        self._dispatch: Dispatch
        self._handlers: Handlers

    async def start(self) -> None:
        """Before the first request. StaticFileError when the file cannot be used; Redis is not waited for."""
        self._loop = loop = asyncio.get_running_loop()
        static = read_static(self._config)
        self._engines = Engines(loop)
        self._dispatch = Dispatch(
            loop,
            self._engines,
            self._metrics,
            self._want_load,
            self._finish,
            fed=static is None,
        )
        pages = await asyncio.to_thread(read_page_files)
        self._handlers = Handlers(self._config.body_cap, self._dispatch, pages)
        self._metrics.refresh_with(self._set_gauges)
        if static is not None:
            self.take_snapshots(static)
        elif self._config.redis_url is not None:
            self._feed = Feed(
                self._config.redis_url,
                self._config.cluster,
                self._facts.id,
                empty_presence(self._facts),
                self,
            )
            self._feed.start()
        self._sweep_timer = loop.call_later(SWEEP_EVERY_S, self._sweep, loop.time() + SWEEP_EVERY_S)

    def begin(self, exchange: Exchange) -> Coroutine[Any, Any, None] | None:
        """Start to answer a request; its end shows on the exchange. Raises nothing.

        What can be done at once is done in this call. What has to wait for the rest of the body is left
        to the coroutine that is returned, which the front runs.
        """
        self._requests += 1
        fresh = f"{self._id_prefix}{self._requests:x}"
        call = Call(exchange, own_or_new_id(exchange.header("x-request-id"), fresh))
        self._running.add(call)
        return self._begin(call)

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request to its end. Raises nothing but CancelledError."""
        self._requests += 1
        fresh = f"{self._id_prefix}{self._requests:x}"
        call = Call(exchange, own_or_new_id(exchange.header("x-request-id"), fresh))
        call.ended = self._loop.create_future()
        self._running.add(call)
        try:
            rest = self._begin(call)
            if rest is not None:
                await rest
            await call.ended
        except asyncio.CancelledError:
            call.reason = call.reason or "cancelled"
            self._dispatch.client_left(call)
            raise

    def _begin(self, call: Call) -> Coroutine[Any, Any, None] | None:
        exchange = call.exchange
        try:
            call.route = route = find_route(exchange.method, exchange.path)
            if route.kind is Kind.PAGE:
                self._handlers.answer_page(call)
            elif not route.upstream:
                self._handlers.answer_get(call, route, self._present_state())
            else:
                state = self._present_state()
                keys = self._handlers.check_head(call, state)
                body = exchange.whole_body()
                if body is None or len(body) > SCANNED_IN_THREAD:
                    return self._read_and_dispatch(call, state, keys)
                self._handlers.dispatch(call, state, keys, self._handlers.scan(call, body))
                return None
        except Exception as error:
            self._finish(call, error)
        else:
            self._finish(call, None)
        return None

    async def _read_and_dispatch(self, call: Call, state: State, keys: tuple[str, ...]) -> None:
        try:
            scanned = await self._handlers.read_body(call)
            self._handlers.dispatch(call, state, keys, scanned)
        except asyncio.CancelledError:
            self._finish(call, ClientGone())
            raise
        except Exception as error:
            self._finish(call, error)

    def _finish(self, call: Call, error: Exception | None) -> None:
        """The end of a request, once, whatever it was."""
        try:
            if error is None:
                pass
            elif isinstance(error, RouterError):
                self._refuse(call, error)
            elif isinstance(error, ClientGone):
                self._answer_nobody(call)
            else:
                self._own_mistake(call, error)
        finally:
            self._running.discard(call)
            if self._closing is not None and not self._running:
                self._closing.set()
            self._accounts.settle(call, self._loop.time())
            if call.ended is not None and not call.ended.done():
                call.ended.set_result(None)

    def ready(self) -> str | None:
        """None when requests are welcome, else why not."""
        if self._draining:
            return "draining"
        if self._state is not None:
            return None
        missing = [] if self._feed is None else self._feed.missing()
        if self._feed is None or not missing:
            return "starting"
        waiting = f"waiting for the snapshots: {', '.join(missing)}"
        return f"{self._feed.away}; {waiting}" if self._feed.away else waiting

    def begin_drain(self) -> None:
        """Serve on, and say that this worker will end."""
        self._draining = True
        if self._feed is not None:
            self._feed.changed()

    async def close(self, limit: float) -> None:
        """Let what runs run out for at most ``limit`` seconds, then break it off; end the rest."""
        self._draining = True
        self._closing = asyncio.Event()
        if self._running:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit):
                    await self._closing.wait()
        self._closed = True
        # Before the places come free: nobody is to be sent to them any more.
        for gate in self._engines.gates.values():
            gate.close("stopping")
        self._dispatch.stop()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._engines.close()
        if self._feed is not None:
            await self._feed.close()

    # What the feed tells.

    def take_snapshots(self, snapshots: Snapshots) -> None:
        """Swap the state. NameClash when the catalog cannot be: the present one stays."""
        required = self._config.static_file is None or bool(snapshots.access.keys)
        state = build_state(snapshots, keys_required=required)
        self._engines.apply(state)
        self._state = state
        self._metrics.set_models(state.names)
        for endpoint, why in self._engines.refused.items():
            print(f"router: endpoint {endpoint} is left out: {why}", file=sys.stderr, flush=True)

    def hear(self, load: Load) -> None:
        """An agent's load entry."""
        self._engines.hear(load)

    def presence(self) -> Presence:
        """This worker as it is now."""
        return build_presence(
            self._facts,
            {} if self._state is None else self._state.versions,
            self._engines.places(),
            self._engines.gates,
            self._accounts.totals(),
            self._loop.time(),
            draining=self._draining,
        )

    # Within.

    def _present_state(self) -> State:
        if self._state is None:
            raise NoEndpoint(
                f"this router is not ready yet ({self.ready()}); try again", retry_after=1.0
            )
        if self._feed is not None:
            self._handlers.clock_offset_ms = self._feed.clock_offset_ms
        return self._state

    def _want_load(self, model: str) -> None:
        if self._feed is not None:
            self._feed.want(model)

    def _refuse(self, call: Call, error: RouterError) -> None:
        exchange = call.exchange
        exchange.on_gone(None)
        form = form_of_path(exchange.path) if call.route is NO_ROUTE else call.route.form
        call.status = status_of(error, form)
        # An engine's refusal in our words (a prompt too long for it) is no failure of anybody.
        call.outcome = "failed" if call.tries and error.status >= 500 else "refused"
        call.reason = call.reason or error.code or type(error).__name__
        # No model answered.
        call.served_by = None
        headers = call.headers()
        if form == "anthropic" and call.route is NO_ROUTE:
            headers.append(("request-id", call.request_id))
        headers.extend(headers_of(error))
        exchange.respond(call.status, headers, body_of(error, form, call.request_id))

    def _answer_nobody(self, call: Call) -> None:
        call.status = CLIENT_GONE
        call.outcome = "client_gone"
        call.reason = call.reason or "client_gone"
        call.exchange.on_gone(None)
        call.exchange.respond(CLIENT_GONE, call.headers(), b"")

    def _own_mistake(self, call: Call, error: Exception) -> None:
        """A bug of ours: its place goes to the log without its text, which may quote a request."""
        place = "".join(traceback.format_tb(error.__traceback__))
        print(
            f"router: {call.request_id}: {type(error).__name__}\n{place}",
            file=sys.stderr,
            flush=True,
        )
        call.outcome = "failed"
        call.reason = "router_error"
        if call.streaming:
            call.exchange.cut(b"")
            return
        self._refuse(call, UpstreamBroke("the router failed on this request", retry_after=1.0))

    def _sweep(self, due: float) -> None:
        now = self._loop.time()
        if not self._closed:
            # First: a mistake below must not end all sweeps.
            self._sweep_timer = self._loop.call_later(
                SWEEP_EVERY_S, self._sweep, now + SWEEP_EVERY_S
            )
        lenient = now - due > SLEPT_S
        if lenient:
            # What arrived while the process slept is read first, and what changed meanwhile is asked for.
            self._loop.call_soon(self._sweep_limits, True)
            if self._feed is not None:
                self._feed.changed()
        else:
            self._sweep_limits(False)

    def _sweep_limits(self, lenient: bool) -> None:
        now = self._loop.time()
        for relay in tuple(self._dispatch.relays):
            relay.sweep(now, lenient)
        self._engines.sweep(now)

    def _set_gauges(self) -> None:
        now = self._loop.time()
        gauges: dict[tuple[str, tuple[str, ...]], float | None] = {}
        running = dict.fromkeys(self._engines.gates, 0)
        for place in self._engines.places():
            model, endpoint = place.endpoint.model, (place.endpoint.id,)
            if model in running:
                running[model] += place.in_flight
            if place.retired:
                continue
            resting = place.circuit.state is not CircuitState.CLOSED
            gauges["circuit_open", endpoint] = float(resting)
            if place.report is not None:
                gauges["report_age_seconds", endpoint] = now - place.report.taken
        for name, gate in self._engines.gates.items():
            gauges["requests_in_flight", (name,)] = running[name]
            gauges["requests_queued", (name, "standard")] = len(gate.waiting)
            gauges["oldest_wait_seconds", (name,)] = gate.oldest_wait(now) or 0.0
        if self._feed is not None:
            age = self._feed.age_of_versions()
            gauges["snapshot_age_seconds", ()] = age
            gauges["access_age_seconds", ()] = age
        # What is gone is taken away.
        for name, labels in self._gauges - gauges.keys():
            self._metrics.gauge(name, labels, None)
        for (name, labels), value in gauges.items():
            self._metrics.gauge(name, labels, value)
        self._gauges = set(gauges)


def _own_version() -> str:
    try:
        return version("llmgw")
    except PackageNotFoundError:
        return "0"
