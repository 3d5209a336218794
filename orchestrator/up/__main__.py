"""``llmgw up``: start everything on this machine, show that it answers, end it all with Ctrl-C."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click
from rich.console import Console

from orchestrator.up import demo_models, install_steps
from orchestrator.up.embedded_redis import find_server
from orchestrator.up.errors import AlreadyRunning, MissingPart, NoAnswer, UpError
from orchestrator.up.free_port import choose
from orchestrator.up.local_api import ask, call, timed_ask
from orchestrator.up.parts import Parts, Ports
from orchestrator.up.progress import Steps
from orchestrator.up.state_folder import Running, StateFolder, default_folder

USUAL_ROUTER_PORT = 8080
USUAL_ADMIN_PORT = 8090
#: The question that is asked once at the start, so that the printed curl line is known to work.
FIRST_QUESTION = "What is the capital of Sweden?"
#: Seconds a model may take from declared to ready before `up` stops waiting and says why.
READY_LIMIT = 300.0
#: One failed start may be bad luck and is tried again at once; so many are the answer.
FAILURES_SHOWN = 3
STOP_WAIT = 60.0


class Interrupted(Exception):
    """SIGINT or SIGTERM arrived: end what was started."""


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        # One is enough: a second signal must not cut the ending short.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Interrupted

    before = [signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)


@click.command(name="up")
@click.option(
    "--state", type=click.Path(path_type=Path), help="Folder for everything that is kept."
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Own cluster.yaml instead of the demo models.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="Port of the router (usual: 8080, or the next free).",
)
@click.option(
    "--admin-port", type=click.IntRange(1, 65535), help="Port of the admin listener (usual: 8090)."
)
@click.option(
    "--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Router processes."
)
@click.option("--once", metavar="QUESTION", help="Print the model's answer to QUESTION, and end.")
@click.option("--install", is_flag=True, help="Install the missing parts of the demo first.")
@click.option("--status", "show", is_flag=True, help="Say whether one is running, and where.")
@click.option("--stop", is_flag=True, help="End the one that is running.")
def command(
    state: Path | None,
    config: Path | None,
    port: int | None,
    admin_port: int | None,
    workers: int,
    once: str | None,
    install: bool,
    show: bool,
    stop: bool,
) -> None:
    """Start everything on this machine: a Redis, one orchestrator, one agent, one router, and a demo
    model (SmolLM2-135M on llama.cpp). Prints the chat address when it has answered once.

    Everything listens on loopback only. Ctrl-C ends all of it; a next start is quick and keeps the key.
    """
    console = Console(stderr=True)
    if once is not None and config is not None:
        raise click.UsageError(
            "--once asks the demo's model; for models of your own start without --once,"
            " then ask as the printed curl line does"
        )
    try:
        folder = StateFolder(state or default_folder(dict(os.environ)))
        if show:
            _show(folder)
        elif stop:
            _stop(folder)
        else:
            up = Up(folder, Steps(console, quiet=once is not None and not console.is_terminal))
            with _signals_interrupt():
                try:
                    up.run(config, port, admin_port, workers, once, install)
                except AlreadyRunning:
                    running = folder.running()
                    if once is None or running is None:
                        raise
                    _print_answer(_port_of(running.router), folder.secret("api_key") or "", once)
    except UpError as error:
        _fail(console, error)
    except Interrupted:
        sys.exit(130 if once is not None else 0)


def _fail(console: Console, error: UpError) -> NoReturn:
    for line in error.lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    sys.exit(1)


def _port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def _show(folder: StateFolder) -> None:
    pid = folder.holder()
    if pid is None:
        click.echo("not running")
        sys.exit(1)
    running = folder.running()
    if running is None:
        click.echo(f"starting  pid {pid}")
        return
    click.echo(f"running  pid {running.pid}  router {running.router}  admin {running.admin}")


def _stop(folder: StateFolder) -> None:
    pid = folder.holder()
    if pid is None:
        click.echo("not running")
        return
    try:
        os.kill(pid, signal.SIGTERM)
    except PermissionError:
        raise UpError(f"pid {pid} belongs to another user", "", f"sudo kill {pid}") from None
    except ProcessLookupError:
        pass
    end = time.monotonic() + STOP_WAIT
    while folder.is_held():
        if time.monotonic() > end:
            raise UpError(
                f"pid {pid} did not end within {STOP_WAIT:.0f} s",
                "",
                f"kill -9 {pid}",
            )
        time.sleep(0.1)
    click.echo("stopped")


def _print_answer(port: int, key: str, question: str) -> None:
    for piece in ask(port, key, demo_models.REAL_MODEL, question):
        click.echo(piece, nl=False)
    click.echo()


class Up:
    """One run of ``llmgw up``."""

    def __init__(self, folder: StateFolder, steps: Steps) -> None:
        self._folder = folder
        self._steps = steps
        self._parts = Parts(folder, {})

    def run(
        self,
        config: Path | None,
        port: int | None,
        admin_port: int | None,
        workers: int,
        once: str | None,
        install: bool,
    ) -> None:
        """Start, answer, and stay until a signal; everything that was started is ended on every way out."""
        self._folder.hold()
        try:
            if install:
                for missing in install_steps.missing_steps():
                    with self._steps.step("install") as step:
                        step.doing(missing.label)
                        install_steps.run_step(missing)
                        step.say(missing.label)
            ports = self._choose_ports(port, admin_port)
            self._start(config or self._demo_file(), ports, workers)
            key = self._key(ports)
            if once is not None:
                self._wait_ready(ports, demo_models.REAL_MODEL)
                _print_answer(ports.router, key, once)
                return
            self._folder.say_running(
                Running(
                    os.getpid(),
                    f"http://127.0.0.1:{ports.router}",
                    f"http://127.0.0.1:{ports.admin}",
                )
            )
            if config is None:
                self._wait_ready(ports, demo_models.REAL_MODEL)
                self._greet(ports, key)
            else:
                self._addresses(ports, key)
            while True:
                time.sleep(0.5)
                self._parts.check()
        finally:
            # The signals that end us must not end the ending.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self._end()

    def _end(self) -> None:
        with self._steps.step("stop") as step:
            self._parts.end()
            step.say("everything that was started has ended; what was learnt is kept")
        self._folder.release()

    def _choose_ports(self, port: int | None, admin_port: int | None) -> Ports:
        router, told = choose(port, USUAL_ROUTER_PORT, "--port")
        admin, told_too = choose(admin_port, USUAL_ADMIN_PORT, "--admin-port")
        for line in (told, told_too):
            if line is not None:
                self._steps.warn(line)
        return Ports(router, admin)

    def _demo_file(self) -> Path:
        if missing := [step.label for step in install_steps.missing_steps()]:
            raise MissingPart(
                f"not installed: {', '.join(missing)}",
                "the demo needs all its parts",
                "llmgw up --install",
            )
        weights = demo_models.find_weights()
        if weights is None:
            raise MissingPart(
                "the demo's weights are not installed",
                f"{demo_models.WEIGHTS_PACKAGE} holds them",
                "llmgw up --install",
            )
        with self._steps.step("weights") as step:
            step.say(f"{weights.name}, {weights.stat().st_size / 1e6:.0f} MB")
        cores = max(1, len(os.sched_getaffinity(0)))
        return self._folder.write_secret("demo.yaml", demo_models.cluster_file(weights, cores))

    def _start(self, cluster_file: Path, ports: Ports, workers: int) -> None:
        with self._steps.step("store") as step:
            server = find_server()
            self._parts.start_store(server)
            step.say(f"{Path(server.path).name} {server.version}, append-only file on")
        node = re.sub(r"[^a-z0-9-]", "-", platform.node().lower())[:40].strip("-") or "node"
        with self._steps.step("orchestrator") as step:
            # All three at once: none needs another to start, and waiting is what a start costs.
            orchestrator_ready = self._parts.start_orchestrator(cluster_file, ports.admin)
            self._parts.start_agent(node)
            router_ready = self._parts.start_router(ports.router, workers)
            self._parts.wait("orchestrator", orchestrator_ready)
            step.say(f"http://127.0.0.1:{ports.admin}")
        with self._steps.step("agent") as step:
            step.say(self._wait_node(ports, node))
        with self._steps.step("router") as step:
            self._parts.wait("router", router_ready)
            step.say(f"http://127.0.0.1:{ports.router}")

    def _wait_node(self, ports: Ports, node: str) -> str:
        """Until the orchestrator has heard of the agent; what the node has, in words."""
        end = time.monotonic() + READY_LIMIT
        while time.monotonic() < end:
            self._parts.check()
            for found in self._items(ports, "/api/nodes"):
                if found.get("name") == node and found.get("state") == "ready":
                    cards = found.get("cards")
                    words = (
                        f"{len(cards)} cards"
                        if isinstance(cards, list) and cards
                        else "no card: CPU"
                    )
                    return f"{node}, {found.get('cpus', '-')} CPUs, {words}"
            time.sleep(0.05)
        raise UpError("the agent did not report", "", f"read {self._parts.child('agent').log}")

    def _items(self, ports: Ports, path: str) -> list[dict[str, object]]:
        try:
            status, found = call(ports.admin, "GET", path)
        except OSError:
            return []
        return list(found["items"]) if status == 200 else []

    def _key(self, ports: Ports) -> str:
        """The key of this machine: kept, and made anew when the store does not know it any more."""
        kept = self._folder.secret("api_key")
        end = time.monotonic() + READY_LIMIT
        while time.monotonic() < end:
            self._parts.check()
            status = 0
            try:
                if kept is not None:
                    status, _ = call(ports.router, "GET", "/v1/models", key=kept)
                    if status == 200:
                        return kept
                if kept is None or status == 401:
                    name = f"up-{int(time.time())}"
                    status, made = call(ports.admin, "POST", "/api/keys", {"name": name})
                    if status in (200, 201):
                        kept = str(made["key"])
                        self._folder.write_secret("api_key", kept)
            except OSError:
                pass
            time.sleep(0.05)
        raise UpError("no API key could be made", "", f"read {self._parts.child('router').log}")

    def _wait_ready(self, ports: Ports, model: str) -> None:
        end = time.monotonic() + READY_LIMIT
        words = ""
        # The store remembers failures of earlier runs; whatever caused them may be mended.
        known: int | None = None
        with self._steps.step("model") as step:
            step.say(model)
            while time.monotonic() < end:
                self._parts.check()
                for found in self._items(ports, "/api/models"):
                    if found.get("name") == model:
                        if found.get("state") == "ready":
                            return
                        words = f"{model} is {found.get('state')}"
                        if found.get("note"):
                            words += f" ({found['note']})"
                        step.doing(words)
                        told = found.get("failures")
                        failures = told if isinstance(told, int) else 0
                        known = failures if known is None else min(known, failures)
                        if failures > known and failures >= FAILURES_SHOWN:
                            raise UpError(
                                f"{model} does not start: {failures} tries failed",
                                str(found.get("last_failure") or words),
                                f"read {self._folder.agent}/engines/*/log",
                            )
                time.sleep(0.05)
        raise UpError(
            f"{model} was not ready within {READY_LIMIT:.0f} s", words, f"llmgw ctl explain {model}"
        )

    def _greet(self, ports: Ports, key: str) -> None:
        with self._steps.step("first answer") as step:
            answer, first, whole = self._first_answer(ports, key)
            step.say(
                f"“{FIRST_QUESTION}” → “{answer.strip()}” (first token {first:.2f} s, all {whole:.2f} s)"
            )
        self._addresses(ports, key)

    def _first_answer(self, ports: Ports, key: str) -> tuple[str, float, float]:
        """The router may know the model a moment after the orchestrator does."""
        end = time.monotonic() + 15
        while True:
            try:
                return timed_ask(ports.router, key, demo_models.REAL_MODEL, FIRST_QUESTION)
            except NoAnswer:
                if time.monotonic() > end:
                    raise
                self._parts.check()
                time.sleep(0.1)

    def _addresses(self, ports: Ports, key: str) -> None:
        base = f"http://127.0.0.1:{ports.router}"
        body = json.dumps(
            {
                "model": demo_models.REAL_MODEL,
                "messages": [{"role": "user", "content": FIRST_QUESTION}],
            },
            separators=(",", ":"),
        )
        ctl = "llmgw ctl" if shutil.which("llmgw") else f"{Path(sys.executable).parent}/llmgw ctl"
        if ports.admin != USUAL_ADMIN_PORT:
            ctl += f" --url http://127.0.0.1:{ports.admin}"
        click.echo(
            f"""
chat      {base}/#key={key}
API       {base}/v1   (OpenAI clients: this base URL)
key       {key}
operate   {ctl} status
try       curl -s {base}/v1/chat/completions -H 'Authorization: Bearer {key}' \\
            -H 'Content-Type: application/json' -d {shlex.quote(body)}

Listening on this machine only. Ctrl-C ends everything; the key and the store are kept in
{self._folder.path}"""
        )
        sys.stdout.flush()


def main(argv: list[str] | None = None) -> None:
    """Entry of ``llmgw up``."""
    command.main(args=argv, prog_name="llmgw up")


if __name__ == "__main__":
    main()
