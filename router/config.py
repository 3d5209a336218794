"""What a router process is told at its start: frozen, built once in ``__main__``, sent to the workers.

It may hold the store's password: it goes to the workers through a pipe, never by argv or environment.
"""

from __future__ import annotations

import os
import re
import socket
from urllib.parse import urlsplit

import msgspec

_CLUSTER = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
_REDIS_SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")

MIB = 1024 * 1024
#: Connections at once in a worker. Above it new ones are refused; granian answers nobody then, /readyz included.
CONNECTIONS_CAP = 16_384
#: The fronts: ours for HTTP/1.1, and the one that speaks HTTP/2 too.
HTTPTOOLS = "httptools"
GRANIAN = "granian"
DEFAULT_BIND = "127.0.0.1:8080"
DEFAULT_METRICS_BIND = "127.0.0.1:9108"
DEFAULT_CLUSTER = "default"
#: Requests go on being served this long after the first signal: the balancer needs to see readiness fall.
GRACE_S = 10.0
#: The longest that streams may run on after the listener has closed.
STOP_LIMIT_S = 600.0
#: What closing may take beyond its own limit before a worker ends anyway.
OVERTIME_S = 5.0
#: The exit status after a second Ctrl-C.
ENDED_BY_INTERRUPT = 130
BODY_CAP = 32 * MIB
#: All request bodies of one worker together.
BODIES_HELD_CAP = 1024 * MIB
#: A body has this long, and this much more for each MiB that it is announced or has grown to.
BODY_TIME_S = 30.0
BODY_TIME_PER_MIB_S = 1.0


class RouterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in bytes, times in seconds, paths as text."""

    #: YAML of static endpoints (``--config``); None: endpoints come from the store.
    static_file: str | None = None
    #: With password; None: no store.
    redis_url: str | None = None
    cluster: str = DEFAULT_CLUSTER
    bind_host: str = "127.0.0.1"
    bind_port: int = 8080
    workers: int = 1
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 9108
    #: Folder of this start, 0700: ``metrics/`` lies in it.
    run_dir: str
    front: str = HTTPTOOLS
    http2: bool = False
    grace: float = GRACE_S
    stop_limit: float = STOP_LIMIT_S
    body_cap: int = BODY_CAP
    bodies_held_cap: int = BODIES_HELD_CAP
    body_time: float = BODY_TIME_S
    body_time_per_mib: float = BODY_TIME_PER_MIB_S
    #: A path, ``-`` for standard output, None for none.
    access_log: str | None = None
    #: Where the worker finds the factory of its application, ``module:callable``.
    application: str = "router.application:Application"

    @property
    def metrics_dir(self) -> str:
        """Where the workers write their metrics, which are their heartbeats too."""
        return os.path.join(self.run_dir, "metrics")


class WorkerIdentity(msgspec.Struct, frozen=True):
    """One life of one worker; ``id`` is never used again, ``index`` is kept by the one that follows."""

    id: str
    index: int
    pid: int


def worker_identity(index: int) -> WorkerIdentity:
    """The identity of the calling process as worker ``index``."""
    host = re.sub(r"[^a-z0-9-]", "-", socket.gethostname().lower())[:40] or "host"
    return WorkerIdentity(f"{host}-{index}-{os.urandom(4).hex()}", index, os.getpid())


class BadOption(ValueError):
    """An option that cannot be used; the text says which, why, and what to write instead."""


def parse_bind(option: str, text: str) -> tuple[str, int]:
    """``host:port``, ``[v6]:port`` or ``:port`` (loopback); port 0 lets the system choose."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise BadOption(f"{option}: {text!r} is not HOST:PORT; write for example 127.0.0.1:8080")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise BadOption(f"{option}: an IPv6 address needs brackets: write [{host}]:{port}")
    return host or "127.0.0.1", int(port)


def shown_address(host: str, port: int) -> str:
    """As it is written in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_redis_url(option: str, text: str) -> str:
    """The url when it can be one. The refusal never quotes it: it may hold a password."""
    url = text.strip()
    if urlsplit(url).scheme not in _REDIS_SCHEMES:
        raise BadOption(
            f"{option}: not a Redis url; write for example redis://:PASSWORD@127.0.0.1:6379/0"
        )
    return url


def read_redis_file(path: str) -> str:
    """The url in a file that only its owner may read (``--redis-file``)."""
    try:
        with open(path, encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(4096)
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"--redis-file: cannot read {path}: {error}") from None
    if mode & 0o077:
        raise BadOption(
            f"--redis-file: {path} may be read by others (mode {mode & 0o777:o}); "
            f"run: chmod 600 {path}"
        )
    return check_redis_url("--redis-file", text)


def checked(config: RouterConfig) -> RouterConfig:
    """The config itself, or BadOption for the first value that cannot be used."""
    if config.static_file is None and config.redis_url is None:
        raise BadOption(
            "the router needs endpoints: give --config router.yaml (a static list) "
            "or --redis URL (fed by the orchestrator)"
        )
    if config.workers < 1:
        raise BadOption(f"--workers: {config.workers} is not at least 1")
    if not _CLUSTER.match(config.cluster):
        raise BadOption(
            f"--cluster: {config.cluster!r} may only have lower case letters, digits, - and _ "
            "(at most 63, the first a letter or digit)"
        )
    if config.front not in (HTTPTOOLS, GRANIAN):
        raise BadOption(f"--front: {config.front!r} is neither {HTTPTOOLS} nor {GRANIAN}")
    if config.http2 and config.front != GRANIAN:
        raise BadOption(
            f"--http2: the front {config.front} speaks HTTP/1.1 alone; "
            f"write --front {GRANIAN}, or leave --front out"
        )
    if config.grace < 0 or config.stop_limit < 0:
        raise BadOption("--grace and --stop-limit are seconds, 0 or more")
    return config
