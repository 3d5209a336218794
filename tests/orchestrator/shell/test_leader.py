from __future__ import annotations

import asyncio
import logging
import time

import msgspec
import pytest

from orchestrator.config import Times
from orchestrator.leader import Leadership
from orchestrator.shell_errors import LeaseLost
from orchestrator.store import Store, Taken, connect
from orchestrator.store_health import StoreHealth
from tests.fakes.local_orchestrator import until
from tests.fakes.redis_server import RedisServer

QUICK = Times(lease=1.0, renewal=0.2, campaign=0.05, retry_first=0.02, retry_last=0.1)


def leadership(store: Store, name: str, times: Times = QUICK) -> Leadership:
    return Leadership(store, name, StoreHealth(time.monotonic), times, time.monotonic)


async def test_one_campaigner_leads_and_the_other_sees_it(store: Store) -> None:
    first, second = leadership(store, "one"), leadership(store, "two")
    lease = await first.campaign()
    waiting = asyncio.ensure_future(second.campaign())
    await until("the other is seen", lambda: second.seen_leader)
    assert second.seen_leader is not None
    assert second.seen_leader.instance == "one"
    assert not waiting.done()
    await first.give_back(lease)
    assert (await waiting).epoch > lease.epoch


async def test_a_lease_that_is_kept_outlives_its_time(store: Store) -> None:
    first = leadership(store, "one")
    lease = await first.campaign()
    keeping = asyncio.ensure_future(first.keep(lease))
    await asyncio.sleep(2 * QUICK.lease)
    assert not isinstance(await store.take_over("two", 1000, 0), Taken)
    keeping.cancel()


async def test_a_lease_that_was_taken_by_another_is_lost(store: Store) -> None:
    first = leadership(store, "one")
    lease = await first.campaign()
    await store.resign("one", lease.epoch)
    taken = await store.take_over("two", 10_000, 0)
    assert isinstance(taken, Taken)
    with pytest.raises(LeaseLost, match="two leads"):
        await first.keep(lease)
    assert first.floor == taken.epoch


async def test_while_the_store_is_away_the_lease_lasts_its_time_and_no_longer(
    store: Store, redis_server: RedisServer
) -> None:
    first = leadership(store, "one")
    lease = await first.campaign()
    redis_server.kill()
    with pytest.raises(LeaseLost, match="away"):
        await first.keep(lease)


async def test_campaigning_waits_for_a_store_that_is_not_there_yet(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    redis_server.kill()
    store = Store(connect(redis_server.url), "default")
    caplog.set_level(logging.WARNING, "llmgw.orchestrator")
    waiting = asyncio.ensure_future(leadership(store, "one").campaign())
    await asyncio.sleep(0.5)
    assert not waiting.done()
    redis_server.start()
    assert (await waiting).epoch > 0
    words = [record.message for record in caplog.records]
    assert len([word for word in words if "is away" in word]) == 1
    assert len([word for word in words if "answers again" in word]) == 1
    await store.close()


async def test_the_epoch_is_above_the_floor(store: Store) -> None:
    first = leadership(store, "one")
    first.raise_floor(10**15)
    assert (await first.campaign()).epoch == 10**15 + 1


async def test_the_stores_clock_is_known_while_leading(store: Store) -> None:
    first = leadership(store, "one", msgspec.structs.replace(QUICK, lease=10.0))
    lease = await first.campaign()
    assert abs(first.now_ms() - (await store.read_all()).now_ms) < 1000
    await first.give_back(lease)
    with pytest.raises(LeaseLost):
        first.now_ms()
