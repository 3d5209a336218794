"""The sockets under clients' connections, for what the two fronts cannot do without.

Under granian: an unclean end (a stream of granian's always ends with a clean last chunk) and a look at what a
slow reader has not taken yet (its channel has no bound). The socket is found by its peer's address among
this process's descriptors and duplicated, so that a descriptor closed and given to another connection
meanwhile cannot be hit. Under our own front: a reset, which alone is an unclean end where an answer ends with its
connection.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Iterator
from contextlib import suppress

#: Unsent bytes (not handed to the network yet); SIOCOUTQ besides counts what is not acknowledged.
_SIOCOUTQNSD = 0x894B
_SIOCOUTQ = termios.TIOCOUTQ
#: Bytes acknowledged by the peer, in struct tcp_info (Linux 4.1).
_BYTES_ACKED = struct.Struct("=120xQ")

#: One pass over the descriptors serves all who ask within this time.
PASS_EVERY_S = 0.1
CUT_LOOK_EVERY_S = 0.004
CUT_LIMIT_S = 0.2


class ClientSockets:
    """Finds duplicates of connections accepted on ``port``; one per worker."""

    def __init__(self, loop: asyncio.AbstractEventLoop, port: int) -> None:
        self._loop = loop
        self._port = port
        self._passed = float("-inf")
        self._found: dict[str, int] = {}

    async def find(self, client: str) -> socket.socket | None:
        """A duplicate of the connection whose peer is ``client``, the caller's to close, or None."""
        return self.find_now(client) or await self._find_after_pass(client)

    def find_now(self, client: str) -> socket.socket | None:
        """The same without waiting: None also when the next pass is not due yet."""
        found = self._duplicate(client)
        if found is None and self._loop.time() >= self._passed + PASS_EVERY_S:
            self._pass()
            found = self._duplicate(client)
        return found

    async def _find_after_pass(self, client: str) -> socket.socket | None:
        wait = self._passed + PASS_EVERY_S - self._loop.time()
        if wait > 0:
            # The loop's clock and timers are in whole milliseconds: not a little before it is due.
            await asyncio.sleep(wait + 0.002)
        return self.find_now(client)

    def _pass(self) -> None:
        self._passed = self._loop.time()
        self._found = dict(_accepted_on(self._port))

    def _duplicate(self, client: str) -> socket.socket | None:
        fd = self._found.get(client)
        if fd is None:
            return None
        with suppress(OSError):
            copy = _copy(fd)
            if _peer(copy) == client and copy.getsockname()[1] == self._port:
                return copy
            copy.close()
        del self._found[client]
        return None


def _accepted_on(port: int) -> Iterator[tuple[str, int]]:
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        with suppress(OSError):
            copy = _copy(fd)
            with copy:
                if copy.family in (socket.AF_INET, socket.AF_INET6) and (
                    copy.getsockname()[1] == port
                ):
                    yield _peer(copy), fd


def _copy(fd: int) -> socket.socket:
    """A socket of our own on the same connection. OSError when ``fd`` is none."""
    copy = os.dup(fd)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise


def _peer(connection: socket.socket) -> str:
    """The peer as granian writes it."""
    host, port = connection.getpeername()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def has_unsent(connection: socket.socket) -> bool:
    """Whether bytes wait in the socket's buffer because the peer does not take them."""
    return _queued(connection, _SIOCOUTQNSD) > 0


def written(connection: socket.socket) -> int:
    """Bytes ever written to the connection, acknowledged or not."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    acked: int = _BYTES_ACKED.unpack_from(info)[0]
    return acked + _queued(connection, _SIOCOUTQ)


async def wait_until_arrived(connection: socket.socket, least: int) -> None:
    """Until at least ``least`` bytes were ever written and all are acknowledged, at most 200 ms.

    granian's own thread writes, some time after it was handed the bytes: so it is not enough that
    nothing is queued, and two looks in a row must agree.
    """
    loop = asyncio.get_running_loop()
    limit = loop.time() + CUT_LIMIT_S
    before = -1
    with suppress(OSError):
        while loop.time() < limit:
            now = written(connection)
            if now >= least and now == before and _queued(connection, _SIOCOUTQ) == 0:
                return
            before = now
            await asyncio.sleep(CUT_LOOK_EVERY_S)


async def reset_after_arrival(transport: asyncio.Transport) -> None:
    """End a connection by a reset, after all that was written has arrived or 200 ms have passed."""
    try:
        connection = _copy(transport.get_extra_info("socket").fileno())
    except OSError:
        return
    loop = asyncio.get_running_loop()
    limit = loop.time() + CUT_LIMIT_S
    with connection, suppress(OSError):
        while loop.time() < limit:
            if not (transport.get_write_buffer_size() or _queued(connection, _SIOCOUTQ)):
                break
            await asyncio.sleep(CUT_LOOK_EVERY_S)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def shut(connection: socket.socket) -> None:
    """End the connection in both directions, whoever else holds it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _queued(connection: socket.socket, request: int) -> int:
    value = array.array("i", [0])
    fcntl.ioctl(connection, request, value)
    return value[0]
