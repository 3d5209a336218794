"""Real children: started detached with a record first, watched, and ended to the last one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from agent import process_facts
from agent.engine_cgroup import engine_cgroup, sweep_cgroups
from agent.engine_process import EngineProcess, launch
from agent.errors import LaunchFailed
from agent.process_facts import (
    MARK_VARIABLE,
    Identity,
    boot_id,
    is_alive,
    is_ours,
    members,
    private_memory,
    send_signal,
    stat_of,
)

IGNORES_SIGTERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""
#: A child in the same session that outlives its parent; and one that leaves the session as well.
LEAVES_CHILD = """
import os, signal, sys, time
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "new-session" in sys.argv:
        os.setsid()
    print("child", flush=True)
    time.sleep(600)
time.sleep(600)
"""


@pytest.fixture
def started(tmp_path: Path):
    """Starts ``python -c code args``; whatever is left of it is killed afterwards."""
    processes: list[EngineProcess] = []

    def start(code: str, *args: str, env: dict[str, str] | None = None, record=None, cgroup=None):
        process = launch(
            [sys.executable, "-c", code, *args],
            dict(os.environ) if env is None else env,
            tmp_path,
            f"test:{tmp_path.name}",
            cgroup,
            record or (lambda _: None),
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        for pid, at in process.members().items():
            send_signal(pid, at, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.identity.pid, 0)


async def until(happened: Callable[[], bool]) -> None:
    """Looks until it happened; the test's time limit ends it otherwise."""
    while not happened():  # noqa: ASYNC110 - another process makes it happen
        await asyncio.sleep(0.01)


async def logged(tmp_path: Path, word: str) -> None:
    """Until the engine's log holds the word."""
    await until(lambda: word in (tmp_path / "log").read_text())


async def test_it_runs_in_its_own_session_and_logs_to_its_folder(started, tmp_path: Path):
    process = started(
        "import os; print('in', os.getcwd(), flush=True); import time; time.sleep(600)"
    )
    await logged(tmp_path, f"in {tmp_path}")
    stat = stat_of(process.identity.pid)
    assert stat is not None
    assert stat.session == process.identity.pid == stat.group
    assert is_ours(process.identity) is None
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    assert (private_memory([process.identity.pid]) or 0) > 100_000
    ending = await process.end(5.0, 5.0)
    assert ending.left == []
    assert not ending.killed
    assert process.exit_code == -signal.SIGTERM


async def test_the_record_is_kept_before_the_program_runs(started, tmp_path: Path):
    seen: list[bool] = []

    def record(identity: Identity) -> None:
        seen.append((tmp_path / "ran").exists())
        assert is_alive(identity)

    process = started("open('ran', 'w'); import time; time.sleep(600)", record=record)
    await until((tmp_path / "ran").exists)
    assert seen == [False]
    await process.end(5.0, 5.0)


async def test_without_a_record_nothing_is_started(started, tmp_path: Path):
    kept: list[Identity] = []

    def record(identity: Identity) -> None:
        kept.append(identity)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        started("open('ran', 'w')", record=record)
    assert not is_alive(kept[0])
    assert not (tmp_path / "ran").exists()


async def test_an_exit_is_noticed_with_its_code(started):
    process = started("raise SystemExit(3)")
    await asyncio.wait_for(process.exited(), 20)
    assert process.exit_code == 3
    assert process.has_exited


async def test_a_program_that_is_not_there_exits_and_says_so(tmp_path: Path):
    process = launch(["/no/such/engine"], {}, tmp_path, "test:none", None, lambda _: None)
    await asyncio.wait_for(process.exited(), 20)
    assert process.exit_code == 127
    assert "/no/such/engine" in (tmp_path / "log").read_text()


async def test_a_folder_that_is_not_there_cannot_start(tmp_path: Path):
    with pytest.raises(LaunchFailed):
        launch(["true"], {}, tmp_path / "gone", "test:none", None, lambda _: None)


async def test_ignoring_sigterm_ends_in_sigkill_after_the_grace(started, tmp_path: Path):
    process = started(IGNORES_SIGTERM)
    await logged(tmp_path, "deaf")
    ending = await process.end(0.3, 10.0)
    assert ending.left == []
    assert ending.killed
    assert process.exit_code == -signal.SIGKILL


@pytest.mark.parametrize("args", [(), ("new-session",)])
async def test_a_grandchild_does_not_escape(started, tmp_path: Path, args: tuple[str, ...]):
    """In the session or out of it: found by session, by the mark in its environment, by cgroup."""
    process = started(LEAVES_CHILD, *args)
    await logged(tmp_path, "child")
    assert len(process.members()) == 2
    os.kill(process.identity.pid, signal.SIGKILL)
    await asyncio.wait_for(process.exited(), 20)
    [child] = process.members()
    ending = await process.end(5.0, 10.0)
    assert ending.left == []
    assert ending.killed
    stat = stat_of(child)
    assert stat is None or stat.dead


async def test_what_cannot_be_ended_is_named(started, tmp_path: Path, monkeypatch):
    process = started(IGNORES_SIGTERM)
    await logged(tmp_path, "deaf")
    monkeypatch.setattr("agent.engine_process.send_signal", lambda *_: False)
    ending = await process.end(0.1, 0.3)
    assert ending.left == [process.identity.pid]


async def test_an_adopted_process_is_watched_and_ended(started, tmp_path: Path):
    first = started(IGNORES_SIGTERM)
    await logged(tmp_path, "deaf")
    first.unwatch()
    adopted = EngineProcess(first.identity, None)
    assert not adopted.has_exited
    assert (await adopted.end(0.1, 10.0)).left == []
    await asyncio.wait_for(adopted.exited(), 20)


async def test_a_pid_of_another_start_time_is_not_ours(started):
    process = started("import time; time.sleep(600)")
    other = msgspec.structs.replace(process.identity, start=process.identity.start - 1, mark="x:1")
    assert is_ours(other) == "gone"
    assert members(other) == {}
    assert not send_signal(other.pid, other.start, signal.SIGKILL)
    assert EngineProcess(other, None).has_exited
    assert is_alive(process.identity)


async def test_another_boot_has_no_members(started):
    process = started("import time; time.sleep(600)")
    other = msgspec.structs.replace(process.identity, boot="another")
    assert is_ours(other) == "gone"
    assert members(other) == {}


async def test_another_command_line_without_our_mark_is_not_ours(started):
    process = started("import time; time.sleep(600)")
    titled = msgspec.structs.replace(process.identity, command="other")
    assert is_ours(titled) is None  # its mark speaks for it
    stranger = msgspec.structs.replace(titled, mark="other:1")
    assert is_ours(stranger) == "command line differs"


async def test_a_process_in_the_moment_of_its_exec_is_still_ours(
    started, monkeypatch: pytest.MonkeyPatch
):
    """Then it shows neither command line nor environment; called a stranger it would be an orphan."""
    process = started("import time; time.sleep(600)")
    titled = msgspec.structs.replace(process.identity, command="other")
    real, looks = process_facts._environ, []

    def environ(pid: int) -> bytes:
        looks.append(pid)
        return real(pid) if len(looks) > 4 else b""

    monkeypatch.setattr(process_facts, "_environ", environ)
    assert is_ours(titled) is None


async def test_default_signals_and_the_mark_reach_the_engine(started, tmp_path: Path):
    started(
        "import signal, os; print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,"
        f" os.environ['{MARK_VARIABLE}'], len(os.listdir('/proc/self/fd')), flush=True);"
        "import time; time.sleep(600)"
    )
    await logged(tmp_path, "\n")
    # 0, 1, 2, and the one by which the folder is read.
    assert (tmp_path / "log").read_text() == f"True test:{tmp_path.name} 4\n"


async def test_a_cgroup_of_its_own_where_the_system_lets_us(started, tmp_path: Path):
    cgroup = engine_cgroup("test", os.getpid())
    if cgroup is None:
        pytest.skip("cgroup v2 is not writable here")
    process = started(IGNORES_SIGTERM, cgroup=cgroup)
    await logged(tmp_path, "deaf")
    assert process.cgroup is None or str(process.identity.pid) in (
        (cgroup / "cgroup.procs").read_text().split()
    )
    sweep_cgroups("test", ())
    assert cgroup.exists()  # somebody is in it
    assert (await process.end(0.1, 10.0)).left == []
    assert not cgroup.exists()


async def test_empty_cgroups_of_this_node_are_swept(tmp_path: Path):
    cgroup = engine_cgroup("sweep", os.getpid())
    if cgroup is None:
        pytest.skip("cgroup v2 is not writable here")
    cgroup.mkdir()
    sweep_cgroups("sweep", {os.getpid()})
    sweep_cgroups("another", ())
    assert cgroup.exists()
    sweep_cgroups("sweep", ())
    assert not cgroup.exists()


def test_this_boot_has_an_id():
    assert len(boot_id()) == 36
