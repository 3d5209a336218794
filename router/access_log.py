"""The access log: one JSON line per request, written in batches by a thread of its own.

It never holds body bytes, header values other than ids, or a key. Lines that cannot be written are
dropped and counted: a full or hanging disk must not hold a request.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from contextlib import suppress

import msgspec

FLUSH_S = 0.25
#: Lines that may wait for the disk; what comes on top is dropped.
LINES_HELD = 20_000


class AccessLine(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """One request that ended. None is unknown and left out; times in seconds.

    ``time`` is the wall clock at its end, ``route`` a constant of the route table, ``model`` what
    was asked for where that is a configured name, ``key`` the key's id.
    """

    time: float
    id: str
    client: str
    method: str
    route: str
    status: int
    outcome: str
    seconds: float
    model: str | None = None
    served_by: str | None = None
    endpoint: str | None = None
    key: str | None = None
    stream: bool = False
    queued: float | None = None
    first_token: float | None = None
    tokens_in: int | None = None
    cached: int | None = None
    tokens_out: int | None = None
    body: int | None = None
    sent: int | None = None
    tries: int | None = None
    #: A named reason, for what did not end well.
    reason: str | None = None


class AccessLog:
    """``path``: a file (appended to; looked at again so that it may be rotated), ``-`` or None."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.dropped = 0
        self._lines: deque[AccessLine] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._complained = False
        self._fd = -1
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Start the writing thread; OSError when the file cannot be opened."""
        if self.path is None:
            return
        self._reopen(self.path)
        self._thread = threading.Thread(target=self._write_on, name="access-log", daemon=True)
        self._thread.start()

    def add(self, line: AccessLine) -> None:
        """Note a line; nothing is written here."""
        if self._thread is None:
            return
        if len(self._lines) >= LINES_HELD:
            self.dropped += 1
            return
        self._lines.append(line)

    def close(self) -> None:
        """Write what is there and end, within a second."""
        if self._thread is None:
            return
        self._closing = True
        self._wake.set()
        self._thread.join(1.0)
        self._thread = None

    def _write_on(self) -> None:
        encoder = msgspec.json.Encoder()
        while not self._closing:
            self._wake.wait(FLUSH_S)
            self._flush(encoder)
        self._flush(encoder)
        if self._fd > 2:
            os.close(self._fd)

    def _flush(self, encoder: msgspec.json.Encoder) -> None:
        waiting = self._lines
        lines = [waiting.popleft() for _ in range(len(waiting))]
        if not lines:
            return
        try:
            if self.path is not None:
                self._reopen(self.path)
            _write_all(self._fd, encoder.encode_lines(lines))
            self._complained = False
        except OSError as error:
            self.dropped += len(lines)
            if not self._complained:
                self._complained = True
                with suppress(OSError):
                    sys.stderr.write(f"router: the access log cannot be written: {error}\n")

    def _reopen(self, path: str) -> None:
        if path == "-":
            self._fd = 1
            return
        if self._fd >= 0:
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(path), os.fstat(self._fd)):
                    return
            os.close(self._fd)
            self._fd = -1
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
