"""An agent without engines: obeys ``want`` in words only, so that the orchestrator sees a whole node.

It speaks the wire to a real Redis from its own thread of control: what it says of a shard is
``ready`` for goal run and ``ended`` for goal stop, unless a test says otherwise in ``says``.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError

from orchestrator.wire.codec import encode
from orchestrator.wire.keys import MESSAGE_FIELD, Keys
from orchestrator.wire.reports import (
    Applied,
    Beat,
    Disk,
    Engine,
    Full,
    Hello,
    Inventory,
    Report,
    ShardReport,
    Weights,
)
from orchestrator.wire.want import ShardWant, Want, read_want

_GOAL_STATES = {"prepare": "prepared", "run": "ready", "stop": "ended"}


class ScriptedAgent:
    """One node. `run` beats and reports until cancelled; use it as a task."""

    def __init__(
        self, client: redis.asyncio.Redis, node: str = "n1", cluster: str = "default"
    ) -> None:
        self.node = node
        self._client: Any = client
        self._keys = Keys(cluster)
        self._session = uuid.uuid4().hex
        self._node_id = uuid.uuid4().hex
        #: The newest want.
        self.want = Want(0, 0, [])
        #: Goal -> what is said of a shard with it.
        self.says = dict(_GOAL_STATES)
        #: Every state that was ever said of a generation, in order.
        self.history: dict[int, list[str]] = {}
        self.weights: list[Weights] = []
        self.inventory = Inventory(
            address="127.0.0.1",
            cpus=8,
            memory=16 * 10**9,
            memory_available=15 * 10**9,
            disks=[Disk("/var/cache", 10**12, 10**11)],
            engines=[Engine("sim", "1"), Engine("llama.cpp", "1")],
            labels={"zone": "a"},
        )

    @property
    def applied(self) -> Applied:
        """What it has obeyed."""
        return Applied(self.want.epoch, self.want.revision)

    async def run(self, every: float = 0.05) -> None:
        """Hello, then a Full whenever the want is another one or somebody asks, and beats."""
        with contextlib.suppress(asyncio.CancelledError):
            await self._say_hello()
            commands = await self._end_of_commands()
            said: tuple[Applied, dict[str, str]] | None = None
            while True:
                try:
                    await self._read_want()
                    commands, asked = await self._asked(commands)
                    now = (self.applied, dict(self.says))
                    if now != said or asked:
                        await self._say(self._full())
                        said = now
                    await self._say(Beat(self.node, self._session, self.applied))
                except (RedisError, OSError):
                    said = None
                await asyncio.sleep(every)

    async def _say_hello(self) -> None:
        hello = Hello(self.node, self._session, self._node_id, 1, self.inventory, "0.1.0")
        await self._client.hset(self._keys.nodes, self.node, encode(hello))
        await self._say(hello)

    async def _say(self, report: Report) -> None:
        await self._client.xadd(self._keys.reports, {MESSAGE_FIELD: encode(report)})

    async def _end_of_commands(self) -> bytes:
        last = await self._client.xrevrange(self._keys.cmd(self.node), count=1)
        return bytes(last[0][0]) if last else b"0"

    async def _asked(self, after: bytes) -> tuple[bytes, bool]:
        found = await self._client.xread({self._keys.cmd(self.node): after})
        return (found[0][1][-1][0], True) if found else (after, False)

    async def _read_want(self) -> None:
        raw = await self._client.get(self._keys.want(self.node))
        if raw is not None:
            want = read_want(raw)
            if (want.epoch, want.revision) > (self.want.epoch, self.want.revision):
                self.want = want

    def _full(self) -> Full:
        return Full(
            self.node,
            self._session,
            self._node_id,
            self.applied,
            self.inventory,
            [self._shard(shard) for shard in self.want.shards],
            "0.1.0",
            weights=self.weights,
        )

    def _shard(self, want: ShardWant) -> ShardReport:
        state = self.says[want.goal]
        seen = self.history.setdefault(want.generation, [])
        if seen[-1:] != [state]:
            seen.append(state)
        return ShardReport(
            replica=want.replica,
            generation=want.generation,
            model=want.model,
            origin=want.origin,
            fingerprint=want.fingerprint,
            rank=want.rank,
            world_size=want.world_size,
            state=state,
            age=1.0,
            profile=want.profile,
            served_name=want.served_name,
            slots=want.slots,
            pid=4711,
            url=f"http://127.0.0.1:{20000 + want.generation % 1000}",
            engine_key=want.engine_key,
        )
