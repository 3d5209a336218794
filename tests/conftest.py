"""For the whole run: no process may be left behind."""

from __future__ import annotations

import os
import signal
import time
import uuid
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples each time, so that a change is judged by itself; LLMGW_RANDOM=1 draws new ones.
settings.register_profile("same", derandomize=True)
if not os.environ.get("LLMGW_RANDOM"):
    settings.load_profile("same")

#: In the environment of every process that a test starts: by it they are found at the end.
MARK = "LLMGW_TEST_RUN"
#: A process that was told to end may need a moment.
LEFT_AFTER_S = 5.0


def pytest_configure(config: pytest.Config) -> None:
    os.environ[MARK] = uuid.uuid4().hex


def left_behind() -> dict[int, str]:
    """Processes of this run besides ourselves: pid -> command line."""
    mark = f"{MARK}={os.environ[MARK]}".encode()
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if state == "Z":
                continue
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        # Python's own watcher of shared memory ends with its parent.
        if "resource_tracker" not in words:
            found[int(entry.name)] = words.strip()
    return found


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    end = time.monotonic() + LEFT_AFTER_S
    while (left := left_behind()) and time.monotonic() < end:
        time.sleep(0.1)
    if not left:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    for pid, words in left.items():
        if reporter is not None:
            reporter.write_line(f"LEFT BEHIND: pid {pid}: {words}", red=True)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    session.exitstatus = pytest.ExitCode.TESTS_FAILED
