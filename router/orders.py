"""What the parent tells its children: one line of JSON on their standard input.

The pipe stays open for the parent's life: its end is the parent's death. A password in it is neither in
argv nor in the environment.
"""

from __future__ import annotations

import os

import msgspec

from router.config import RouterConfig

ORDER_FD = 0


class WorkerOrder(msgspec.Struct, frozen=True):
    """Be worker ``index``."""

    index: int
    config: RouterConfig


class PageOrder(msgspec.Struct, frozen=True):
    """Serve the metrics page."""

    metrics_dir: str
    #: A listening socket that was passed on.
    fd: int
    #: What it listens on.
    host: str


def read_order(fd: int = ORDER_FD) -> bytes:
    """The first line of ``fd``, nothing beyond it taken."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(fd, 65536)
        if not piece:
            raise SystemExit("router: this process is started by `llmgw router`, not by hand")
        line += piece
    return line
