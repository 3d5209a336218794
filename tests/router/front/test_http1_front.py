"""Our own front in HTTP/1.1: what a client may do to a connection, and what it is told.

In this process, so that limits can be made short, and on the loop that the workers have.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct

import pytest

from router import http1_connection, http1_front
from router.access_log import AccessLog
from router.config import RouterConfig, worker_identity
from router.http1_front import Http1Front
from router.listeners import bound_listener
from router.metrics import Metrics
from tests.router.conftest import eventually
from tests.router.front.fake_application import TEXT, FakeApplication
from tests.router.front.running_router import head

MIB = 1024 * 1024
CHUNKED = "transfer-encoding: chunked"
PID = head("GET", "/pid")


class Served:
    """A front in this process and connections to it."""

    def __init__(self, tmp_path):
        self.config = RouterConfig(static_file="x", run_dir=str(tmp_path), body_cap=4 * MIB)
        metrics = Metrics()
        self.application = FakeApplication(
            self.config, worker_identity(0), metrics, AccessLog(None)
        )
        self.front = Http1Front(self.config, self.application, metrics)
        self.listener = bound_listener("127.0.0.1", 0)
        self.port = self.listener.getsockname()[1]
        self._writers = []

    async def connect(self, data=b""):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=8 * MIB)
        self._writers.append(writer)
        writer.write(data)
        return Client(reader, writer)

    async def ask(self, data):
        """All that comes back until the connection ends."""
        client = await self.connect(data)
        return await client.rest()

    def close(self):
        for writer in self._writers:
            writer.transport.abort()
        self.front.close()


class Client:
    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    async def rest(self):
        return await self.reader.read()

    async def answer(self):
        """Status, headers and body of the next answer."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:-2])
        status = int(lines[0].split()[1])
        return status, headers, await self.reader.readexactly(int(headers["content-length"]))


@pytest.fixture
async def served(tmp_path):
    running = Served(tmp_path)
    await running.front.open(running.listener)
    try:
        async with asyncio.timeout(20):
            yield running
    finally:
        running.close()
        await asyncio.wait_for(running.front._ended, 20)


def short(monkeypatch, name, seconds):
    monkeypatch.setattr(http1_connection, name, seconds)
    monkeypatch.setattr(http1_front, "CONNECTIONS_EVERY_S", 0.05)


# Requests in a row


async def test_requests_in_one_write_are_answered_in_order(served):
    client = await served.connect(
        head("POST", "/echo", "content-length: 3")
        + b"one"
        + head("POST", "/at_once", "content-length: 3")
        + b"two\r\n"
        + head("POST", "/echo", CHUNKED)
        + b"5\r\nthree\r\n0\r\n\r\n"
        + head("GET", "/healthz")
        + head("GET", "/head/last")
    )
    bodies = [(await client.answer())[2] for _ in range(5)]
    assert bodies[:4] == [b"one", b"two", b"three", b"ok\n"]
    assert b'"/head/last"' in bodies[4]


async def test_a_request_waits_for_the_answer_before_it(served):
    client = await served.connect(head("GET", "/ended"))
    assert (await client.reader.readuntil(b"0\r\n\r\n")).endswith(b"\r\n\r\n3\r\nall\r\n0\r\n\r\n")
    client.writer.write(head("GET", "/stream") + PID)
    await client.reader.readuntil(b"two ")
    assert len(served.application.running) == 2
    served.application.release.set()
    stream = await client.reader.readuntil(b"0\r\n\r\n")
    assert b" three" in stream
    assert b"HTTP/1.1" not in stream
    assert (await client.answer())[0] == 200


async def test_many_small_requests_in_one_write(served):
    client = await served.connect(5000 * head("GET", "/healthz"))
    for _ in range(5000):
        assert (await client.answer())[2] == b"ok\n"


async def test_what_comes_too_early_is_bounded(served):
    client = await served.connect(head("GET", "/stream"))
    await client.reader.readuntil(b"one")
    connection = next(iter(served.front._connections))
    client.writer.write(PID + head("POST", "/size", f"content-length: {3 * MIB}") + bytes(3 * MIB))
    await eventually(lambda: not connection._transport.is_reading())
    assert len(connection._buffer) < MIB
    served.application.release.set()
    await client.reader.readuntil(b"0\r\n\r\n")
    assert (await client.answer())[0] == 200
    assert (await client.answer())[2] == b"%d" % (3 * MIB)


async def test_a_head_byte_by_byte(served):
    client = await served.connect()
    for each in b"\r\n\r\n" + head("POST", "/echo", "content-length: 2") + b"ab":
        client.writer.write(bytes([each]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert (await client.answer())[2] == b"ab"


# Bodies


async def test_a_body_that_came_with_its_head_is_there_at_once(served):
    client = await served.connect(head("POST", "/at_once", "content-length: 3") + b"abc")
    assert (await client.answer())[2] == b"abc"
    client.writer.write(head("POST", "/at_once"))
    assert (await client.answer())[2] == b""
    client.writer.write(head("POST", "/at_once", "content-length: 3") + b"ab")
    assert (await client.answer())[2] == b"it is not here"
    client.writer.write(b"c" + head("POST", "/at_once", f"content-length: {5 * MIB}"))
    client.writer.write(bytes(5 * MIB) + PID)
    assert (await client.answer())[2] == b"it is not here"
    assert (await client.answer())[0] == 200


async def test_bodies_held_are_counted_until_the_answer(served):
    served.application.release.clear()
    client = await served.connect(head("POST", "/at_once", "content-length: 3") + b"abc")
    await client.answer()
    assert served.front.bodies_held == 0
    served.front.bodies_held = served.config.bodies_held_cap - 2
    for path, answer in (("/at_once", b"it is not here"), ("/echo", b"BodiesHeld")):
        client.writer.write(head("POST", path, "content-length: 3") + b"abc")
        assert (await client.answer())[2] == answer
    client.writer.write(head("POST", "/echo", CHUNKED) + b"3\r\nabc\r\n0\r\n\r\n")
    assert (await client.answer())[2] == b"BodiesHeld"
    served.front.bodies_held -= served.config.bodies_held_cap - 2
    assert served.front.bodies_held == 0


async def test_the_client_is_asked_to_go_on(served):
    begin = head("POST", "/echo", "content-length: 3", "Expect: 100-Continue")
    client = await served.connect(begin)
    assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.writer.write(b"abc")
    status, headers, body = await client.answer()
    assert (status, body) == (200, b"abc")
    assert "connection" not in headers
    # Nothing is asked of a client that did not wait.
    client.writer.write(begin + b"abc")
    assert (await client.answer())[2] == b"abc"


async def test_a_client_that_waits_to_go_on_gets_a_last_answer(served):
    for lines in (["/unread", "content-length: 3"], ["/echo", f"content-length: {5 * MIB}"]):
        path, length = lines
        answer = await served.ask(head("POST", path, length, "expect: 100-continue"))
        assert b"connection: close\r\n" in answer
        assert b"100 Continue" not in answer


async def test_an_unread_body_is_thrown_away_and_the_connection_goes_on(served):
    client = await served.connect(head("POST", "/unread", f"content-length: {3 * MIB}"))
    assert (await client.answer())[0] == 401
    client.writer.write(bytes(3 * MIB) + PID)
    assert (await client.answer())[0] == 200


async def test_a_body_that_does_not_end_after_its_answer_ends_the_connection(served, monkeypatch):
    short(monkeypatch, "DISCARD_S", 0.1)
    assert (await served.ask(head("POST", "/unread", "content-length: 3"))).endswith(b"unread")


async def test_too_much_after_an_answer_ends_the_connection(served, monkeypatch):
    monkeypatch.setattr(http1_connection, "DISCARD_BYTES", MIB)
    client = await served.connect(head("POST", "/unread", f"content-length: {300 * MIB}"))
    assert (await client.answer())[0] == 401
    client.writer.write(bytes(2 * MIB))
    await eventually(lambda: not served.front._connections)


# What is refused


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (head("POST", "/echo", "content-length: 3", CHUNKED) + b"0\r\n\r\n", 400),
        (head("GET", "/pid", "a: " + 70_000 * "a"), 431),
        (b"GET /" + 70_000 * b"a", 431),
        (b"CONNECT h:1 HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
    ],
)
async def test_what_is_not_understood_is_answered_once_and_ends_the_connection(
    served, data, status
):
    answer = await served.ask(data + PID)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"\r\nconnection: close\r\n" in answer
    assert answer.count(b"\r\ndate: ") == 1
    assert served.application.running == set()
    head, _, body = answer.partition(b"\r\n\r\n")
    error = json.loads(body)["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, None)
    request_id = head.partition(b"x-request-id: ")[2].split(b"\r\n")[0].decode()
    assert f"(request id {request_id})" in error["message"]
    assert (b"\r\nx-should-retry: false" in head) == (status > 500)


async def test_after_broken_chunks_nothing_is_a_request(served):
    for path in ("/echo", "/unread"):
        answer = await served.ask(head("POST", path, CHUNKED) + b"3\r\nabc\r\nzz\r\n" + PID)
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b"connection: close\r\n" in answer


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
async def test_an_upgrade_is_not_made(served, protocol):
    lines = ["connection: Upgrade", f"upgrade: {protocol}", "content-length: 3"]
    answer = await served.ask(head("POST", "/echo", *lines) + b"abc" + PID)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nconnection: close\r\n" in answer
    assert answer.endswith(b"\r\n\r\nabc")


async def test_a_client_that_writes_on_reads_its_refusal(served):
    client = await served.connect(b"nonsense\r\n\r\n")
    await client.reader.readuntil(b"400")
    for _ in range(50):
        client.writer.write(bytes(MIB // 10))
        await client.writer.drain()
    assert (await client.rest()).endswith(b"}}")


async def test_connections_above_the_cap_are_refused(served, monkeypatch):
    monkeypatch.setattr(http1_front, "CONNECTIONS_CAP", 2)
    monkeypatch.setattr(http1_front, "REFUSED_AT_ONCE", 1)
    first = await served.connect(PID)
    await first.answer()
    second = await served.connect(PID)
    await second.answer()
    third = await served.connect()
    status, headers, body = await third.answer()
    assert (status, headers["retry-after"]) == (503, "1")
    assert json.loads(body)["error"]["code"] == "server_is_overloaded"
    fourth = await served.connect()
    assert await fourth.rest() == b""
    for each in (third, fourth):
        each.writer.transport.abort()
    await eventually(lambda: len(served.front._connections) == 2)
    first.writer.transport.abort()
    await eventually(lambda: len(served.front._connections) == 1)
    assert (await (await served.connect(PID)).answer())[0] == 200


# Limits of time


async def test_a_head_that_does_not_come(served, monkeypatch):
    short(monkeypatch, "HEAD_TIME_S", 0.1)
    answer = await served.ask(b"GET / HTTP/1.1\r\nhost: ")
    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_an_idle_connection_is_closed_without_a_word(served, monkeypatch):
    short(monkeypatch, "KEEP_ALIVE_S", 0.1)
    assert await served.ask(b"") == b""
    client = await served.connect(PID)
    await client.answer()
    assert await client.rest() == b""


async def test_a_client_that_takes_nothing_is_given_up(served, monkeypatch):
    short(monkeypatch, "KEEP_ALIVE_S", 0.1)
    served.front.own["/large"] = lambda method: (200, TEXT, bytes(64 * MIB))
    client = await served.connect()
    client.writer.transport.pause_reading()
    client.writer.write(head("GET", "/large"))
    await eventually(lambda: not served.front._connections)


async def test_a_client_that_takes_slowly_is_not_given_up(served, monkeypatch):
    short(monkeypatch, "KEEP_ALIVE_S", 0.3)
    served.front.own["/large"] = lambda method: (200, TEXT, bytes(16 * MIB))
    client = await served.connect(head("GET", "/large"))
    await client.reader.readuntil(b"\r\n\r\n")
    left = 16 * MIB
    while left:
        piece = await client.reader.readexactly(MIB)
        left -= len(piece)
        await asyncio.sleep(0.05)


# HTTP/1.0


def old(method, path, *lines):
    return head(method, path, *lines).replace(b"HTTP/1.1", b"HTTP/1.0")


async def test_old_clients_get_an_end_of_the_connection(served):
    answer = await served.ask(old("POST", "/echo", "content-length: 3") + b"abc")
    assert b"connection: close\r\n" in answer
    assert b"content-length: 3\r\n" in answer
    assert answer.endswith(b"\r\n\r\nabc")


async def test_old_clients_may_keep_the_connection(served):
    client = await served.connect(old("GET", "/pid", "connection: keep-alive"))
    status, headers, _ = await client.answer()
    assert (status, headers["connection"]) == (200, "keep-alive")
    client.writer.write(old("GET", "/pid"))
    assert b"connection: close" in await client.rest()


async def test_streams_for_old_clients_have_no_chunks(served):
    served.application.release.set()
    answer = await served.ask(old("GET", "/stream", "connection: keep-alive"))
    assert b"connection: close\r\n" in answer
    assert b"transfer-encoding" not in answer
    assert answer.endswith(b"\r\n\r\none two  three")


async def test_a_stream_that_is_cut_is_reset_for_old_clients(served):
    def exchange():
        with socket.create_connection(("127.0.0.1", served.port), timeout=20) as client:
            client.sendall(old("GET", "/cut/3"))
            data = b""
            try:
                while piece := client.recv(65536):
                    data += piece
            except ConnectionResetError:
                return data, "reset"
            return data, "closed"

    data, ending = await asyncio.to_thread(exchange)
    assert data.endswith(b"data: 2\n\ndata: error\n\n")
    assert ending == "reset"


# Answers


async def test_no_value_of_a_header_makes_a_line(served):
    client = await served.connect(head("GET", "/headers"))
    _, headers, _ = await client.answer()
    assert headers["x-bad"] == "a  x-evil: b  "
    assert headers["x-good"] == "é"
    assert "x-evil" not in headers
    assert headers["date"].endswith(" GMT")


async def test_a_stream_for_head_has_no_body(served):
    served.application.release.set()
    client = await served.connect(head("HEAD", "/stream") + PID)
    first = await client.reader.readuntil(b"\r\n\r\n")
    assert b"transfer-encoding" not in first
    assert (await client.answer())[0] == 200


async def test_a_client_that_resets_is_noticed_before_and_after_the_first_byte(served):
    for path, note in (("/wait", "gone"), ("/stream", "stream gone")):
        client = await served.connect(head("GET", path))
        await eventually(lambda: served.application.running)
        linger = struct.pack("ii", 1, 0)
        client.writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, linger
        )
        client.writer.close()
        await eventually(lambda note=note: note in served.application.notes)
        await eventually(lambda: not served.application.running)


async def test_the_end_closes_what_idles_and_lets_run_what_runs(served):
    idle = await served.connect(PID)
    await idle.answer()
    half = await served.connect(b"GET /pid HT")
    busy = await served.connect(head("GET", "/stream"))
    await busy.reader.readuntil(b"two ")
    await eventually(lambda: len(served.front._connections) == 3)
    served.front.close()
    assert await idle.rest() == b""
    assert await half.rest() == b""
    assert not served.front._ended.done()
    served.application.release.set()
    assert (await busy.rest()).endswith(b" three\r\n0\r\n\r\n")
    await served.front._ended
