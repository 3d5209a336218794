"""Which port to listen on: the usual one, or the next that is free, or a refusal that names the owner."""

from __future__ import annotations

import socket

import psutil

from orchestrator.up.errors import PortTaken

#: How many ports after the usual one are tried.
TRIED = 50


def is_free(port: int) -> bool:
    """Whether loopback can be bound there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def holder(port: int) -> str:
    """Who listens on the port, as far as we may see it."""
    try:
        for found in psutil.net_connections("tcp"):
            if (
                found.status == psutil.CONN_LISTEN
                and found.pid
                and found.laddr
                and found.laddr.port == port
            ):
                return f"{psutil.Process(found.pid).name()} (pid {found.pid})"
    except (psutil.Error, OSError):
        pass
    return "another process"


def next_free(first: int) -> int:
    """The first free port from ``first`` on."""
    for port in range(first, first + TRIED):
        if is_free(port):
            return port
    raise PortTaken(f"no port from {first} to {first + TRIED - 1} is free")


def choose(wanted: int | None, usual: int, option: str) -> tuple[int, str | None]:
    """A port and, where the usual one was taken, a line that says so.

    A port that was asked for is taken or refused, never silently replaced.
    """
    if wanted is not None:
        if not is_free(wanted):
            raise PortTaken(
                f"port {wanted} is taken by {holder(wanted)}",
                "",
                f"{option} {next_free(wanted + 1)}",
            )
        return wanted, None
    port = next_free(usual)
    if port == usual:
        return port, None
    return port, f"port {usual} is taken by {holder(usual)}: using {port}"
