"""An engine's log file: bounded while it is written, its end for reports, its beginning kept.

The engine holds the file open for appending and outlives us, so rotation copies and truncates.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from pathlib import Path

_log = logging.getLogger("agent")

MAX_SIZE = 32 * 1024 * 1024
_COPY = 4 * 1024 * 1024
_LINE_SHOWN = 300
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
#: Time since its start, the level, the words.
_FIRST_ERROR = re.compile(r"^[0-9.]+ E (.+)$", re.MULTILINE)
#: Said by engines and their HTTP libraries when the port is another's.
_IN_USE = re.compile(
    r"address already in use|address in use|EADDRINUSE|couldn't bind|errno 98", re.IGNORECASE
)


def size_of(file: Path) -> int | None:
    """Bytes; None when there is no log."""
    try:
        return file.stat().st_size
    except OSError:
        return None


def tail(file: Path, limit: int) -> str:
    """The last ``limit`` bytes as text; empty when there is no log."""
    try:
        with file.open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - limit))
            return log.read(limit).decode(errors="replace")
    except OSError:
        return ""


def last_line(file: Path) -> str:
    """The last line that says something, shortened."""
    for line in reversed(_ANSI.sub("", tail(file, 8192)).splitlines()):
        if line.strip():
            return line.strip()[:_LINE_SHOWN]
    return ""


def first_error(file: Path) -> str:
    """The first error in llama.cpp's own form: the cause, of which its last line says nothing."""
    found = _FIRST_ERROR.search(_ANSI.sub("", tail(file, 16_384)))
    return found[1].strip()[:_LINE_SHOWN] if found else ""


def says_address_in_use(file: Path) -> bool:
    """Whether the end of the log complains about a port."""
    return _IN_USE.search(tail(file, 16_384)) is not None


def keep_first_failure(folder: Path) -> None:
    """Copies the end of the log aside, once."""
    kept = folder / "first-failure.log"
    if not kept.exists():
        kept.write_text(tail(folder / "log", 65_536))
        kept.chmod(0o600)


def rotate(folder: Path) -> bool:
    """Cuts a log that has grown too long; its last part goes to ``log.1``. True when it was cut."""
    log = folder / "log"
    size = size_of(log)
    if size is None or size <= MAX_SIZE:
        return False
    try:
        with log.open("rb") as source, (folder / "log.1").open("wb") as target:
            source.seek(size - _COPY)
            shutil.copyfileobj(source, target)
        (folder / "log.1").chmod(0o600)
    except OSError as error:  # the disk is full: all the more reason to cut
        _log.warning("the end of %s is not kept: %s", log, error)
    os.truncate(log, 0)
    return True
