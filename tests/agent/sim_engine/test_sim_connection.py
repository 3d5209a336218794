"""The connection's own rules, with a transport that only remembers."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from agent.sim_engine import http_connection
from agent.sim_engine.http_connection import HttpConnection, as_chunk


class Transport:
    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


class Server:
    def __init__(self) -> None:
        self.connections: set[HttpConnection] = set()
        self.closing = False
        self.log_requests = False
        self.requests: list[Any] = []

    def handle(self, connection, request) -> None:
        self.requests.append(request)


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def connection(server):
    made = HttpConnection(server)
    made.connection_made(cast(asyncio.BaseTransport, Transport()))
    return made


def request(path: str, body: bytes = b"") -> bytes:
    return f"POST {path} HTTP/1.1\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def test_a_request_in_pieces(server, connection):
    raw = request("/a?b=c", b"body")
    for at in range(len(raw)):
        assert server.requests == []
        connection.data_received(raw[at : at + 1])
    (one,) = server.requests
    assert (one.method, one.path, one.body) == ("POST", "/a", b"body")
    assert one.headers == {"content-length": "4"}


async def test_a_body_past_the_cap_is_dropped(server, connection, monkeypatch):
    monkeypatch.setattr(http_connection, "MAX_BODY", 10)
    connection.data_received(request("/a", b"x" * 10))
    connection.answer(200, b"")
    connection.data_received(request("/b", b"x" * 11))
    assert [(one.too_big, len(one.body)) for one in server.requests] == [(False, 10), (True, 0)]


async def test_good_requests_before_nonsense_are_answered(server, connection):
    connection.data_received(request("/a") + b"nonsense\r\n\r\n")
    assert [one.path for one in server.requests] == ["/a"]
    connection.answer(200, b"fine")
    transport = connection._transport
    assert transport.written.endswith(b"\r\n\r\nfine")
    assert b"connection: close" in transport.written
    assert transport.closed


async def test_idle_is_only_who_neither_asks_nor_is_answered(server, connection):
    connection.data_received(request("/a"))
    connection.close_if_idle(float("inf"))
    assert not connection._transport.closed  # being answered
    connection.data_received(request("/b", b"body")[:-1])
    connection.answer(200, b"")
    connection.close_if_idle(float("inf"))
    assert not connection._transport.closed  # half of the next request is there
    connection.data_received(b"y")
    connection.answer(200, b"")
    connection.close_if_idle(float("-inf"))
    assert not connection._transport.closed  # not for long enough
    connection.close_if_idle(float("inf"))
    assert connection._transport.closed


async def test_a_lost_client_cancels_its_answer_once(connection):
    cancelled = []
    connection.cancel = lambda: cancelled.append(1)
    connection.connection_lost(None)
    connection.connection_lost(None)
    assert cancelled == [1]


async def test_chunks_of_a_stream(connection):
    connection.data_received(request("/a"))
    connection.open_stream()
    before = connection._transport.written
    connection.send(as_chunk(b"0123456789abcdef"))
    assert connection._transport.written == before + b"10\r\n0123456789abcdef\r\n"
    connection.close_stream(b"x")
    assert connection._transport.written.endswith(b"1\r\nx\r\n0\r\n\r\n")
