from __future__ import annotations

import asyncio
import time

import pytest

from orchestrator.shell_errors import Stale, StoreAway
from orchestrator.store import Led, SnapshotWrite, Store, Taken, connect
from orchestrator.wire.codec import encode
from orchestrator.wire.presence import Presence
from orchestrator.wire.reports import Hello, Inventory
from tests.fakes.local_orchestrator import until
from tests.fakes.redis_server import RedisServer


async def taken(store: Store, instance: str = "one", floor: int = 0) -> int:
    answer = await store.take_over(instance, 10_000, floor)
    assert isinstance(answer, Taken)
    return answer.epoch


def snapshot(version: int, payload: bytes = b"payload") -> SnapshotWrite:
    return SnapshotWrite("catalog", version, payload, b"notice")


async def test_the_lease_is_taken_once_and_its_holder_is_named(store: Store) -> None:
    epoch = await taken(store)
    other = await store.take_over("two", 10_000, 0)
    assert other == Led(f"one/{epoch}")
    assert isinstance(other, Led)
    assert (other.instance, other.epoch) == ("one", epoch)


async def test_an_epoch_is_above_the_stored_one_the_clock_and_the_floor(store: Store) -> None:
    first = await taken(store)
    assert first >= int(time.time() * 1000) - 60_000
    await store.resign("one", first)
    assert await taken(store, floor=first + 10**9) == first + 10**9 + 1


async def test_only_the_holder_of_this_very_epoch_renews(store: Store) -> None:
    epoch = await taken(store)
    assert isinstance(await store.renew("one", epoch, 10_000), int)
    assert isinstance(await store.renew("one", epoch - 1, 10_000), Led)
    await store.resign("one", epoch)
    assert await store.renew("one", epoch, 10_000) == Led("")


async def test_resigning_leaves_anothers_lease(store: Store) -> None:
    epoch = await taken(store)
    await store.resign("two", epoch)
    assert isinstance(await store.take_over("two", 10_000, 0), Led)


async def test_a_fenced_write_is_all_or_nothing(store: Store, redis_server: RedisServer) -> None:
    epoch = await taken(store)
    commands = [["HSET", store.keys.replicas, "a", "1"], ["HSET", store.keys.models, "m", "2"]]
    assert await store.fenced(epoch, commands) == [1, 1]
    with pytest.raises(Stale) as refused:
        await store.fenced(epoch - 1, [["HDEL", store.keys.replicas, "a"]])
    assert refused.value.stored == epoch
    with redis_server.client() as client:
        assert client.hgetall(store.keys.replicas) == {b"a": b"1"}


async def test_after_the_store_was_emptied_a_write_is_stale_with_no_epoch(
    store: Store, redis_server: RedisServer
) -> None:
    epoch = await taken(store)
    redis_server.flush()
    with pytest.raises(Stale) as refused:
        await store.fenced(epoch, [["INCR", store.keys.doc_version]])
    assert refused.value.stored is None
    assert await taken(store, floor=epoch) > epoch


async def test_a_snapshot_is_written_only_above_the_one_that_is_there(
    store: Store, redis_server: RedisServer
) -> None:
    epoch = await taken(store)
    assert await store.fenced(epoch, [], snapshot(2, b"new")) == [1]
    assert await store.fenced(epoch, [], snapshot(2, b"same")) == [0]
    assert await store.fenced(epoch, [], snapshot(1, b"old")) == [0]
    assert await store.read_snapshot("catalog") == b"new"
    with redis_server.client() as client:
        assert client.hgetall(store.keys.versions) == {b"catalog": f"{epoch} 2".encode()}


async def test_read_all_is_what_was_written(store: Store, redis_server: RedisServer) -> None:
    epoch = await taken(store)
    await store.fenced(
        epoch,
        [
            ["HSET", store.keys.replicas, "r", "{}"],
            *store.document_write("keys", {"d": "{}"}),
            *store.document_write("nodes", {"n1": "{}"}),
            store.report_entry(b"anything"),
        ],
    )
    hello = Hello("n1", "s", "id", 1, Inventory("127.0.0.1"), "0")
    with redis_server.client() as client:
        client.hset(store.keys.nodes, mapping={"n1": encode(hello), "n2": b"\xff"})
    stored = await store.read_all()
    assert stored.epoch == epoch
    assert stored.leader == f"one/{epoch}"
    assert stored.doc_version == 2
    assert stored.documents["keys"] == {"d": "{}"}
    assert stored.documents["nodes"] == {"n1": "{}"}
    assert stored.replicas == {"r": "{}"}
    assert stored.hellos == {"n1": hello}
    assert stored.reports_end != "0-0"


async def test_reports_are_read_from_the_end_that_was_noted(store: Store) -> None:
    epoch = await taken(store)
    await store.fenced(epoch, [store.report_entry(b"before")])
    end = (await store.read_all()).reports_end
    assert await store.read_reports(end, 1) == []
    await store.fenced(epoch, [store.report_entry(b"one"), store.report_entry(b"two")])
    read = await store.read_reports(end, 1000)
    assert [message for _, message in read] == [b"one", b"two"]


async def test_presences_of_live_workers_only(store: Store, redis_server: RedisServer) -> None:
    presence = Presence("w1", "host", {}, False, [], [], {}, [], {}, "0")
    now = int(time.time() * 1000)
    with redis_server.client() as client:
        client.zadd(
            store.keys.routers, {"w1": now + 60_000, "w2": now + 60_000, "gone": now - 1000}
        )
        client.set(store.keys.router("w1"), encode(presence))
        client.set(store.keys.router("gone"), encode(presence))
    assert await store.read_presences() == ([presence], 1)


async def test_events_come_oldest_first_and_after_an_id(store: Store) -> None:
    epoch = await taken(store)
    texts = [f'{{"what": "{number}"}}' for number in range(5)]
    ids = await store.fenced(epoch, [store.event_entry(text) for text in texts])
    events = await store.read_events("", 3)
    assert [event.fields["what"] for event in events] == ["2", "3", "4"]
    after = await store.read_events(ids[3].decode(), 100)
    assert [event.fields["what"] for event in after] == ["4"]


async def test_a_store_that_nobody_answers_for_is_away_and_nothing_was_written() -> None:
    store = Store(connect("redis://127.0.0.1:1/0"), "default")
    with pytest.raises(StoreAway) as away:
        await store.fenced(1, [["INCR", store.keys.doc_version]])
    assert not away.value.unsure


async def test_a_store_that_died_comes_back_for_the_same_client(
    store: Store, redis_server: RedisServer
) -> None:
    epoch = await taken(store)
    await store.fenced(epoch, store.document_write("keys", {"d": "{}"}))
    redis_server.kill()
    with pytest.raises(StoreAway):
        await store.read_all()
    redis_server.start()
    assert (await store.read_all()).doc_version == 1


async def test_a_wrong_password_is_away_and_says_so(redis_server: RedisServer) -> None:
    store = Store(connect(f"redis://:wrong@127.0.0.1:{redis_server.port}/0"), "default")
    with pytest.raises(StoreAway, match=r"(?i)password"):
        await store.read_all()
    await store.close()


async def test_the_feed_is_heard(store: Store, redis_server: RedisServer) -> None:
    messages = store.listen()
    heard = anext(messages)

    waiting = asyncio.ensure_future(heard)
    with redis_server.client() as client:
        await until("somebody listens", lambda: client.publish(store.keys.feed, b"hello"))
    assert await waiting == b"hello"
    await messages.aclose()
