"""Which engines are here, their version, and the flags that their --help knows.

Asked once per program file (its path, size and time of change), since --help of a large engine takes
seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from agent.engines.launch_plan import EngineCommand
from agent.marks import write_durably
from agent.version import version
from orchestrator.wire.reports import Engine

log = logging.getLogger("agent")

_ASK_LIMIT = 60.0  # seconds; a cold import of a large Python engine
_FLAG = re.compile(r"(?<![\w-])(--?[A-Za-z][A-Za-z0-9-]*)")
_VERSION = re.compile(r"version:?\s*(.+)", re.IGNORECASE)


class _Known(msgspec.Struct, frozen=True):
    """The answer of one program, and the program it was."""

    argv: tuple[str, ...]
    stamp: str
    version: str | None
    flags: list[str]


def package_root() -> str:
    """The folder that holds our own packages."""
    return str(Path(__file__).resolve().parents[2])


def llama_command(configured: Sequence[str]) -> tuple[str, ...] | None:
    """The command that stands for llama-server: configured, on PATH, the wheel; None: none."""
    if configured:
        found = shutil.which(configured[0])
        return None if found is None else (found, *configured[1:])
    on_path = shutil.which("llama-server")
    if on_path is not None:
        return (on_path,)
    if importlib.util.find_spec("xllamacpp") is not None:
        return (sys.executable, "-m", "agent.llama_server")
    return None


async def find_engines(configured: Sequence[str], cache: Path) -> dict[str, EngineCommand]:
    """Engine kind -> command, for those that are here. ``cache``: the file of what was asked before."""
    found = {"sim": EngineCommand((sys.executable, "-m", "agent.sim_engine"), version())}
    llama = llama_command(configured)
    if llama is not None:
        found["llama.cpp"] = await _ask(llama, cache)
    return found


def as_reported(commands: Mapping[str, EngineCommand]) -> list[Engine]:
    """The engines as a report names them."""
    return [
        Engine(kind, command=" ".join(c.argv))
        if c.version is None
        else Engine(kind, c.version, " ".join(c.argv))
        for kind, c in sorted(commands.items())
    ]


def flags_in(help_text: str) -> frozenset[str]:
    """Every word of a help text that is a flag."""
    return frozenset(_FLAG.findall(help_text))


def version_in(text: str) -> str | None:
    """The version in the answer to --version; None when it has none."""
    match = _VERSION.search(text)
    return match[1].strip()[:100] if match else None


async def _ask(argv: tuple[str, ...], cache: Path) -> EngineCommand:
    stamp = _stamp(argv)
    known = _read(cache)
    if known is not None and (known.argv, known.stamp) == (argv, stamp):
        return EngineCommand(argv, known.version, frozenset(known.flags))
    version_text, help_text = await asyncio.gather(
        _output(*argv, "--version"), _output(*argv, "--help")
    )
    flags = flags_in(help_text or "") or None
    answer = EngineCommand(argv, version_in(version_text or ""), flags)
    if flags is not None:
        record = _Known(argv, stamp, answer.version, sorted(flags))
        try:
            write_durably(cache, msgspec.json.encode(record))
        except OSError as error:  # it is asked again next time
            log.warning("what %s answered is not kept: %s", argv[0], error)
    return answer


def _read(cache: Path) -> _Known | None:
    try:
        return msgspec.json.decode(cache.read_bytes(), type=_Known)
    except (OSError, msgspec.MsgspecError):
        return None


def _stamp(argv: Sequence[str]) -> str:
    """Changes when the program does; a module of ours changes with our version and the wheel's file."""
    files = [argv[0]]
    if "-m" in argv:
        wheel = importlib.util.find_spec("xllamacpp")
        files += [wheel.origin] if wheel is not None and wheel.origin else []
        files.append(str(Path(__file__).parents[1] / "llama_flags.py"))
    parts = [version()]
    for file in files:
        with contextlib.suppress(OSError):
            facts = os.stat(file)
            parts.append(f"{facts.st_size}:{facts.st_mtime_ns}")
    return "/".join(parts)


async def _output(*argv: str) -> str | None:
    """What the command prints (both streams); None when it cannot be run or does not end."""
    env = {**os.environ, "PYTHONPATH": package_root(), "PYTHONSAFEPATH": "1"}
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=env,
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(_ASK_LIMIT):
            out, _ = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return out.decode(errors="replace")
