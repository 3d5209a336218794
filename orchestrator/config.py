"""What one orchestrator is started with, as a frozen value, and its times with the reason for each."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import msgspec

from orchestrator.shell_errors import SettingsRefused

DEFAULT_ADMIN_BIND = "127.0.0.1:8090"
DEFAULT_CLUSTER = "default"
#: Where documents are backed up and the instance's name is kept.
DEFAULT_STATE = Path("~/.local/state/llmgw/orchestrator")


class Times(msgspec.Struct, frozen=True):
    """All in seconds."""

    #: A dead leader is replaced after this long at the latest.
    lease: float = 10.0
    #: Three renewals fit into a lease, so that one slow answer costs nothing.
    renewal: float = 3.0
    #: How often a standby tries to take the lease.
    campaign: float = 1.0
    #: The unit in which a node's silence is counted.
    echo: float = 2.0
    #: Passes come no closer together than this.
    pass_gap: float = 0.1
    #: And no further apart than this.
    pass_limit: float = 1.0
    #: How often the routers' presences are read; a drain ends no sooner than the next look.
    presences: float = 0.5
    #: Without a failed read for so long the set of routers is known.
    known_after: float = 15.0
    #: How often cluster.yaml is looked at.
    cluster_file: float = 2.0
    #: How often a standby reads what the leader stores, and everyone writes its backup.
    follow: float = 2.0
    #: Waits between tries while Redis is away: from the first to the last, doubling.
    retry_first: float = 0.2
    retry_last: float = 2.0
    #: How long an admin request waits for its change to be written.
    change: float = 8.0


class Settings(msgspec.Struct, frozen=True):
    """One orchestrator. ``cluster_file`` None: nothing is declared, only stored models exist."""

    redis_url: str
    state: Path
    cluster: str = DEFAULT_CLUSTER
    cluster_file: Path | None = None
    admin_host: str = "127.0.0.1"
    admin_port: int = 8090
    port_file: Path | None = None
    times: Times = Times()


def parse_admin_bind(written: str) -> tuple[str, int]:
    """(host, port) of a loopback address; anything else is refused: the admin API has no login (R165)."""
    host, colon, port = written.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise SettingsRefused(
            f"--admin-bind {written!r} is not host:port; write {DEFAULT_ADMIN_BIND}"
        )
    if host == "localhost":
        return "127.0.0.1", int(port)
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise SettingsRefused(
            f"--admin-bind {written!r} is not a loopback address, and whoever reaches the admin API"
            f" controls the cluster; bind to 127.0.0.1:{port} and reach it by"
            f" ssh -L {port}:127.0.0.1:{port} HOST"
        )
    return host, int(port)


def parse_redis_url(from_argument: str | None, file: Path | None, environment: str | None) -> str:
    """The URL from ``--redis``, else from the file, else from LLMGW_REDIS_URL."""
    if from_argument is not None and file is not None:
        raise SettingsRefused("--redis and --redis-file are both given; give one of them")
    url = from_argument
    if file is not None:
        url = _url_in(file)
    url = url or environment
    if not url:
        raise SettingsRefused(
            "no Redis is named; set LLMGW_REDIS_URL=redis://:PASSWORD@HOST:6379/0,"
            " or put that line into a file of mode 0600 and give --redis-file FILE"
        )
    if not url.startswith(("redis://", "rediss://", "unix://")):
        raise SettingsRefused(
            "the Redis URL must begin with redis://, rediss:// or unix://;"
            " write redis://:PASSWORD@HOST:6379/0"
        )
    return url


def _url_in(file: Path) -> str:
    try:
        mode = file.stat().st_mode
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsRefused(f"--redis-file {file} cannot be read: {error}") from None
    if mode & 0o077:
        raise SettingsRefused(
            f"--redis-file {file} holds a password and others may read it; run: chmod 600 {file}"
        )
    return text
