"""The agent's end of Redis: reads want and commands, writes reports and load.

Nothing is queued while Redis is away: every message is made of the state at the moment it is sent,
and each connection begins with a Hello and a Full. A failure of any exchange ends all of them and
begins again, so there is one way into every state.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from typing import Any, NamedTuple

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from agent.inventory.cpu_memory import cpu_count, load_average
from agent.inventory.node_inventory import NodeInventory
from agent.reach import Reach
from agent.supervise import Supervisor
from agent.task_end import until_first
from agent.version import version
from agent.weights.told_folders import ToldFolders
from orchestrator.wire.codec import encode
from orchestrator.wire.errors import UnreadableMessage
from orchestrator.wire.feed import Load
from orchestrator.wire.keys import MESSAGE_FIELD, REPORTS_KEPT, Keys
from orchestrator.wire.reports import Answer, Beat, Bye, Full, Hello, Inventory, Refused, Report
from orchestrator.wire.want import (
    Command,
    ReadLog,
    SendReport,
    SessionTaken,
    WantChanged,
    read_command,
    read_want,
)

log = logging.getLogger("agent")

BEAT_EVERY = 2.0  # seconds
FULL_EVERY = 30.0
WANT_EVERY = 10.0
LOAD_EVERY = 0.5
#: Changes that follow each other at once go into one Full.
_GATHER = 0.05
_COMMAND_BLOCK_MS = 2000
_SOCKET_LIMIT = 3.0
_BYE_LIMIT = 1.0
_ANSWERED_KEPT = 1000


class Session(NamedTuple):
    """Who speaks: the node's name, this run's id, the id on disk, when it began (ms)."""

    node: str
    session: str
    node_id: str
    started_ms: int


class Uplink:
    """One agent's link to one Redis."""

    def __init__(
        self,
        url: str,
        cluster: str,
        session: Session,
        supervisor: Supervisor,
        inventory: NodeInventory,
        told: ToldFolders,
    ) -> None:
        self._keys = Keys(cluster)
        self._who = session
        self._supervisor = supervisor
        self._inventory = inventory
        self._told = told
        self.reach = Reach()
        self._redis = _client(url, _SOCKET_LIMIT)
        self._blocking = _client(url, _COMMAND_BLOCK_MS / 1000 + _SOCKET_LIMIT)
        self._position: bytes | str = "0-0"
        self._answered: OrderedDict[str, None] = OrderedDict()
        self._bad_want: bytes | None = None
        supervisor.confirm = self.confirm

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._greet()
                self.reach.up()
                await until_first(
                    asyncio.create_task(loop)
                    for loop in (
                        self._commands(),
                        self._wants(),
                        self._beats(),
                        self._fulls(),
                        self._loads(),
                    )
                )
            except (RedisError, OSError, TimeoutError) as error:
                await asyncio.sleep(self.reach.down(error))

    async def close(self) -> None:
        """Says Bye, if Redis hears it at once, and closes."""
        with contextlib.suppress(RedisError, OSError, TimeoutError):
            async with asyncio.timeout(_BYE_LIMIT):
                await self._send(Bye(self._who.node, self._who.session))
        for client in (self._redis, self._blocking):
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                async with asyncio.timeout(_BYE_LIMIT):
                    await client.aclose()

    async def confirm(self) -> bool:
        """Reads the newest want right now; False when Redis does not answer."""
        try:
            await self._read_want()
        except (RedisError, OSError, TimeoutError):
            return False
        return True

    async def _greet(self) -> None:
        """Hello, then the end of the commands before the want, so that no notice falls between."""
        hello = Hello(
            node=self._who.node,
            session=self._who.session,
            node_id=self._who.node_id,
            started_ms=self._who.started_ms,
            inventory=await self._gather(),
            version=version(),
        )
        await self._redis.hset(self._keys.nodes, self._who.node, encode(hello))
        await self._send(hello)
        self._position = await self._end_of_commands()
        await self._read_want()
        await self._send_full()

    async def _end_of_commands(self) -> bytes | str:
        newest: Any = await self._redis.xrevrange(self._keys.cmd(self._who.node), count=1)
        return newest[0][0] if newest else "0-0"

    async def _read_want(self) -> None:
        raw: Any = await self._redis.get(self._keys.want(self._who.node))
        if raw is None or raw == self._bad_want:
            return
        try:
            want = read_want(raw)
        except UnreadableMessage as error:
            self._bad_want = raw
            log.error("want cannot be read, the one before stays in force: %s", error)
            return
        if self._supervisor.obey(want):
            log.info("want (%d, %d): %d shards", want.epoch, want.revision, len(want.shards))

    async def _wants(self) -> None:
        while True:
            await asyncio.sleep(WANT_EVERY)
            await self._read_want()
            # A stream that was deleted or restored may have gone back behind our position.
            end = await self._end_of_commands()
            if _order(end) < _order(self._position):
                self._position = end

    async def _commands(self) -> None:
        key = self._keys.cmd(self._who.node)
        while True:
            answer: Any = await self._blocking.xread({key: self._position}, block=_COMMAND_BLOCK_MS)
            for _, entries in answer or ():
                for number, fields in entries:
                    self._position = number
                    await self._handle(fields.get(MESSAGE_FIELD, b""))

    async def _handle(self, raw: bytes) -> None:
        try:
            command: Command = read_command(raw)
        except UnreadableMessage as error:
            log.warning("a command cannot be read: %s", error)
            return
        if command.epoch < self._supervisor.applied.epoch:
            return  # of a leader that is none any more
        match command:
            case WantChanged():
                await self._read_want()
            case SendReport(id=asked):
                if self._is_new(asked):
                    await self._send_full()
            case ReadLog(id=asked):
                if self._is_new(asked):
                    ok, text = await asyncio.to_thread(self._supervisor.read_log, command)
                    await self._send(Answer(self._who.node, self._who.session, asked, ok, text))
            case SessionTaken(session=session):
                if session == self._who.session and not self._supervisor.muted:
                    self._supervisor.muted = True
                    log.error(
                        "another agent speaks for node %s: nothing more is launched here",
                        self._who.node,
                    )

    def _is_new(self, question: str) -> bool:
        """Whether a question was not answered before; none is answered twice."""
        if question in self._answered:
            return False
        self._answered[question] = None
        if len(self._answered) > _ANSWERED_KEPT:
            self._answered.popitem(last=False)
        return True

    async def _beats(self) -> None:
        while True:
            await self._send(
                Beat(
                    node=self._who.node,
                    session=self._who.session,
                    applied=self._supervisor.applied,
                    clock_ms=int(time.time() * 1000),
                    cpus=cpu_count(),
                    load=load_average(),
                    use=self._supervisor.take_use(),
                )
            )
            await asyncio.sleep(BEAT_EVERY)

    async def _fulls(self) -> None:
        changed = self._supervisor.changed
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FULL_EVERY):
                    await changed.wait()
                await asyncio.sleep(_GATHER)
            await self._send_full()

    async def _send_refusals(self) -> None:
        while self._supervisor.refusals:
            shard, no = self._supervisor.refusals.pop(0)
            await self._send(
                Refused(
                    node=self._who.node,
                    session=self._who.session,
                    replica=shard.replica,
                    generation=shard.generation,
                    rank=shard.rank,
                    reason=no.reason,
                    detail=no.detail,
                )
            )

    async def _send_full(self) -> None:
        await self._send_refusals()
        inventory = await self._gather()
        weights = {w.source: w for w in await asyncio.to_thread(self._told.seen)}
        self._supervisor.changed.clear()
        weights |= {w.source: w for w in self._supervisor.weights()}
        await self._send(
            Full(
                node=self._who.node,
                session=self._who.session,
                node_id=self._who.node_id,
                applied=self._supervisor.applied,
                inventory=inventory,
                shards=self._supervisor.shards(),
                version=version(),
                weights=list(weights.values()),
                clock_ms=int(time.time() * 1000),
            )
        )

    async def _gather(self) -> Inventory:
        return await asyncio.to_thread(self._inventory.gather, self._supervisor.our_pids)

    async def _loads(self) -> None:
        while True:
            load = Load(self._who.node, self._who.session, self._supervisor.loads())
            await self._redis.publish(self._keys.feed, encode(load))
            await asyncio.sleep(LOAD_EVERY)

    async def _send(self, report: Report) -> None:
        await self._redis.xadd(
            self._keys.reports,
            {MESSAGE_FIELD: encode(report)},
            maxlen=REPORTS_KEPT,
            approximate=True,
        )


def _client(url: str, limit: float) -> redis.asyncio.Redis:
    """A client that fails at once: trying again is decided here, in one place."""
    return redis.asyncio.from_url(
        url, socket_timeout=limit, socket_connect_timeout=_SOCKET_LIMIT, retry=Retry(NoBackoff(), 0)
    )


def _order(number: bytes | str) -> tuple[int, int]:
    text = number.decode() if isinstance(number, bytes) else number
    ms, _, rest = text.partition("-")
    return int(ms), int(rest or 0)
