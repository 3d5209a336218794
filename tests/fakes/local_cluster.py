"""A whole llmgw on this machine for a test: real Redis, orchestrators, agents, routers, engines.

Every process is a child with a log file in the test's folder, can be killed by name, and is gone at
the end. Ports are chosen by the processes themselves and read from their port files.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import psutil

from orchestrator.up.local_api import call
from tests.fakes.redis_server import RedisServer

START_LIMIT = 30.0


def eventually(
    what: str, is_true: Callable[[], Any], limit: float = 30.0, every: float = 0.05
) -> Any:
    """The first true value of ``is_true()``; fails naming ``what`` and the last value otherwise."""
    end = time.monotonic() + limit
    while True:
        found = is_true()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit:.0f} s: {what} (last: {found!r})")
        time.sleep(every)


class Part:
    """One process of the cluster."""

    def __init__(self, name: str, argv: list[str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Signal the process itself (not its children) and, for SIGKILL, wait until it is gone."""
        self.process.send_signal(how)
        if how == signal.SIGKILL:
            self.process.wait(10)

    def end(self, limit: float = 15.0) -> None:
        """SIGTERM, then SIGKILL."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class LocalCluster:
    """Started parts by name; ``models`` is the content of cluster.yaml."""

    def __init__(self, folder: Path, models: Iterable[dict[str, Any]] = (), **more: Any) -> None:
        self.folder = folder
        self.parts: dict[str, Part] = {}
        self.admin_ports: dict[str, int] = {}
        self.router_port = 0
        self.key = ""
        self.redis = RedisServer(folder / "redis")
        self.cluster_file = folder / "cluster.yaml"
        self.write_cluster(models, **more)

    def write_cluster(self, models: Iterable[dict[str, Any]], **more: Any) -> None:
        """(Re)write cluster.yaml whole."""
        text = msgspec.yaml.encode({"models": list(models), **more})
        part = self.cluster_file.with_suffix(".part")
        part.write_bytes(text)
        part.rename(self.cluster_file)

    # ------------------------------------------------------------ starting

    def start_redis(self) -> None:
        self.redis.start()
        self.url_file = self.folder / "redis_url"
        self.url_file.write_text(self.redis.url)
        self.url_file.chmod(0o600)

    def _python(self, name: str, module: str, *arguments: str) -> Part:
        argv = [sys.executable, "-m", module, "--redis-file", str(self.url_file), *arguments]
        part = Part(name, argv, self.folder)
        self.parts[name] = part
        return part

    def _ready(self, part: Part, ready: Path) -> dict[str, Any]:
        def there() -> bool:
            if part.process.poll() is not None:
                raise AssertionError(f"{part.name} ended:\n{part.log.read_text()[-3000:]}")
            return ready.exists()

        eventually(f"{part.name} is ready; its log: {part.log}", there, START_LIMIT)
        return json.loads(ready.read_text())

    def start_orchestrator(self, name: str = "orchestrator") -> Part:
        ready = self.folder / f"{name}.json"
        ready.unlink(missing_ok=True)
        part = self._python(
            name,
            "orchestrator",
            *("--config", str(self.cluster_file), "--admin-bind", "127.0.0.1:0"),
            *("--state", str(self.folder / f"{name}-state"), "--port-file", str(ready)),
        )
        self.admin_ports[name] = int(self._ready(part, ready)["port"])
        return part

    def start_agent(self, node: str, config: dict[str, Any] | None = None) -> Part:
        written = self.folder / f"{node}.yaml"
        written.write_bytes(msgspec.yaml.encode(config or {}))
        return self._python(
            node,
            "agent",
            *("--node", node, "--config", str(written)),
            *("--state", str(self.folder / f"{node}-state"), "--metrics-bind", "127.0.0.1:0"),
        )

    def start_router(self, workers: int = 1, name: str = "router", *more: str) -> Part:
        ready = self.folder / f"{name}.json"
        ready.unlink(missing_ok=True)
        part = self._python(
            name,
            "router",
            *("--bind", f"127.0.0.1:{self.router_port}", "--metrics-bind", "127.0.0.1:0"),
            *("--workers", str(workers), "--run", str(self.folder / f"{name}-run")),
            *("--grace", "0", "--port-file", str(ready)),
            *more,
        )
        self.router_port = int(self._ready(part, ready)["port"])
        return part

    def start(self, nodes: dict[str, dict[str, Any]] | None = None, workers: int = 1) -> None:
        """One of each, an agent per node, and an API key in ``self.key``."""
        self.start_redis()
        self.start_orchestrator()
        for node, config in (nodes if nodes is not None else {"n1": {}}).items():
            self.start_agent(node, config)
        self.start_router(workers)
        self.make_key()

    def make_key(self) -> None:
        def made() -> bool:
            status, found = self.admin("POST", "/api/keys", {"name": f"test-{time.time_ns()}"})
            if status in (200, 201):
                self.key = found["key"]
            return bool(self.key)

        eventually("an API key is made", made)
        eventually(
            "the router knows the key",
            lambda: call(self.router_port, "GET", "/v1/models", key=self.key)[0] == 200,
        )

    # ------------------------------------------------------------ looking

    def admin(
        self, method: str, path: str, body: object = None, name: str = "orchestrator"
    ) -> tuple[int, Any]:
        """A call to an orchestrator's admin API; (0, None) when nobody answers."""
        try:
            return call(self.admin_ports[name], method, path, body)
        except OSError:
            return 0, None

    def items(self, what: str, name: str = "orchestrator") -> list[dict[str, Any]]:
        status, found = self.admin("GET", f"/api/{what}", name=name)
        return found["items"] if status == 200 else []

    def ready(self, model: str, count: int = 1, limit: float = 40.0) -> list[dict[str, Any]]:
        """The ready replicas of a model, once there are ``count``."""

        def found() -> list[dict[str, Any]] | None:
            ready = [
                r
                for name in self.admin_ports
                for r in self.items("replicas", name)
                if r["model"] == model and r["state"] == "ready"
            ]
            unique = {r["id"]: r for r in ready}
            return list(unique.values()) if len(unique) >= count else None

        return eventually(f"{count} ready replicas of {model}", found, limit)

    def chat(self, model: str, text: str = "hi", **more: Any) -> tuple[int, Any]:
        """One chat completion, not streamed: (status, body)."""
        body = {"model": model, "messages": [{"role": "user", "content": text}], **more}
        try:
            return call(self.router_port, "POST", "/v1/chat/completions", body, self.key)
        except OSError:
            return 0, None

    def served(self, model: str, limit: float = 30.0) -> None:
        """Wait until the router answers for the model."""
        eventually(
            f"the router serves {model}",
            lambda: self.chat(model, max_tokens=1)[0] == 200,
            limit,
        )

    def engines(self) -> dict[int, list[str]]:
        """Engine processes of this cluster: pid -> argv, found by their agents' state folders."""
        found = {}
        for process in psutil.process_iter():
            try:
                argv = process.cmdline()
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
            except psutil.Error:
                continue
            words = " ".join(argv)
            if str(self.folder) in words and (
                "agent.sim_engine" in words or "agent.llama_server" in words
            ):
                found[process.pid] = argv
        return found

    # ------------------------------------------------------------ ending

    def end(self) -> None:
        """End every part, then every engine that a test left running."""
        for name in reversed(list(self.parts)):
            self.parts[name].end()
        for pid in self.engines():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        eventually("engines are gone", lambda: not self.engines(), 10)
        self.redis.kill()
