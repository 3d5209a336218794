"""The four parts of a one-machine cluster: started in order, ended in the reverse, waited for."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import redis

from orchestrator.up.child_process import Child, wait_until
from orchestrator.up.embedded_redis import Server, configuration
from orchestrator.up.errors import CannotStart
from orchestrator.up.free_port import next_free
from orchestrator.up.state_folder import StateFolder

#: The store's usual port here: beside Redis's own 6379, which often belongs to something else.
USUAL_STORE_PORT = 6390
#: A part that is not up after this many seconds will not be.
START_LIMIT = 30.0
#: Seconds a part has to end: the agent ends its engines first.
END_GRACE = {"router": 5.0, "orchestrator": 5.0, "agent": 40.0, "store": 10.0}


class Ports(NamedTuple):
    """Where the parts listen, all on loopback."""

    router: int
    admin: int


class Parts:
    """The running parts. ``end`` ends whatever was started, however far that came."""

    def __init__(self, state: StateFolder, environ: dict[str, str]) -> None:
        self._state = state
        self._environ = environ
        self._children: list[Child] = []

    def _start(self, name: str, argv: list[str]) -> Child:
        try:
            child = Child(name, argv, self._state.logs / f"{name}.log", self._environ)
        except OSError as error:
            raise CannotStart(f"the {name} cannot be started", str(error)) from None
        self._children.append(child)
        return child

    def _python(self, name: str, module: str, arguments: list[str]) -> Child:
        return self._start(name, [sys.executable, "-m", module, *arguments])

    def start_store(self, server: Server) -> None:
        """The Redis server, and the file by which the other parts find it."""
        password = self._state.password()
        port = next_free(USUAL_STORE_PORT)
        written = self._state.write_secret(
            "redis.conf", configuration(self._state.redis, port, password)
        )
        self._state.write_secret("redis_url", f"redis://:{password}@127.0.0.1:{port}/0")
        child = self._start("store", [server.path, str(written)])
        _wait_for_store(child, port, password)

    def start_orchestrator(self, cluster_file: Path, port: int) -> Path:
        """The orchestrator; its port file appears when the admin listener answers."""
        ready = self._state.run / "orchestrator.json"
        self._python(
            "orchestrator",
            "orchestrator",
            [
                *self._store_option(),
                *("--config", str(cluster_file)),
                *("--admin-bind", f"127.0.0.1:{port}"),
                *("--state", str(self._state.orchestrator)),
                *("--port-file", str(ready)),
            ],
        )
        return ready

    def start_agent(self, node: str) -> None:
        """The agent of this machine; its engines end with it."""
        self._python(
            "agent",
            "agent",
            [
                *self._store_option(),
                *("--node", node),
                *("--state", str(self._state.agent)),
                *("--metrics-bind", "127.0.0.1:0"),
                "--engines-end-with-agent",
            ],
        )

    def start_router(self, port: int, workers: int) -> Path:
        """The router; its port file appears when it accepts."""
        ready = self._state.run / "router.json"
        self._python(
            "router",
            "router",
            [
                *("--redis-file", str(self._state.path / "redis_url")),
                *("--bind", f"127.0.0.1:{port}"),
                *("--metrics-bind", "127.0.0.1:0"),
                *("--workers", str(workers)),
                *("--run", str(self._state.run / "router")),
                *("--grace", "0", "--stop-limit", "2"),
                *("--access-log", str(self._state.logs / "access.log")),
                *("--port-file", str(ready)),
            ],
        )
        return ready

    def _store_option(self) -> list[str]:
        return ["--redis-file", str(self._state.path / "redis_url")]

    def wait(self, name: str, ready: Path) -> dict[str, object]:
        """Wait for a part's port file and read it."""
        wait_until(self.child(name), ready, START_LIMIT)
        found: dict[str, object] = json.loads(ready.read_text())
        return found

    def child(self, name: str) -> Child:
        """A part that was started."""
        return next(child for child in self._children if child.name == name)

    def check(self) -> None:
        """CannotStart when a part has ended."""
        for child in self._children:
            child.check()

    def end(self) -> None:
        """End everything: nothing new is placed, engines end with their agent, the store last."""
        order = ("orchestrator", "agent", "router", "store")
        for child in sorted(self._children, key=lambda child: order.index(child.name)):
            code = child.end(END_GRACE[child.name])
            if child.name == "agent" and code != 0:
                self._end_engines()
        self._children.clear()

    def _end_engines(self) -> None:
        """Engines outlive an agent that was killed; ours end with us all the same."""
        argv = [sys.executable, "-m", "agent", "--end-engines", "--state", str(self._state.agent)]
        with suppress(OSError):  # there is no process to be had: nothing can be done any more
            ending = Child("agent", argv, self._state.logs / "agent.log", self._environ)
            ending.wait(END_GRACE["agent"])


def _wait_for_store(child: Child, port: int, password: str) -> None:
    """Until the store answers a PING: it may be reading its file still."""
    client = redis.Redis(host="127.0.0.1", port=port, password=password, socket_timeout=2)
    end = time.monotonic() + START_LIMIT
    try:
        while True:
            child.check()
            try:
                client.ping()
                return
            except redis.RedisError as error:
                if time.monotonic() > end:
                    raise CannotStart("the store does not answer", str(error)) from None
                time.sleep(0.02)
    finally:
        client.close()
