"""The parent: starts the workers and the metrics page, keeps them, passes signals on, serves nothing.

granian's own parent is not used. Its rule that a worker which fails twice within 5.5 s ends the whole router
cannot be switched off, it knows no heartbeat, and after a respawn its exit status is that of a failure. Each
worker, whatever its front, listens on a socket of its own in one group.

Each child has the parent's order on standard input and sees there when the parent is gone.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec

from router.config import (
    CONNECTIONS_CAP,
    ENDED_BY_INTERRUPT,
    OVERTIME_S,
    RouterConfig,
    shown_address,
)
from router.listeners import page_listener, reserved_address
from router.orders import PageOrder, WorkerOrder

BACK_OFF_FIRST_S = 1.0
BACK_OFF_LAST_S = 30.0
#: A worker that lived so long starts its back-off anew.
BACK_OFF_FORGET_S = 60.0
#: A heartbeat (one file a second) that stood still so long: the worker hangs and is killed.
HEARTBEAT_LIMIT_S = 15.0
#: Until the first heartbeat.
START_LIMIT_S = 60.0
LOOK_EVERY_S = 1.0
START_LOOK_EVERY_S = 0.02
#: Each request may need a connection to the client and one to an engine.
OPEN_FILES_WANTED = 2 * CONNECTIONS_CAP + 512

COULD_NOT_START = 1


_OWN_PATH = os.pathsep.join(
    [
        str(Path(__file__).resolve().parent.parent),
        *filter(None, [os.environ.get("PYTHONPATH")]),
    ]
)


class BackOff:
    """Seconds to wait before a child is started again: 1, doubling to 30."""

    def __init__(self) -> None:
        self._next = BACK_OFF_FIRST_S

    def after(self, lived: float) -> float:
        """The wait after a life of ``lived`` seconds."""
        if lived >= BACK_OFF_FORGET_S:
            self._next = BACK_OFF_FIRST_S
        wait = self._next
        self._next = min(2 * wait, BACK_OFF_LAST_S)
        return wait


class Heartbeat:
    """How long a worker's file has stood still, on our clock.

    Counted from look to look, so that neither a step of the wall clock nor a sleep of this process
    looks like a worker that hangs.
    """

    def __init__(self, now: float) -> None:
        self._seen: int | None = None
        self._looked = now
        self._still = 0.0

    @property
    def seen(self) -> bool:
        """Whether there was any."""
        return self._seen is not None

    def hangs(self, changed: int | None, now: float) -> bool:
        """One look: ``changed`` is the file's time in ns, None while there is no file."""
        self._still += min(now - self._looked, 2 * LOOK_EVERY_S)
        self._looked = now
        if changed != self._seen:
            self._seen = changed
            self._still = 0.0
        return self._still > (HEARTBEAT_LIMIT_S if self.seen else START_LIMIT_S)


class RouterProcesses:
    """The parent's whole life: ``await run()`` gives the exit status."""

    def __init__(self, config: RouterConfig, port_file: str | None) -> None:
        self._config = config
        self._port_file = port_file
        self._children: set[asyncio.subprocess.Process] = set()
        self._workers: dict[int, asyncio.subprocess.Process] = {}
        self._beating: set[int] = set()
        self._all_beat = asyncio.Event()
        self._stopping = asyncio.Event()
        self._announced = False
        self._status = 0

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        _raise_open_files()
        with ExitStack() as stack:
            address = stack.enter_context(reserved_address(self._config))
            page = stack.enter_context(page_listener(self._config))
            port, metrics_port = address.getsockname()[1], page.getsockname()[1]
            self._config = msgspec.structs.replace(
                self._config, bind_port=port, metrics_port=metrics_port
            )
            await self._keep_all(page)
        return self._status

    async def _keep_all(self, page: socket.socket) -> None:
        page_order = PageOrder(self._config.metrics_dir, page.fileno(), self._config.metrics_host)
        page_task = asyncio.create_task(
            self._keep("metrics page", "router.metrics_page", page_order, page.fileno())
        )
        workers = [
            asyncio.create_task(
                self._keep(f"worker {index}", "router.worker_process", order, index=index)
            )
            for index in range(self._config.workers)
            for order in [WorkerOrder(index, self._config)]
        ]
        announcing = asyncio.create_task(self._announce())
        try:
            await asyncio.gather(*workers)
        finally:
            # The page outlives the workers, so that their end can still be seen.
            self._stopping.set()
            announcing.cancel()
            for child in self._children:
                _send(child, signal.SIGTERM)
            await asyncio.gather(page_task, announcing, return_exceptions=True)

    async def _keep(
        self,
        name: str,
        module: str,
        order: WorkerOrder | PageOrder,
        *pass_fds: int,
        index: int | None = None,
    ) -> None:
        """Start a child, wait for its end, start it again, until the router stops."""
        loop = asyncio.get_running_loop()
        back_off = BackOff()
        while not self._stopping.is_set():
            started = loop.time()
            child = await self._spawn(module, order, pass_fds)
            self._children.add(child)
            try:
                if index is None:
                    await child.wait()
                else:
                    self._workers[index] = child
                    if self._stopping.is_set():
                        _send(child, signal.SIGTERM)
                    await self._watch(name, index, child)
            finally:
                self._children.discard(child)
            if self._stopping.is_set():
                return
            if not self._announced:
                # Nothing was promised yet, and what keeps it from starting is said by itself.
                self._status = COULD_NOT_START
                _say(f"{name} could not start ({_how_it_ended(child)}); giving up")
                self._stop()
                return
            wait = back_off.after(loop.time() - started)
            _say(
                f"{name} (pid {child.pid}) ended ({_how_it_ended(child)}); "
                f"it is started again in {wait:g} s"
            )
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), wait)

    async def _spawn(
        self, module: str, order: WorkerOrder | PageOrder, pass_fds: tuple[int, ...]
    ) -> asyncio.subprocess.Process:
        # This very package, not one that happens to lie in the working directory (-P).
        # Its own process group: a Ctrl-C at the terminal reaches the parent alone.
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            module,
            env={**os.environ, "PYTHONPATH": _OWN_PATH},
            stdin=asyncio.subprocess.PIPE,
            pass_fds=pass_fds,
            process_group=0,
        )
        assert child.stdin is not None
        with suppress(ConnectionError):
            child.stdin.write(msgspec.json.encode(order) + b"\n")
            await child.stdin.drain()
        return child

    async def _watch(self, name: str, index: int, child: asyncio.subprocess.Process) -> None:
        """Until the worker has ended; one that hangs is killed."""
        loop = asyncio.get_running_loop()
        path = os.path.join(self._config.metrics_dir, f"{index}-{child.pid}")
        heartbeat = Heartbeat(loop.time())
        while True:
            every = LOOK_EVERY_S if heartbeat.seen else START_LOOK_EVERY_S
            with suppress(TimeoutError):
                await asyncio.wait_for(child.wait(), every)
                return
            hangs = heartbeat.hangs(_changed(path), loop.time())
            if heartbeat.seen:
                self._beating.add(index)
                if len(self._beating) == self._config.workers:
                    self._all_beat.set()
            if hangs:
                _say(f"{name} (pid {child.pid}) hangs: no heartbeat; killing it")
                _send(child, signal.SIGKILL)

    async def _announce(self) -> None:
        config = self._config
        await self._all_beat.wait()
        self._announced = True
        if self._port_file is not None:
            _write_ports(self._port_file, config)
        page = f"http://{shown_address(config.metrics_host, config.metrics_port)}/metrics"
        address = f"http://{shown_address(config.bind_host, config.bind_port)}"
        _say(f"listening on {address}, {config.workers} workers, metrics on {page}")
        if config.redis_url is None and config.workers > 1:
            _say(
                f"no store: the {config.workers} workers share nothing, "
                "each has its own queue and counts"
            )

    def _stop(self) -> None:
        """Pass the signal on and wait; what outlives its own limits is killed."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        for child in self._workers.values():
            _send(child, signal.SIGTERM)
        config = self._config
        limit = config.grace + config.stop_limit + 2 * OVERTIME_S
        asyncio.get_running_loop().call_later(limit, self._kill)

    def _interrupt(self) -> None:
        if not self._stopping.is_set():
            self._stop()
        else:
            self._status = ENDED_BY_INTERRUPT
            self._kill()

    def _kill(self) -> None:
        for child in self._children:
            _send(child, signal.SIGKILL)


def _raise_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if soft != resource.RLIM_INFINITY and soft < OPEN_FILES_WANTED:
        _say(
            f"open files are limited to {soft} (about {soft // 2} requests at once per worker); "
            f"allow {OPEN_FILES_WANTED}: ulimit -Hn, or LimitNOFILE= of the service"
        )


def _changed(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


def _send(child: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        child.send_signal(number)


def _how_it_ended(child: asyncio.subprocess.Process) -> str:
    code = child.returncode
    if code is not None and code < 0:
        return f"by {signal.Signals(-code).name}"
    return f"status {code}"


def _write_ports(path: str, config: RouterConfig) -> None:
    ports = {"port": config.bind_port, "metrics_port": config.metrics_port}
    Path(f"{path}.new").write_bytes(msgspec.json.encode(ports))
    os.replace(f"{path}.new", path)


def _say(text: str) -> None:
    print(f"router: {text}", file=sys.stderr, flush=True)
