"""Fed mode against a real Redis: presence first, snapshots in, and Redis gone and back."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from orchestrator.wire.codec import encode
from orchestrator.wire.feed import Load, ReplicaLoad, SnapshotNotice, Wanted, read_feed
from orchestrator.wire.keys import Keys
from orchestrator.wire.presence import Version, read_presence
from orchestrator.wire.snapshots import (
    Absence,
    AccessSnapshot,
    CatalogSnapshot,
    Endpoint,
    EndpointsSnapshot,
    KeyEntry,
    ModelEntry,
    versions_field,
)
from router.snapshot import Snapshots
from tests.fakes.redis_server import running_redis
from tests.router.conftest import chat, eventually
from tests.router.fake_engine import json_answer
from tests.router.fake_exchange import FakeExchange

KEY = "sk-fed"
HEADERS = {"authorization": f"Bearer {KEY}"}
KEYS = Keys("default")


@pytest.fixture
def store(tmp_path):
    with running_redis(tmp_path / "redis") as server:
        yield server


class Leader:
    """Publishes snapshots as the orchestrator does, without its fence."""

    def __init__(self, store):
        self.store = store
        self.version = 0

    def publish(self, name, snapshot, *, notice=True):
        with self.store.client() as client:
            client.set(KEYS.snapshot(name), encode(snapshot))
            field = versions_field(snapshot.epoch, snapshot.version)
            client.hset(KEYS.versions, name, field)
            if notice:
                said = SnapshotNotice(name, snapshot.epoch, snapshot.version)
                client.publish(KEYS.feed, encode(said))

    def catalog(self, *models, epoch=5, version=1):
        self.publish("catalog", CatalogSnapshot(epoch, version, list(models)))

    def endpoints(self, *endpoints, absences=(), epoch=5, version=1, notice=True):
        snapshot = EndpointsSnapshot(epoch, version, list(endpoints), list(absences))
        self.publish("endpoints", snapshot, notice=notice)

    def access(self, *keys, epoch=5, version=1, **members):
        entries = {
            hashlib.sha256(key.encode()).hexdigest(): KeyEntry("k1", "team", **members)
            for key in keys
        }
        self.publish("access", AccessSnapshot(epoch, version, entries, {}))

    def all(self, engine):
        self.catalog(ModelEntry("m"))
        self.endpoints(endpoint(engine))
        self.access(KEY)

    def presence(self):
        with self.store.client() as client:
            raw = client.get(KEYS.router("w-0"))
        return None if raw is None else read_presence(raw)


def endpoint(engine, generation=1, **members):
    return Endpoint("r1", generation, "m", engine.url, "sim", "m", slots=8, **members)


@pytest.fixture
async def fed(path, store):
    leader = Leader(store)
    await path.start(redis_url=store.url)
    return leader


async def until_ready(path):
    await eventually(lambda: path.application.ready() is None)


async def test_nothing_is_served_before_the_three_snapshots(path, fed):
    engine = await path.engine()
    first = await eventually(fed.presence)
    assert first.versions == {}
    assert "catalog" in path.application.ready()
    refused = await path.ask(headers=HEADERS)
    assert (refused.status, refused.error["code"]) == (503, "no_endpoint")
    fed.catalog(ModelEntry("m"))
    fed.endpoints(endpoint(engine))
    await eventually(lambda: path.application.ready() == "waiting for the snapshots: access")
    fed.access(KEY)
    await until_ready(path)
    assert (await path.ask(headers=HEADERS)).status == 200
    expected = dict.fromkeys(("catalog", "endpoints", "access"), Version(5, 1))
    await eventually(lambda: fed.presence().versions == expected)


async def test_keys_are_always_required(path, fed):
    engine = await path.engine()
    fed.catalog(ModelEntry("m"))
    fed.endpoints(endpoint(engine))
    fed.access()
    await until_ready(path)
    assert (await path.ask()).status == 401


async def test_a_key_is_revoked_and_another_expires(path, fed):
    fed.all(await path.engine())
    await until_ready(path)
    assert (await path.ask(headers=HEADERS)).status == 200
    fed.access(version=2)
    await eventually(lambda: not path.application._state.keys)
    assert (await path.ask(headers=HEADERS)).status == 401
    fed.access(KEY, version=3, expires_ms=1_000)
    await eventually(lambda: path.application._state.keys)
    answer = await path.ask(headers=HEADERS)
    assert answer.status == 401
    assert "expired" in answer.error["message"]


async def test_without_a_notice_the_versions_tell(path, fed):
    engine = await path.engine()
    fed.all(engine)
    await until_ready(path)
    fed.endpoints(endpoint(engine, generation=2), version=2, notice=False)
    await eventually(lambda: path.application._state.versions["endpoints"] == Version(5, 2))


async def test_an_older_snapshot_changes_nothing(path, fed):
    engine = await path.engine()
    fed.all(engine)
    await until_ready(path)
    fed.endpoints(epoch=4, version=99)
    fed.access(KEY, "another", version=2)
    await eventually(lambda: path.application._state.versions["access"] == Version(5, 2))
    assert path.application._state.versions["endpoints"] == Version(5, 1)
    assert (await path.ask(headers=HEADERS)).status == 200


async def test_a_bad_snapshot_is_refused_alone(path, fed, capsys):
    engine = await path.engine()
    fed.all(engine)
    await until_ready(path)
    with fed.store.client() as client:
        client.set(KEYS.snapshot("catalog"), b"\x93no")
        client.hset(KEYS.versions, "catalog", versions_field(5, 2))
    fed.access(KEY, "another", version=2)
    await eventually(lambda: path.application._state.versions["access"] == Version(5, 2))
    assert path.application._state.versions["catalog"] == Version(5, 1)
    clash = [ModelEntry("m"), ModelEntry("n", aliases=["m"])]
    fed.catalog(*clash, version=3)
    fed.access(KEY, version=4)
    await eventually(lambda: path.application._state.versions["access"] == Version(5, 4))
    assert path.application._state.versions["catalog"] == Version(5, 1)
    assert "wanted by" in capsys.readouterr().err


@pytest.mark.parametrize("field", [b"", b"5", b"five 2", b"5 2 3"])
async def test_a_version_that_is_none_keeps_nothing_else_out(path, fed, capsys, field):
    engine = await path.engine()
    fed.all(engine)
    await until_ready(path)
    with fed.store.client() as client:
        client.hset(KEYS.versions, "catalog", field)
    fed.access(KEY, "another", version=2)
    await eventually(lambda: path.application._state.versions["access"] == Version(5, 2))
    fed.access(KEY, version=3)
    await eventually(lambda: path.application._state.versions["access"] == Version(5, 3))
    assert capsys.readouterr().err.count("version of the snapshot catalog") == 1
    fed.catalog(ModelEntry("m"), ModelEntry("n"), version=2)
    await eventually(lambda: "n" in path.application._state.names)


async def test_a_mistake_of_ours_does_not_end_the_feed(path, fed, monkeypatch, capsys):
    engine = await path.engine()
    fed.all(engine)
    await until_ready(path)
    presence = path.application.presence
    mistakes: list[Any] = []

    def mistaken():
        if not mistakes:
            mistakes.append(1)
            raise RuntimeError("-".join(["sk", "secret"]))
        return presence()

    monkeypatch.setattr(path.application, "presence", mistaken)
    await eventually(lambda: mistakes)
    fed.access(version=2)
    await eventually(lambda: not path.application._state.keys)
    said = capsys.readouterr().err
    assert "RuntimeError" in said
    assert "sk-secret" not in said


async def test_a_mistake_while_it_listens_does_not_end_it(path, fed, monkeypatch, capsys):
    fed.all(await path.engine())
    await until_ready(path)
    heard = []

    def mistaken(load):
        heard.append(load)
        raise RuntimeError

    monkeypatch.setattr(path.application, "hear", mistaken)

    async def heard_twice():
        async with fed.store.async_client() as client:
            while len(heard) < 2:
                await client.publish(KEYS.feed, encode(Load("n", "s", [])))
                await asyncio.sleep(0.05)

    await asyncio.wait_for(heard_twice(), 20)
    assert "RuntimeError" in capsys.readouterr().err


async def test_a_store_that_is_away_at_the_start_is_named(path, store, capsys):
    store.kill()
    await path.start(redis_url=store.url)
    await eventually(lambda: "redis does not answer" in path.application.ready())
    assert "waiting for the snapshots: catalog, endpoints, access" in path.application.ready()
    assert "not ready until it does" in capsys.readouterr().err
    store.start()
    await eventually(lambda: path.application.ready().startswith("waiting"))


async def test_a_wrong_password_is_named_and_not_shown(path, store, capsys):
    scheme, _, rest = store.url.partition("://")
    url = f"{scheme}://:wr0ng-secret@{rest.rpartition('@')[2]}"
    await path.start(redis_url=url)
    await eventually(lambda: "Authentication" in path.application.ready())
    said = capsys.readouterr().err
    assert "Authentication" in said
    assert "wr0ng" not in said + path.application.ready()


async def test_the_store_dies_and_comes_back(path, fed, capsys):
    engine = await path.engine()
    fed.all(engine)
    await until_ready(path)
    await asyncio.to_thread(fed.store.kill)
    for _ in range(20):
        assert (await path.ask(headers=HEADERS)).status == 200
    await eventually(lambda: "does not answer" in capsys.readouterr().err)
    await asyncio.to_thread(fed.store.start)
    fed.endpoints(endpoint(engine, generation=2), version=2)
    await eventually(lambda: path.application._state.versions["endpoints"] == Version(5, 2))
    assert capsys.readouterr().err.count("answers again") == 1
    assert (await path.ask(headers=HEADERS)).status == 200


async def test_an_emptied_store_means_unchanged(path, fed):
    engine = await path.engine()
    fed.all(engine)
    await until_ready(path)
    fed.store.flush()
    await eventually(fed.presence)
    assert (await path.ask(headers=HEADERS)).status == 200


async def test_what_runs_is_in_the_presence(path, fed):
    async def behave(talk):
        await asyncio.sleep(3600)

    engine = await path.engine(behave)
    fed.all(engine)
    await until_ready(path)
    exchange = FakeExchange(body=chat(), headers=HEADERS)
    task = path.begin(exchange)
    await eventually(lambda: fed.presence().held)
    presence = fed.presence()
    assert [(h.endpoint, h.generation, h.requests) for h in presence.held] == [("r1", 1, 1)]
    assert presence.used == ["r1"]
    assert (presence.demand["m"].in_flight, presence.demand["m"].begun) == (1, 1)
    exchange.leave()
    await task
    await eventually(lambda: not fed.presence().held)
    assert fed.presence().totals["m"].requests == 1
    path.application.begin_drain()
    await eventually(lambda: fed.presence().draining)


async def test_the_presence_goes_with_the_worker(path, fed):
    await eventually(fed.presence)
    await path.application.close(0.0)
    assert fed.presence() is None


async def test_load_reports_are_heard(path, fed):
    fed.all(await path.engine())
    await until_ready(path)
    replicas = [
        ReplicaLoad("r1", 1, 0.1, running=3, waiting=2, cache_use=0.5),
        ReplicaLoad("r1", 9, 0.1, running=99),
        ReplicaLoad("other", 1, 0.1),
    ]
    place = path.application._engines.place(("r1", 1))

    async def heard():
        async with fed.store.async_client() as client:
            while place.report is None:
                await client.publish(KEYS.feed, encode(Load("n", "s", replicas)))
                await asyncio.sleep(0.02)

    await asyncio.wait_for(heard(), 20)
    assert (place.report.running, place.report.waiting, place.report.cache_use) == (3, 2, 0.5)


class TestAbsent:
    async def start(self, path, fed, *absences):
        fed.catalog(ModelEntry("m"))
        fed.endpoints(absences=absences)
        fed.access(KEY)
        await until_ready(path)

    async def test_off(self, path, fed):
        await self.start(path, fed, Absence("m", "off"))
        answer = await path.ask(headers=HEADERS)
        assert (answer.status, answer.error["code"]) == (503, "model_off")
        assert answer.answer_headers["x-should-retry"] == "false"

    async def test_no_room_in_the_snapshots_words(self, path, fed):
        await self.start(path, fed, Absence("m", "no_room", "needs 24 GB on one card"))
        answer = await path.ask(headers=HEADERS)
        assert (answer.status, answer.error["code"]) == (503, "no_endpoint")
        assert "needs 24 GB on one card" in answer.error["message"]

    async def test_idle_is_held_and_wanted_and_then_served(self, path, fed):
        engine = await path.engine()
        await self.start(path, fed, Absence("m", "idle"))
        async with fed.store.async_client() as client, client.pubsub() as channel:
            await channel.subscribe(KEYS.feed)
            exchange = FakeExchange(body=chat(), headers=HEADERS)
            task = path.begin(exchange)

            async def wanted():
                async for message in channel.listen():
                    if message["type"] == "message":
                        said = read_feed(message["data"])
                        if isinstance(said, Wanted):
                            return said
                return None

            assert await asyncio.wait_for(wanted(), 20) == Wanted("m", "w-0")
        await eventually(lambda: fed.presence().demand["m"].wanted)
        fed.endpoints(endpoint(engine), version=2)
        await task
        assert exchange.status == 200

    async def test_the_hold_ends(self, path, fed):
        await self.start(path, fed, Absence("m", "loading", eta=40.0))
        exchange = FakeExchange(body=chat(), headers=HEADERS)
        task = path.begin(exchange)
        gate = await eventually(lambda: path.application._engines.gates["m"])
        await eventually(lambda: gate.waiting)
        for want in gate.waiting:
            want.arrived -= 15.0
        await task
        assert (exchange.status, exchange.error["code"]) == (503, "model_loading")
        assert 36 <= int(exchange.answer_headers["retry-after"]) <= 45


@pytest.mark.parametrize("status", [401, 404])
async def test_another_engine_on_an_old_address(path, fed, status):
    async def foreign(talk):
        await talk.write(
            json_answer(status, {"error": {"message": "The model `m` does not exist."}})
        )

    stranger, own = await path.engine(foreign), await path.engine()
    fed.catalog(ModelEntry("m"))
    both = [
        Endpoint("r1", 1, "m", stranger.url, "sim", "m", engine_key="a", slots=8),
        Endpoint("r2", 2, "m", own.url, "sim", "m", engine_key="b", slots=8),
    ]
    fed.endpoints(*both)
    fed.access(KEY)
    await until_ready(path)
    for number in range(10):
        answer = await path.ask(chat(user=str(number)), headers=HEADERS)
        assert answer.status == 200
    assert len(stranger.requests) <= 1
    fed.endpoints(*both, version=2)
    await eventually(lambda: path.application._state.versions["endpoints"] == Version(5, 2))
    assert not path.application._engines.place(("r1", 1)).out


@pytest.mark.parametrize("message", ["Not Found", "There is no /v1/responses here: m-2, x.m"])
async def test_a_path_that_an_engine_lacks_does_not_take_it_out(path, fed, message):
    """Clients choose the path: no request of theirs may end a model for everybody."""

    async def lacks(talk):
        if talk.request.path == "/v1/responses":
            await talk.write(json_answer(404, {"error": {"message": message}}))
        else:
            await talk.write(json_answer(200, {"model": "m"}))

    engine = await path.engine(lacks)
    fed.all(engine)
    await until_ready(path)
    answer = await path.ask({"model": "m", "input": "hi"}, path="/v1/responses", headers=HEADERS)
    assert (answer.status, answer.error["message"]) == (404, message)
    assert (await path.ask(headers=HEADERS)).status == 200


async def test_same_name_new_life(path, fed):
    """FR02: late ends of the old generation do not touch the new one."""
    go_on = asyncio.Event()

    async def behave(talk):
        await go_on.wait()
        await talk.write(json_answer(200, {"model": "m"}))

    engine = await path.engine(behave)
    fed.all(engine)
    await until_ready(path)
    old = [path.begin(FakeExchange(body=chat(), headers=HEADERS)) for _ in range(5)]
    await eventually(lambda: len(engine.requests) == 5)
    fed.endpoints(absences=[Absence("m", "loading")], version=2)
    await eventually(lambda: path.application._engines.place(("r1", 1)) is None)
    fed.endpoints(endpoint(engine, generation=2), version=3)
    place = await eventually(lambda: path.application._engines.place(("r1", 2)))
    new = [path.begin(FakeExchange(body=chat(), headers=HEADERS)) for _ in range(3)]
    await eventually(lambda: len(engine.requests) == 8)
    assert place.in_flight == 3
    go_on.set()
    await asyncio.gather(*old, *new)
    assert place.in_flight == 0
    places = path.application._engines.places
    await eventually(lambda: [each.key for each in places()] == [("r1", 2)])


async def test_an_endpoint_leaves_after_it_was_chosen(path, fed):
    """FR28: the request is chosen anew."""
    leaving, staying = await path.engine(), await path.engine()
    fed.catalog(ModelEntry("m"))
    first = Endpoint("r1", 1, "m", leaving.url, "sim", "m", slots=8, prefill_rate=1e6)
    second = Endpoint("r2", 2, "m", staying.url, "sim", "m", slots=8, prefill_rate=1.0)
    fed.endpoints(first, second)
    fed.access(KEY)
    await until_ready(path)
    gauge = ("circuit_open", ("r1",))
    path.application._set_gauges()
    assert gauge in path.metrics._gauges
    exchange = FakeExchange(body=chat(), headers=HEADERS)
    task = path.begin(exchange)
    place = path.application._engines.place(("r1", 1))
    await asyncio.sleep(0)
    assert place.in_flight == 1
    snapshots = path.application._feed._held
    without = EndpointsSnapshot(5, 2, [second], [])
    path.application.take_snapshots(Snapshots(snapshots["catalog"], without, snapshots["access"]))
    await task
    assert exchange.status == 200
    assert len(staying.requests) == 1
    path.application._set_gauges()
    assert gauge not in path.metrics._gauges
