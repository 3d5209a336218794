"""The router's sockets: one per worker in one group, and one for the metrics page."""

from __future__ import annotations

import socket

from router.config import BadOption, RouterConfig, shown_address


def bound_listener(host: str, port: int) -> socket.socket:
    """A socket of the group that all workers accept on, bound and not listening."""
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, proto)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def reserved_address(config: RouterConfig) -> socket.socket:
    """The address, bound for as long as the router lives and never listening.

    It keeps the port when no worker lives, and chooses it when 0 was asked for. The workers' own
    sockets could join the group of another router unnoticed, so it is first asked for alone.
    BadOption when it cannot be had.
    """
    host, port = config.bind_host, config.bind_port
    try:
        if port:
            family, kind, proto, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )[0]
            with socket.socket(family, kind, proto) as alone:
                alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                alone.bind(address)
        return bound_listener(host, port)
    except OSError as error:
        shown = shown_address(host, port)
        raise BadOption(f"--bind: cannot listen on {shown}: {error.strerror}") from None


def page_listener(config: RouterConfig) -> socket.socket:
    """The socket of the metrics page; it is the parent's, so that a new page goes on with it."""
    host, port = config.metrics_host, config.metrics_port
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        page = socket.create_server((host, port), family=family)
    except OSError as error:
        shown = shown_address(host, port)
        raise BadOption(f"--metrics-bind: cannot listen on {shown}: {error.strerror}") from None
    page.setblocking(False)
    return page
