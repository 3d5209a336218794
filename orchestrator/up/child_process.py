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
#: The end of a log in which its last lines are looked for.
_LOOKED_AT = 65_536
_libc = ctypes.CDLL(None, use_errno=True)


def _end_with_parent() -> None:
    """In the child before exec: SIGTERM when the parent dies, however it dies."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def last_lines(log: Path, since: int = 0, count: int = 3) -> str:
    """The last lines that a child wrote after the first ``since`` bytes of its log, on one line."""
    try:
        with log.open("rb") as file:
            file.seek(max(since, file.seek(0, os.SEEK_END) - _LOOKED_AT))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return " | ".join(line.strip() for line in lines[-count:] if line.strip())


class Child:
    """One process of ours. Its own session, so that a Ctrl-C at the terminal reaches only ``up``."""

    def __init__(self, name: str, argv: Sequence[str], log: Path, env: dict[str, str]) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            #: The log is one of many runs; what they wrote says nothing of this one.
            self._log_before = output.tell()
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # The folder that we were started in may hold packages of the same names.
                env={**os.environ, "PYTHONSAFEPATH": "1", **env},
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
                self.last_words(),
                f"read {self.log}",
            )

    def last_words(self) -> str:
        """The last lines that this run of it has written."""
        return last_lines(self.log, self._log_before) or "it wrote nothing"

    def end(self, grace: float) -> int:
        """SIGTERM, then SIGKILL after ``grace`` seconds. The exit code; negative: minus the signal."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self.wait(grace)

    def wait(self, limit: float) -> int:
        """Until it ends, SIGKILL after ``limit`` seconds. The exit code."""
        try:
            return self._process.wait(limit)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def wait_until(child: Child, ready: Path, limit: float) -> None:
    """Wait until the child has written its port file; CannotStart when it ends or takes too long."""
    end = time.monotonic() + limit
    while not ready.exists():
        child.check()
        if time.monotonic() > end:
            raise CannotStart(
                f"the {child.name} was not ready within {limit:.0f} s",
                child.last_words(),
                f"read {child.log}",
            )
        time.sleep(0.02)
