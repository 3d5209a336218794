"""Who may talk to a loopback page without a login (R165-R169).

Every page in the operator's browser can reach a loopback listener, so a request must name an
address or localhost as its host (a page that rebinds its own name cannot), must not come from another
site, and a change must be application/json (which a cross-site page cannot send without asking).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

_PORT = re.compile(r"(?::[0-9]{1,5})?\Z")
_QUAD = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_READING = ("GET", "HEAD")


class Refusal(NamedTuple):
    """The status to answer with, and why in words."""

    status: int
    reason: str


def is_address_or_localhost(authority: str) -> bool:
    """Whether ``authority`` (host with optional port) is an IPv4 quad, a bracketed IPv6, or localhost."""
    host, port = authority, ""
    if authority.startswith("["):
        end = authority.find("]")
        if end < 0:
            return False
        host, port = authority[1:end], authority[end + 1 :]
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError:
            return False
        return address.scope_id is None and _PORT.match(port) is not None
    name, colon, number = authority.partition(":")
    host, port = name, colon + number
    if _PORT.match(port) is None:
        return False
    if host.lower() == "localhost":
        return True
    if _QUAD.fullmatch(host) is None:
        return False
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def _values(headers: Sequence[tuple[str, str]], name: str) -> list[str]:
    return [value for key, value in headers if key.lower() == name]


def refusal(method: str, target: str, headers: Sequence[tuple[str, str]]) -> Refusal | None:
    """Why this request is refused, or None when it may pass.

    ``target`` is the request target as sent (it may be absolute and then its authority counts too);
    ``headers`` are all headers as sent, in order, repeated ones included.
    """
    hosts = _values(headers, "host")
    if len(hosts) != 1 or not is_address_or_localhost(hosts[0].strip()):
        return Refusal(421, "exactly one Host is needed, and it must be an address or localhost")
    host = hosts[0].strip()
    if not target.startswith(("/", "*")) and not is_address_or_localhost(urlsplit(target).netloc):
        return Refusal(421, "the target's host must be an address or localhost")
    for site in _values(headers, "sec-fetch-site"):
        if site.strip().lower() not in ("same-origin", "none"):
            return Refusal(403, "requests from another site are refused")
    for origin in _values(headers, "origin"):
        if origin.strip().lower() != f"http://{host}".lower():
            return Refusal(403, "requests from another origin are refused")
    if method == "OPTIONS":
        return Refusal(405, "no cross-origin use is granted here")
    if method not in _READING:
        kinds = _values(headers, "content-type")
        if len(kinds) != 1 or kinds[0].partition(";")[0].strip().lower() != "application/json":
            return Refusal(415, "a change needs Content-Type: application/json")
    return None
