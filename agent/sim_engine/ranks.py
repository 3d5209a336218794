"""Ranks that must meet before the engine is ready, over one TCP connection from each to rank 0.

A rank says who it is in one JSON line and is answered with {"joined": true} or {"refused": why}.
When all are there, each is sent {"met": true}. After that the connections only stand: one that
ends means that its rank is lost, as in a collective. Nobody joins a group that has met.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import msgspec

from agent.sim_engine.errors import RefusedJoin
from agent.sim_engine.settings import Address, World

RETRY = 0.1  # seconds between attempts of a worker to reach rank 0
HELLO_LIMIT = 10.0  # seconds that a stranger may stay without saying who it is


class _Hello(msgspec.Struct):
    rank: int
    world_size: int
    model: str


class _Reply(msgspec.Struct, omit_defaults=True):
    joined: bool = False
    met: bool = False
    refused: str | None = None


def refusal(
    hello: _Hello, size: int, model: str, present: Collection[int], met: bool
) -> str | None:
    """Why rank 0 does not take this rank; None: it does."""
    if met:
        return "this group has met already; start all its ranks anew"
    if hello.world_size != size:
        return f"world size {hello.world_size}, but rank 0 has {size}"
    if hello.model != model:
        return f"model {hello.model!r}, but rank 0 has {model!r}"
    if not 1 <= hello.rank < size:
        return f"rank {hello.rank} is not in 1 to {size - 1}"
    if hello.rank in present:
        return f"rank {hello.rank} is here already"
    return None


class Meeting:
    """Rank 0's side. on_loss is called with the rank that is lost after all had met."""

    def __init__(self, world: World, model: str, on_loss: Callable[[int], None]) -> None:
        self._world = world
        self._model = model
        self._on_loss = on_loss
        self._present: dict[int, asyncio.StreamWriter] = {}
        self._met = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self) -> Address:
        self._server = await asyncio.start_server(self._welcome, *self._world.master)
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    def missing(self) -> list[int]:
        return [rank for rank in range(1, self._world.size) if rank not in self._present]

    async def wait(self) -> None:
        """Returns when all ranks are there."""
        if self.missing():
            await self._met.wait()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._attend(reader, writer)
        except (OSError, ValueError, msgspec.MsgspecError):
            pass  # a stranger, or a connection that broke before its rank had joined
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(HELLO_LIMIT):
            hello = msgspec.json.decode(await reader.readline(), type=_Hello)
        met = self._met.is_set()
        no = refusal(hello, self._world.size, self._model, self._present, met)
        writer.write(_line(_Reply(joined=no is None, refused=no)))
        if no is not None:
            await writer.drain()
            return
        self._present[hello.rank] = writer
        if not self.missing():
            self._met.set()
            for one in self._present.values():
                one.write(_line(_Reply(met=True)))
        try:
            await reader.read()  # ends with the connection
        except OSError:
            pass
        del self._present[hello.rank]
        if self._met.is_set():
            self._on_loss(hello.rank)


class Worker:
    """The side of rank 1 and up: holds its connection to rank 0."""

    def __init__(self, world: World, model: str) -> None:
        self._world = world
        self._hello = _line(_Hello(world.rank, world.size, model))
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def join(self) -> None:
        """Tries until rank 0 is there, and returns when all have met; raises RefusedJoin."""
        while True:
            try:
                if await self._try():
                    return
            except (OSError, msgspec.DecodeError):
                pass  # rank 0 is not there yet, or went away before all had met
            await asyncio.sleep(RETRY)

    async def lost(self) -> None:
        """Returns when the connection to rank 0 has ended."""
        assert self._reader is not None
        try:
            await self._reader.read()
        except OSError:
            pass

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    async def _try(self) -> bool:
        self._reader, self._writer = await asyncio.open_connection(*self._world.master)
        self._writer.write(self._hello)
        while line := await self._reader.readline():
            reply = msgspec.json.decode(line, type=_Reply)
            if reply.refused is not None:
                self._writer.close()
                raise RefusedJoin(reply.refused)
            if reply.met:
                return True
        self._writer.close()
        return False


def _line(value: object) -> bytes:
    return msgspec.json.encode(value) + b"\n"
