"""The pool by itself, on real sockets."""

from __future__ import annotations

import asyncio

import pytest

from router.upstream import IDLE_KEPT, EnginePool, Fault, keep_alive_seconds
from tests.router.conftest import eventually
from tests.router.fake_engine import FakeEngine, answer_chat, json_answer

BODY = b'{"model":"m"}'
HEAD = b"POST /v1/x HTTP/1.1\r\nhost: e\r\ncontent-length: %d\r\n\r\n"


class Listening:
    """A receiver that notes everything."""

    def __init__(self, body=BODY):
        self.body = body
        self.connection = None
        self.status = 0
        self.headers = []
        self.answer = b""
        self.fault = None
        self.untouched = None
        self.ended = asyncio.Event()

    def ask(self, pool):
        connection = pool.take()
        if connection is None:
            pool.connect(self)
        else:
            self.on_connected(connection)

    def on_connected(self, connection):
        self.connection = connection
        connection.send(HEAD % len(self.body), self.body, self)

    def on_head(self, status, headers):
        self.status, self.headers = status, headers

    def on_body(self, data):
        self.answer += data

    def on_answer(self, answer):
        self.status, (_, _, self.answer) = 200, answer
        self.ended.set()

    def on_whole(self):
        self.ended.set()

    def on_fault(self, fault, *, untouched):
        self.fault, self.untouched = fault, untouched
        self.ended.set()


@pytest.fixture
async def engine():
    started = await FakeEngine().start()
    try:
        yield started
    finally:
        await started.stop()


@pytest.fixture
async def pool(engine):
    made = EnginePool(engine.url, asyncio.get_running_loop())
    try:
        yield made
    finally:
        made.close(busy=True)
        await eventually(lambda: made.connections == 0)


async def ask(pool, **options):
    receiver = Listening(**options)
    receiver.ask(pool)
    await asyncio.wait_for(receiver.ended.wait(), 20)
    return receiver


async def test_one_after_the_other_on_one_connection(pool, engine):
    first, second = await ask(pool), await ask(pool)
    assert (first.status, second.status) == (200, 200)
    assert first.connection is second.connection
    assert (pool.connections, pool.idle) == (1, 1)


async def test_large_bodies_arrive(pool, engine):
    big = b'{"model":"' + b"x" * 3_000_000 + b'"}'
    await ask(pool, body=big)
    assert engine.requests[0].body == big


async def test_idle_ones_are_bounded_and_the_newest_is_taken(pool, engine):
    gate = asyncio.Event()

    async def behave(talk):
        await gate.wait()
        await answer_chat(talk)

    engine.behave = behave
    receivers = [Listening() for _ in range(IDLE_KEPT + 5)]
    for receiver in receivers:
        receiver.ask(pool)
    await eventually(lambda: len(engine.requests) == len(receivers))
    gate.set()
    await asyncio.gather(*(receiver.ended.wait() for receiver in receivers))
    assert pool.idle == IDLE_KEPT
    await eventually(lambda: pool.connections == IDLE_KEPT)
    newest = pool._idle[-1]
    assert pool.take() is newest
    newest.abort()


async def test_what_idled_too_long_is_not_used(pool, engine):
    first = await ask(pool)
    first.connection.stale_at = 0.0
    second = await ask(pool)
    assert second.connection is not first.connection
    second.connection.stale_at = 0.0
    pool.sweep()
    assert pool.idle == 0


async def test_an_idle_connection_that_the_engine_closes_is_forgotten(pool, engine):
    async def behave(talk):
        await answer_chat(talk)
        talk.close()

    engine.behave = behave
    await ask(pool)
    await eventually(lambda: pool.connections == 0)
    assert pool.idle == 0


async def test_an_engine_that_talks_out_of_turn_is_not_used_again(pool, engine):
    async def behave(talk):
        await talk.write(json_answer(200, {}))
        await asyncio.sleep(0.05)
        await talk.write(json_answer(408, {}))

    engine.behave = behave
    await ask(pool)
    await eventually(lambda: pool.connections == 0)


async def test_two_answers_to_one_request(pool, engine):
    async def behave(talk):
        await talk.write(json_answer(200, {}) + json_answer(200, {}))

    engine.behave = behave
    receiver = await ask(pool)
    assert receiver.fault is Fault.GARBLED
    assert pool.idle == 0


async def test_interim_answers_are_passed_over(pool, engine):
    async def behave(talk):
        await talk.write(b"HTTP/1.1 100 Continue\r\n\r\n" + json_answer(200, {"a": 1}))

    engine.behave = behave
    receiver = await ask(pool)
    assert (receiver.status, receiver.answer) == (200, b'{"a":1}'.replace(b":", b": "))


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (b"", Fault.RESET),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", Fault.SHORT),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n", Fault.SHORT),
        (b"no http at all\r\n\r\n", Fault.GARBLED),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000 + b"\r\n\r\n", Fault.GARBLED),
    ],
)
async def test_faults(pool, engine, sent, fault):
    async def behave(talk):
        if sent:
            await talk.write(sent)
        talk.close()

    engine.behave = behave
    receiver = await ask(pool)
    assert (receiver.fault, receiver.untouched) == (fault, False)
    assert pool.idle == 0


async def test_only_a_reused_connection_can_be_untouched(pool, engine):
    await ask(pool)

    async def behave(talk):
        talk.reset()

    engine.behave = behave
    receiver = await ask(pool)
    assert (receiver.fault, receiver.untouched) == (Fault.RESET, True)


async def test_a_mistake_of_the_receiver_is_reported_and_ends_the_request(pool, engine):
    class Wrong(Listening):
        def on_body(self, data):
            raise RuntimeError("mistake")

    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: reported.append(told))
    receiver = Wrong()
    receiver.ask(pool)
    await asyncio.wait_for(receiver.ended.wait(), 20)
    assert receiver.fault is Fault.GARBLED
    await eventually(lambda: reported)


async def test_nobody_listens(pool, engine):
    engine.stop_listening()
    assert (await ask(pool)).fault is Fault.REFUSED


async def test_aborting_tells_nobody(pool, engine):
    async def behave(talk):
        await asyncio.sleep(3600)

    engine.behave = behave
    receiver = Listening()
    receiver.ask(pool)
    await engine.arrived.wait()
    receiver.connection.abort()
    await engine.closed.wait()
    assert not receiver.ended.is_set()
    assert pool.connections == 0


async def test_closing_keeps_what_runs(pool, engine):
    gate = asyncio.Event()

    async def behave(talk):
        await gate.wait()
        await answer_chat(talk)

    engine.behave = behave
    receiver = Listening()
    receiver.ask(pool)
    await engine.arrived.wait()
    pool.close()
    gate.set()
    await receiver.ended.wait()
    assert receiver.status == 200
    assert pool.idle == 0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(b"timeout=5", 4.0), (b"max=3, Timeout=2", 1.0), (b"timeout=0", 0.0), (b"max=3", 4.0), (b"", 4.0)],
)  # fmt: skip
def test_how_long_an_engine_keeps_a_connection(value, seconds):
    assert keep_alive_seconds(value) == seconds


@pytest.mark.parametrize("url", ["https://e:1", "unix:/x", "e:1"])
def test_other_urls_are_refused(url):
    with pytest.raises(ValueError, match="http://HOST:PORT"):
        EnginePool(url, None)
