"""Children of ``llmgw up``: started with a log file, ended in order, never left behind."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from orchestrator.up.errors import CannotStart

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _end_with_parent() -> None:
    """In the child before exec: SIGTERM when the parent dies, however it dies."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def last_lines(log: Path, count: int = 3) -> str:
    """The last lines that a child wrote, on one line."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return " | ".join(line.strip() for line in lines[-count:] if line.strip())


class Child:
    """One process of ours. Its own session, so that a Ctrl-C at the terminal reaches only ``up``."""

    def __init__(self, name: str, argv: Sequence[str], log: Path, env: dict[str, str]) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **env},
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def check(self) -> None:
        """CannotStart when it has ended."""
        code = self._process.poll()
        if code is not None:
            raise CannotStart(
                f"the {self.name} ended with code {code}",
                last_lines(self.log) or "it wrote nothing",
                f"read {self.log}",
            )

    def end(self, grace: float) -> None:
        """SIGTERM, then SIGKILL after ``grace`` seconds."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def wait_until(child: Child, ready: Path, limit: float) -> None:
    """Wait until the child has written its port file; CannotStart when it ends or takes too long."""
    end = time.monotonic() + limit
    while not ready.exists():
        child.check()
        if time.monotonic() > end:
            raise CannotStart(
                f"the {child.name} was not ready within {limit:.0f} s",
                last_lines(child.log) or "it wrote nothing",
                f"read {child.log}",
            )
        time.sleep(0.02)
