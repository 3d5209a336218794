"""The worker's side of Redis: presence out, snapshots and load reports in.

The presence is written first with no versions, before the snapshots are read, so that the orchestrator
never counts a worker that may still hold an old one. After that every 2 s (sooner when something changed)
one pipeline writes the presence and reads ``versions``; the channel ``feed`` only makes it quicker. When
Redis is away the worker goes on with what it knows; each change of that is one line.
"""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol

import redis.asyncio
from redis.exceptions import RedisError

from orchestrator.wire.codec import encode
from orchestrator.wire.errors import WireError
from orchestrator.wire.feed import Load, SnapshotNotice, Wanted, read_feed
from orchestrator.wire.keys import SNAPSHOTS, Keys, Snapshot
from orchestrator.wire.presence import Presence, Version
from orchestrator.wire.snapshots import (
    AccessSnapshot,
    CatalogSnapshot,
    EndpointsSnapshot,
    parse_versions_field,
    read_access,
    read_catalog,
    read_endpoints,
)
from router.snapshot import Snapshots

BEAT_EVERY_S = 2.0
LOOK_EVERY_S = 0.25
PRESENCE_LIFE_MS = 15_000
CALL_LIMIT_S = 2.0
RETRY_S = 1.0
FIRST_RETRY_S = 0.2

AnySnapshot = CatalogSnapshot | EndpointsSnapshot | AccessSnapshot
_READERS: dict[Snapshot, Callable[[bytes], AnySnapshot]] = {
    "catalog": read_catalog,
    "endpoints": read_endpoints,
    "access": read_access,
}
#: Seconds after which a task that was cancelled and has not ended is cancelled again.
CANCEL_AGAIN_S = 0.2


class Listener(Protocol):
    """What the feed tells, from the loop's thread."""

    def take_snapshots(self, snapshots: Snapshots) -> None:
        """At least one of the three is newer. Raises WireError to refuse them."""
        ...

    def hear(self, load: Load) -> None:
        """An agent's load entry."""
        ...

    def presence(self) -> Presence:
        """The worker as it is now."""
        ...


class Feed:
    """One worker's connection to the store. ``age_of_versions`` tells how stale its knowledge may be."""

    def __init__(
        self, url: str, cluster: str, worker: str, first: Presence, listener: Listener
    ) -> None:
        self._keys = Keys(cluster)
        self._worker = worker
        self._first = first
        self._listener = listener
        self._client: redis.asyncio.Redis = redis.asyncio.Redis.from_url(
            url, socket_timeout=CALL_LIMIT_S, socket_connect_timeout=CALL_LIMIT_S
        )
        self._held: dict[Snapshot, AnySnapshot] = {}
        self._wake = asyncio.Event()
        self._wanted: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        #: Why the store does not answer; "" while it does.
        self.away = ""
        self._announced = False
        self._refused_versions: dict[Snapshot, Version] = {}
        #: Snapshots whose version in the store is no version.
        self._unreadable: set[Snapshot] = set()
        self._written = b""
        self._written_at = 0.0
        self._versions_at: float | None = None
        #: What to add to this machine's wall clock (ms) to have the store's.
        self.clock_offset_ms = 0.0

    def start(self) -> None:
        """Begin; nothing is waited for."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._beat_on()), loop.create_task(self._listen_on())]

    async def close(self) -> None:
        """Take the presence away (nothing is held any more) and end."""
        pending = set(self._tasks)
        while pending:
            # redis-py sends through asyncio.wait_for, which on Python 3.11 can lose a cancellation.
            for task in pending:
                task.cancel()
            _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)
        try:
            async with (
                asyncio.timeout(CALL_LIMIT_S),
                self._client.pipeline(transaction=False) as pipe,
            ):
                pipe.delete(self._keys.router(self._worker))
                pipe.zrem(self._keys.routers, self._worker)
                await pipe.execute()
        except (RedisError, OSError, TimeoutError):
            # It expires by itself within 15 s.
            pass
        await self._client.aclose()

    def want(self, model: str) -> None:
        """A request is held for this model: said on ``feed`` at once."""
        self._wanted.add(model)
        self._wake.set()

    def changed(self) -> None:
        """Something that the orchestrator waits for has changed: the presence is written at once."""
        self._written = b""
        self._wake.set()

    def age_of_versions(self) -> float | None:
        """Seconds since ``versions`` was last read; None: never."""
        return None if self._versions_at is None else time.monotonic() - self._versions_at

    def missing(self) -> list[Snapshot]:
        """Snapshots that this worker has never had."""
        return [name for name in SNAPSHOTS if name not in self._held]

    # Beating.

    async def _beat_on(self) -> None:
        retry = FIRST_RETRY_S
        while True:
            try:
                if not self._announced:
                    await self._write(encode(self._first))
                    self._announced = True
                await self._beat()
                retry = FIRST_RETRY_S
                await self._until_due()
            except (RedisError, OSError, TimeoutError) as error:
                self._say_away(error)
                await asyncio.sleep(retry)
                retry = min(retry * 2, RETRY_S)
            except Exception as error:
                # A mistake of ours. Were it the end of this task, no key would ever be revoked again.
                _say_mistake(error)
                await asyncio.sleep(RETRY_S)

    async def _until_due(self) -> None:
        """Return when woken, when the presence has changed, or when the beat is due."""
        while True:
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._wake.wait()
                return
            except TimeoutError:
                if time.monotonic() - self._written_at >= BEAT_EVERY_S - LOOK_EVERY_S / 2:
                    return
                if encode(self._listener.presence()) != self._written:
                    return

    async def _beat(self) -> None:
        self._wake.clear()
        wanted, self._wanted = self._wanted, set()
        blob = encode(self._listener.presence())
        try:
            versions = await self._write(blob, wanted)
        except BaseException:
            self._wanted |= wanted
            raise
        self._written, self._written_at = blob, time.monotonic()
        await self._read_newer(versions)
        self._versions_at = time.monotonic()
        if self.away:
            self.away = ""
            print("router: redis answers again", file=sys.stderr, flush=True)

    async def _write(self, blob: bytes, wanted: set[str] | None = None) -> dict[bytes, bytes]:
        keys = self._keys
        async with self._client.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.set(keys.router(self._worker), blob, px=PRESENCE_LIFE_MS)
            now_ms = time.time() * 1000 + self.clock_offset_ms
            pipe.zadd(keys.routers, {self._worker: now_ms + PRESENCE_LIFE_MS})
            pipe.hgetall(keys.versions)
            for model in sorted(wanted or ()):
                pipe.publish(keys.feed, encode(Wanted(model, self._worker)))
            answers = await pipe.execute()
        seconds, micros = answers[0]
        self.clock_offset_ms = seconds * 1000 + micros / 1000 - time.time() * 1000
        versions: dict[bytes, bytes] = answers[3]
        return versions

    async def _read_newer(self, versions: dict[bytes, bytes]) -> None:
        newer = [name for name in SNAPSHOTS if self._is_newer(name, versions)]
        if not newer:
            return
        raws: list[Any] = await self._client.mget([self._keys.snapshot(name) for name in newer])
        held = dict(self._held)
        taken = []
        for name, raw in zip(newer, raws, strict=True):
            # A missing key means unchanged.
            snapshot = None if raw is None else self._decode(name, raw, versions)
            if snapshot is not None and _version(snapshot) > self._own(name):
                held[name] = snapshot
                taken.append(name)
        if not taken:
            return
        if not all(name in held for name in SNAPSHOTS) or self._why_refused(held) is None:
            self._held = held
        else:
            # One that cannot be used must not keep the others out.
            for name in taken:
                alone = {**self._held, name: held[name]}
                why = self._why_refused(alone)
                if why is None:
                    self._held = alone
                else:
                    self._refuse(name, versions, why)
        self._written = b""
        self._wake.set()

    def _why_refused(self, held: dict[Snapshot, Any]) -> str | None:
        if not all(name in held for name in SNAPSHOTS):
            return "another one cannot be used with it"
        try:
            self._listener.take_snapshots(
                Snapshots(held["catalog"], held["endpoints"], held["access"])
            )
        except WireError as error:
            return str(error)
        return None

    def _decode(
        self, name: Snapshot, raw: bytes, versions: dict[bytes, bytes]
    ) -> AnySnapshot | None:
        try:
            return _READERS[name](raw)
        except WireError as error:
            self._refuse(name, versions, str(error))
            return None

    def _refuse(self, name: Snapshot, versions: dict[bytes, bytes], why: str) -> None:
        self._refused_versions[name] = _parsed(versions[name.encode()])
        print(
            f"router: the snapshot {name} cannot be used, the last one stays: {why}",
            file=sys.stderr,
            flush=True,
        )

    def _is_newer(self, name: Snapshot, versions: dict[bytes, bytes]) -> bool:
        field = versions.get(name.encode())
        if field is None:
            return False
        try:
            version = _parsed(field)
        except ValueError:
            self._say_unreadable(name)
            return False
        self._unreadable.discard(name)
        return version > self._own(name) and version != self._refused_versions.get(name)

    def _say_unreadable(self, name: Snapshot) -> None:
        if name not in self._unreadable:
            self._unreadable.add(name)
            print(
                f"router: the version of the snapshot {name} cannot be read in the store; "
                "the last snapshot stays",
                file=sys.stderr,
                flush=True,
            )

    def _own(self, name: Snapshot) -> Version:
        held = self._held.get(name)
        return Version(-1, -1) if held is None else _version(held)

    def _say_away(self, error: BaseException) -> None:
        # Its class alone: the text of a connection error may quote the url.
        why = f"redis does not answer ({type(error).__name__})"
        if not self.away:
            goes_on = "this worker is not ready until it does"
            if not self.missing():
                goes_on = "requests go on with the last known endpoints"
            print(f"router: {why}; {goes_on}", file=sys.stderr, flush=True)
        self.away = why

    # Listening.

    async def _listen_on(self) -> None:
        while True:
            try:
                await self._listen()
            except (RedisError, OSError, TimeoutError):
                # The beat says it.
                await asyncio.sleep(RETRY_S)
            except Exception as error:
                _say_mistake(error)
                await asyncio.sleep(RETRY_S)

    async def _listen(self) -> None:
        async with self._client.pubsub(ignore_subscribe_messages=True) as channel:
            await channel.subscribe(self._keys.feed)
            # What was said before we listened is in `versions`.
            self._wake.set()
            while True:
                message = await channel.get_message(timeout=BEAT_EVERY_S)
                if message is not None:
                    self._hear(message["data"])

    def _hear(self, raw: bytes) -> None:
        try:
            said = read_feed(raw)
        except WireError:
            # A newer version's kind of message.
            return
        if isinstance(said, Load):
            self._listener.hear(said)
        elif isinstance(said, SnapshotNotice):
            held = self._held.get(said.name)  # type: ignore[call-overload]
            if held is None or Version(said.epoch, said.version) > _version(held):
                self._wake.set()


def _say_mistake(error: Exception) -> None:
    place = "".join(traceback.format_tb(error.__traceback__))
    print(f"router: the feed failed: {type(error).__name__}\n{place}", file=sys.stderr, flush=True)


def _version(snapshot: AnySnapshot) -> Version:
    return Version(snapshot.epoch, snapshot.version)


def _parsed(field: bytes) -> Version:
    return Version(*parse_versions_field(field))
