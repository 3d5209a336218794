"""A connection without a socket: however its bytes are cut, the same requests are answered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from router.access_log import AccessLog
from router.body_errors import BodyTooLarge
from router.config import RouterConfig, worker_identity
from router.http1_connection import Http1Connection
from router.http1_front import Http1Front
from router.metrics import Metrics
from tests.router.conftest import eventually
from tests.router.front.fake_application import FakeApplication
from tests.router.front.running_router import head

REQUESTS = (
    head("POST", "/echo", "content-length: 3")
    + b"one"
    + head("GET", "/healthz")
    + b"\r\n"
    + head("POST", "/echo", "transfer-encoding: chunked")
    + b"3\r\ntwo\r\n2;a=b\r\n, \r\n5\r\nthree\r\n0\r\n\r\n"
    + head("POST", "/unread", "content-length: 4")
    + b"four"
    + head("POST", "/unread", "transfer-encoding: chunked")
    + b"4\r\nfive\r\n0\r\n\r\n"
    + head("POST", "/echo", "content-length: 3", "connection: close")
    + b"six"
    + head("GET", "/pid")
)
ANSWERS = [b"one", b"ok\n", b"two, three", b"unread", b"unread", b"six"]


class KeptTransport(asyncio.Transport):
    """Keeps what is written, as a transport that is always fast."""

    def __init__(self):
        super().__init__()
        self.writes: list[bytes] = []
        self.ended = False
        self.reading = True

    @property
    def written(self):
        return b"".join(self.writes)

    def get_extra_info(self, name, default=None):
        return ("127.0.0.1", 5) if name == "peername" else default

    def get_write_buffer_size(self):
        return 0

    def write(self, data):
        assert not self.ended
        self.writes.append(bytes(data))

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def write_eof(self):
        self.ended = True

    close = abort = write_eof


@pytest.fixture
async def front(tmp_path):
    config = RouterConfig(static_file="x", run_dir=str(tmp_path))
    metrics = Metrics()
    application = FakeApplication(config, worker_identity(0), metrics, AccessLog(None))
    made = Http1Front(config, application, metrics)
    made.loop = asyncio.get_running_loop()
    return made


async def answers(front, pieces):
    """Bodies of all answers to what is written piece by piece."""
    transport = KeptTransport()
    connection = Http1Connection(front)
    connection.connection_made(transport)
    for piece in pieces:
        connection.data_received(piece)
        if len(pieces) < 5:
            await asyncio.sleep(0)
    for _ in range(200):
        if transport.ended:
            break
        await asyncio.sleep(0)
    connection.connection_lost(None)
    found = []
    rest = transport.written
    while rest:
        lines, _, rest = rest.partition(b"\r\n\r\n")
        length = int(lines.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        found.append(rest[:length])
        rest = rest[length:]
    assert transport.reading
    assert transport.ended
    assert front.bodies_held == 0
    assert not front.reading
    return found


async def test_every_cut_in_two(front):
    for at in range(1, len(REQUESTS)):
        assert await answers(front, [REQUESTS[:at], REQUESTS[at:]]) == ANSWERS


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40, 1000])
async def test_pieces_of_one_size(front, size):
    pieces = [REQUESTS[at : at + size] for at in range(0, len(REQUESTS), size)]
    assert await answers(front, pieces) == ANSWERS


async def test_a_client_that_leaves_anywhere_leaves_nothing(front):
    for at in range(1, len(REQUESTS)):
        connection = Http1Connection(front)
        connection.connection_made(KeptTransport())
        connection.data_received(REQUESTS[:at])
        await asyncio.sleep(0)
        connection.connection_lost(None)
        for _ in range(20):
            await asyncio.sleep(0)
        assert front.bodies_held == 0
        assert not front.reading
        assert not front._connections
        assert not front.application.running


async def test_chunks_of_one_turn_are_written_together_and_the_first_at_once(front):
    transport = KeptTransport()
    writes = transport.writes
    connection = Http1Connection(front)
    connection.connection_made(transport)
    connection.data_received(head("GET", "/stream"))
    await asyncio.sleep(0)
    assert [each.partition(b"\r\n\r\n")[2] for each in writes] == [b"4\r\none \r\n"]
    await asyncio.sleep(0)
    assert writes[1:] == [b"4\r\ntwo \r\n1\r\n.\r\n"]
    front.application.release.set()
    await eventually(lambda: not front.application.running)
    assert transport.written.endswith(b"6\r\n three\r\n0\r\n\r\n")
    connection.connection_lost(None)


async def test_a_head_does_not_wait_for_a_chunk_that_does_not_come(front):
    transport = KeptTransport()
    connection = Http1Connection(front)
    connection.connection_made(transport)
    begun: list[Any] = []
    front.application.begin = begun.append
    connection.data_received(head("GET", "/x"))
    begun[0].start(200, [])
    assert transport.written == b""
    await asyncio.sleep(0)
    assert transport.written.endswith(b"\r\ntransfer-encoding: chunked\r\n\r\n")
    connection.connection_lost(None)
    assert not begun[0].send(b"x")
    begun[0].end()


@pytest.mark.parametrize(
    ("framing", "first", "rest"),
    [
        ("content-length: 3", b"a", b"bc"),
        ("transfer-encoding: chunked", b"3\r\na", b"bc\r\n0\r\n\r\n"),
    ],
)
async def test_a_body_that_is_whole_stays_whole_when_its_client_leaves(front, framing, first, rest):
    bodies = []

    async def read(exchange):
        bodies.append(await exchange.read_body(100))
        exchange.respond(499, [], b"")

    front.application.begin = read
    connection = Http1Connection(front)
    connection.connection_made(KeptTransport())
    connection.data_received(head("POST", "/x", framing) + first)
    await asyncio.sleep(0)
    connection.data_received(rest)
    connection.connection_lost(None)
    await eventually(lambda: bodies)
    assert bodies == [b"abc"]
    assert front.bodies_held == 0


@pytest.mark.parametrize(
    "request_",
    [
        head("POST", "/x", "content-length: 3") + b"abc",
        head("POST", "/x", "transfer-encoding: chunked") + b"3\r\nabc\r\n0\r\n\r\n",
    ],
)
async def test_a_body_is_held_once_however_often_it_is_asked_for(front, request_):
    begun: list[Any] = []
    front.application.begin = begun.append
    connection = Http1Connection(front)
    connection.connection_made(KeptTransport())
    connection.data_received(request_)
    (exchange,) = begun
    assert exchange.whole_body() == exchange.whole_body() == b"abc"
    assert await exchange.read_body(3) == b"abc"
    assert front.bodies_held == 3
    with pytest.raises(BodyTooLarge):
        await exchange.read_body(2)
    exchange.respond(413, [], b"")
    assert front.bodies_held == 0
    connection.connection_lost(None)


@pytest.mark.parametrize(
    ("request_", "rest"),
    [
        (head("POST", "/x", "content-length: 3") + b"abc", b""),
        (head("POST", "/x", "content-length: 3") + b"a", b"bc"),
        (head("POST", "/x", "transfer-encoding: chunked") + b"3\r\nabc", b"\r\n0\r\n\r\n"),
    ],
)
async def test_a_stream_does_not_hold_its_requests_body(front, request_, rest):
    begun: list[Any] = []
    front.application.begin = begun.append
    connection = Http1Connection(front)
    transport = KeptTransport()
    connection.connection_made(transport)
    connection.data_received(request_)
    (exchange,) = begun
    exchange.whole_body()
    exchange.start(200, [])
    assert (front.bodies_held, exchange.body, exchange.collected) == (0, None, b"")
    connection.data_received(rest + head("GET", "/pid"))
    exchange.send(b"one")
    exchange.end()
    await asyncio.sleep(0)
    assert transport.written.endswith(b"3\r\none\r\n0\r\n\r\n")
    assert len(begun) == 2
    assert (front.bodies_held, exchange.collected) == (0, b"")
    connection.connection_lost(None)


async def test_a_mistake_in_a_sweep_does_not_end_the_sweeps(front, monkeypatch):
    calls = []

    def mistaken(now):
        calls.append(now)
        raise RuntimeError("a mistake")

    monkeypatch.setattr(front, "sweep", mistaken)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: None)
    front.begin_sweeps(loop)
    await eventually(lambda: len(calls) > 2)
    loop.set_exception_handler(None)
