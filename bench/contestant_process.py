"""A contestant, or the engine, as a running process tree pinned to one core."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from bench.answer_check import ask
from bench.contestants import PROJECT, Contestant, Launch
from bench.errors import ContestantFailed
from bench.process_cpu import ProcessTimes, read_tree, surviving_members

_READY_LIMIT_S = 60.0
#: After SIGTERM; a router drains for up to 10 s.
_STOP_LIMIT_S = 20.0


@dataclass(frozen=True, slots=True)
class RunningContestant:
    """`root` is the pid of the tree's root; None: there is no process, `url` is the engine itself."""

    name: str
    url: str
    root: int | None

    def read_cpu(self) -> tuple[ProcessTimes, ...]:
        """CPU of the whole tree so far; nothing for no process."""
        return () if self.root is None else read_tree(self.root)


@contextlib.contextmanager
def running_contestant(
    contestant: Contestant, engine_urls: tuple[str, ...], folder: Path, core: int
) -> Iterator[RunningContestant]:
    """Starts it in `folder` on `core`, waits until it answers a chat request, stops it at the end.

    Raises ContestantFailed with the end of its output when it ends or does not answer within a minute.
    """
    if contestant.command is None:
        yield RunningContestant(contestant.name, engine_urls[0], None)
        return
    folder.mkdir()
    launch = Launch(free_port(), free_port(), engine_urls, folder)
    log = folder / "output.log"
    with log.open("wb") as output:
        process = _start(contestant.command(launch), core, output=output.fileno())
    try:
        url = f"http://127.0.0.1:{launch.port}"
        _wait_until_ready(contestant.name, url, process, log)
        yield RunningContestant(contestant.name, url, process.pid)
    finally:
        stop_tree(process)


@contextlib.contextmanager
def running_engine(chunks: int, gap_s: float, core: int) -> Iterator[str]:
    """The instant engine on `core`; gives its url."""
    command = [
        *(sys.executable, "-m", "bench.instant_engine", "--port", "0"),
        *("--chunks", str(chunks), "--gap-ms", str(gap_s * 1000)),
    ]
    process = _start(command, core, output=subprocess.PIPE)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        if not url.startswith("http://"):
            raise ContestantFailed(f"the instant engine did not start; it said {url!r}")
        yield url
    finally:
        stop_tree(process)
        if process.stdout is not None:
            process.stdout.close()


def stop_tree(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the root, then SIGKILL for whatever of its tree is left. The root leads its session."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_LIMIT_S)
    for pid in surviving_members(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def stop_all_on_sigterm() -> None:
    """Makes SIGTERM at the bench leave the way Ctrl-C does: everything started is stopped."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _start(command: list[str], core: int, *, output: int) -> subprocess.Popen[bytes]:
    # A session of its own: the tree is found by it, and a Ctrl-C at the bench leaves the stopping to us.
    return subprocess.Popen(
        ["taskset", "-c", str(core), *command],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if output == subprocess.PIPE else subprocess.STDOUT,
        start_new_session=True,
    )


def _wait_until_ready(name: str, url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    give_up_at = time.monotonic() + _READY_LIMIT_S
    while True:
        try:
            ask(url)
            return
        except ContestantFailed as error:
            if process.poll() is not None:
                raise ContestantFailed(f"{name} ended at start: {_end_of(log)}") from error
            if time.monotonic() > give_up_at:
                raise ContestantFailed(
                    f"{name} does not answer after {_READY_LIMIT_S:.0f} s ({error}): {_end_of(log)}"
                ) from error
        time.sleep(0.1)


def _end_of(log: Path) -> str:
    text = log.read_text(errors="replace").strip()
    return text[-2000:] or "it printed nothing"
