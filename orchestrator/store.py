"""Everything that the orchestrator reads from and writes to Redis.

A leader writes through `Store.fenced` alone: all of its commands or, when somebody has taken a higher
epoch, none and `Stale`. A command is never repeated by itself: whoever loses an answer does not know
whether the write happened, and begins again from what the store holds.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from orchestrator.shell_errors import Stale, StoreAway
from orchestrator.wire import scripts
from orchestrator.wire.errors import UnreadableMessage
from orchestrator.wire.keys import (
    COMMANDS_KEPT,
    EVENTS_KEPT,
    MESSAGE_FIELD,
    REPORTS_KEPT,
    Document,
    Keys,
    Snapshot,
)
from orchestrator.wire.presence import Presence, read_presence
from orchestrator.wire.reports import Hello, read_hello
from orchestrator.wire.snapshots import parse_versions_field

Word = str | bytes | int
Command = Sequence[Word]
#: The text of one JSON document by its name.
Texts = dict[str, str]

DOCUMENTS: tuple[Document, ...] = ("models", "overrides", "quotas", "keys", "nodes", "declared")

_NO_CONNECTION = (ConnectionRefusedError, FileNotFoundError, socket.gaierror)
CONNECT_LIMIT = 2.0
#: Longer than any blocking read of ours, shorter than the lease.
ANSWER_LIMIT = 5.0


class Taken(NamedTuple):
    """A lease that was taken: its epoch, and Redis's clock in ms."""

    epoch: int
    now_ms: int


class Led(NamedTuple):
    """Somebody leads: the whole value of ``leader``."""

    value: str

    @property
    def instance(self) -> str:
        """The instance that leads."""
        return self.value.rpartition("/")[0]

    @property
    def epoch(self) -> int:
        """Its epoch; 0 when the value is not one of ours."""
        number = self.value.rpartition("/")[2]
        return int(number) if number.isdecimal() else 0


class SnapshotWrite(NamedTuple):
    """One snapshot for the routers, written when (epoch, version) is above what they have."""

    name: Snapshot
    version: int
    payload: bytes
    notice: bytes


class Stored(NamedTuple):
    """What the store holds."""

    now_ms: int
    leader: str
    epoch: int
    doc_version: int
    documents: dict[str, Texts]
    replicas: Texts
    reservations: Texts
    models: Texts
    hellos: dict[str, Hello]
    versions: dict[str, tuple[int, int]]
    orchestrators: Texts
    reports_end: str


class EventRow(NamedTuple):
    """One entry of the stream ``events``."""

    id: str
    fields: dict[str, Any]


@contextlib.contextmanager
def mapped_errors() -> Iterator[None]:
    """Turns what the client library raises into StoreAway; an answer, or no connection, is sure."""
    try:
        yield
    except (TimeoutError, RedisError, OSError) as error:
        sure = isinstance(error, ResponseError) or isinstance(error.__context__, _NO_CONNECTION)
        raise StoreAway(str(error) or type(error).__name__, unsure=not sure) from error


def connect(url: str) -> redis.asyncio.Redis:
    """A client that fails at once instead of repeating commands by itself."""
    return redis.asyncio.Redis.from_url(
        url,
        socket_timeout=ANSWER_LIMIT,
        socket_connect_timeout=CONNECT_LIMIT,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    )


class Store:
    """The store of one cluster, over one client."""

    def __init__(self, client: redis.asyncio.Redis, cluster: str) -> None:
        self.keys = Keys(cluster)
        # redis-py types every answer as bytes or text of every protocol; ours are always bytes.
        self._client: Any = client

    async def close(self) -> None:
        """Gives the connections back."""
        with contextlib.suppress(RedisError, OSError):
            await self._client.aclose()

    async def _eval(self, script: str, keys: Sequence[str], words: Sequence[Word]) -> Any:
        with mapped_errors():
            return await self._client.eval(script, len(keys), *keys, *words)

    # The lease

    async def take_over(self, instance: str, lease_ms: int, floor: int) -> Taken | Led:
        """Takes the lease with a new epoch above ``floor`` if nobody holds it."""
        keys = [self.keys.leader, self.keys.epoch]
        reply = await self._eval(scripts.TAKE_OVER, keys, [instance, lease_ms, floor])
        if reply[0] == 1:
            return Taken(int(reply[1]), int(reply[2]))
        return Led(reply[1].decode(errors="replace"))

    async def renew(self, instance: str, epoch: int, lease_ms: int) -> int | Led:
        """Redis's clock in ms when the lease is still ours, else who leads (nobody: an empty value)."""
        reply = await self._eval(
            scripts.RENEW, [self.keys.leader], [f"{instance}/{epoch}", lease_ms]
        )
        return int(reply[1]) if reply[0] == 1 else Led(reply[1].decode(errors="replace"))

    async def resign(self, instance: str, epoch: int) -> None:
        """Gives the lease back if it is ours."""
        await self._eval(scripts.RESIGN, [self.keys.leader], [f"{instance}/{epoch}"])

    # Fenced writes

    async def fenced(
        self, epoch: int, commands: Sequence[Command], snapshot: SnapshotWrite | None = None
    ) -> list[Any]:
        """All commands, then the snapshot, or nothing and Stale. Returns their replies in order."""
        keys = [self.keys.epoch]
        rows: list[Command] = list(commands)
        if snapshot is not None:
            keys += [self.keys.versions, self.keys.snapshot(snapshot.name), self.keys.feed]
            rows.append(
                ["SNAPSHOT", snapshot.name, snapshot.version, snapshot.payload, snapshot.notice]
            )
        keys += sorted({str(command[1]) for command in commands})
        reply = await self._eval(scripts.FENCED, keys, [epoch, *scripts.flatten(rows)])
        if reply[0] == 1:
            return list(reply[1:])
        stored = reply[1]
        raise Stale(epoch, int(stored) if stored.isdigit() else None)

    def report_entry(self, message: bytes) -> Command:
        """The command that adds one message to ``reports``."""
        return ["XADD", self.keys.reports, "MAXLEN", "~", REPORTS_KEPT, "*", MESSAGE_FIELD, message]

    def node_command(self, node: str, message: bytes) -> Command:
        """The command that adds a notice or a question to a node's stream."""
        key = self.keys.cmd(node)
        return ["XADD", key, "MAXLEN", "~", COMMANDS_KEPT, "*", MESSAGE_FIELD, message]

    def event_entry(self, text: str) -> Command:
        """The command that adds one JSON object to ``events``."""
        return ["XADD", self.keys.events, "MAXLEN", "~", EVENTS_KEPT, "*", MESSAGE_FIELD, text]

    def document_write(
        self, document: Document, put: Mapping[str, str], deleted: Sequence[str] = ()
    ) -> list[Command]:
        """The commands that write rows of one document and raise the documents' version."""
        key = self.keys.doc(document)
        commands: list[Command] = []
        if put:
            commands.append(["HSET", key, *(word for row in put.items() for word in row)])
        if deleted:
            commands.append(["HDEL", key, *deleted])
        commands.append(["INCR", self.keys.doc_version])
        return commands

    # Reading

    async def read_all(self) -> Stored:
        """Everything that a leader begins with and a standby follows.

        Not a transaction: a full Redis refuses those. The end of ``reports`` is noted before the
        nodes are read, and the documents' version before the documents, so that what comes in
        between is seen again rather than never.
        """
        keys = self.keys
        hashes = [keys.replicas, keys.reservations, keys.models, keys.orchestrators]
        with mapped_errors():
            async with self._client.pipeline(transaction=False) as pipe:
                pipe.time()
                pipe.get(keys.leader)
                pipe.get(keys.epoch)
                pipe.get(keys.doc_version)
                pipe.xrevrange(keys.reports, count=1)
                for key in [*hashes, *(keys.doc(document) for document in DOCUMENTS)]:
                    pipe.hgetall(key)
                pipe.hgetall(keys.nodes)
                pipe.hgetall(keys.versions)
                replies = await pipe.execute()
        (seconds, micros), leader, epoch, doc_version, last = replies[:5]
        after = 5 + len(hashes)
        replicas, reservations, models, orchestrators = map(_texts, replies[5:after])
        documents, (nodes, versions) = replies[after:-2], replies[-2:]
        return Stored(
            now_ms=seconds * 1000 + micros // 1000,
            leader="" if leader is None else leader.decode(),
            epoch=int(epoch or 0),
            doc_version=int(doc_version or 0),
            documents=dict(zip(DOCUMENTS, map(_texts, documents), strict=True)),
            replicas=replicas,
            reservations=reservations,
            models=models,
            hellos=_hellos(nodes),
            versions={
                name.decode(): parse_versions_field(value) for name, value in versions.items()
            },
            orchestrators=orchestrators,
            reports_end=last[0][0].decode() if last else "0-0",
        )

    async def read_reports(self, after: str, wait_ms: int) -> list[tuple[str, bytes]]:
        """(entry id, message) of what came after ``after``, waiting up to ``wait_ms`` for the first."""
        with mapped_errors():
            reply = await self._client.xread(
                {self.keys.reports: after}, count=1000, block=wait_ms or None
            )
        return [
            (entry_id.decode(), fields.get(MESSAGE_FIELD, b""))
            for _, entries in reply or []
            for entry_id, fields in entries
        ]

    async def read_presences(self) -> tuple[list[Presence], int]:
        """Each live router worker's presence, and how many of the live have none that can be read."""
        with mapped_errors():
            seconds, micros = await self._client.time()
            now_ms = seconds * 1000 + micros // 1000
            ids = await self._client.zrangebyscore(self.keys.routers, now_ms, "+inf")
            if not ids:
                return [], 0
            blobs = await self._client.mget([self.keys.router(id_.decode()) for id_ in ids])
        seen: list[Presence] = []
        for blob in blobs:
            with contextlib.suppress(UnreadableMessage):
                if blob is not None:
                    seen.append(read_presence(blob))
        return seen, len(ids) - len(seen)

    async def read_snapshot(self, name: Snapshot) -> bytes | None:
        """One published snapshot, as it lies there."""
        with mapped_errors():
            return cast("bytes | None", await self._client.get(self.keys.snapshot(name)))

    async def read_events(self, after: str, limit: int) -> list[EventRow]:
        """The newest ``limit`` entries after the id ``after`` ("" = any), oldest first."""
        with mapped_errors():
            rows = await self._client.xrevrange(
                self.keys.events, min=f"({after}" if after else "-", count=limit
            )
        events = []
        for entry_id, fields in reversed(rows):
            with contextlib.suppress(ValueError):
                events.append(EventRow(entry_id.decode(), json.loads(fields[MESSAGE_FIELD])))
        return events

    async def say_who_i_am(self, instance: str, line: str) -> None:
        """This instance's own line in ``orchestrators``; any instance may write its own."""
        with mapped_errors():
            await self._client.hset(self.keys.orchestrators, instance, line)

    async def forget_me(self, instance: str) -> None:
        """Takes the own line out at a clean end."""
        with mapped_errors():
            await self._client.hdel(self.keys.orchestrators, instance)

    async def listen(self) -> AsyncGenerator[bytes, None]:
        """Messages of ``feed`` as they come; StoreAway when the subscription breaks."""
        pubsub = self._client.pubsub(ignore_subscribe_messages=True)
        try:
            with mapped_errors():
                await pubsub.subscribe(self.keys.feed)
            while True:
                with mapped_errors():
                    message = await pubsub.get_message(timeout=1.0)
                if message is not None:
                    yield message["data"]
        finally:
            with contextlib.suppress(RedisError, OSError):
                await pubsub.aclose()


def _texts(raw: Mapping[bytes, bytes]) -> Texts:
    return {name.decode(): value.decode(errors="replace") for name, value in raw.items()}


def _hellos(raw: Mapping[bytes, bytes]) -> dict[str, Hello]:
    """The Hellos that can be read; a node whose Hello cannot be read will send another."""
    hellos: dict[str, Hello] = {}
    for node, value in raw.items():
        with contextlib.suppress(UnreadableMessage, msgspec.MsgspecError):
            hellos[node.decode()] = read_hello(value)
    return hellos
