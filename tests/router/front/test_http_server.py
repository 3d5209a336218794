"""The Exchange on both fronts: each habit of granian's that its front leans on has its test here too."""

from __future__ import annotations

import http.client
import inspect
import json

import aiohttp
import psutil
import pytest
from granian.server.mp import MPServer

from tests.router.front.running_router import (
    RunningRouter,
    answer_on,
    connect,
    eventually,
    head,
    raw,
    until,
    until_closed,
)

MIB = 1024 * 1024
CHUNKED = "transfer-encoding: chunked"


def notes(router: RunningRouter) -> list[str]:
    found: list[str] = json.loads(router.get("/seen")[1])
    return found


def count(router: RunningRouter, note: str) -> int:
    return notes(router).count(note)


def test_arguments_of_granians_worker():
    names = list(inspect.signature(MPServer._spawn_rsgi_worker).parameters)
    assert names == [
        "worker_id", "callback", "sock", "ipc", "loop", "runtime_mode", "runtime_threads",
        "runtime_blocking_threads", "blocking_threads", "blocking_threads_idle_timeout",
        "backpressure", "task_impl", "http_mode", "http1_settings", "http2_settings", "websockets",
        "static_path", "log_access_fmt", "ssl_ctx", "scope_opts", "metrics",
    ]  # fmt: skip


def test_head_of_a_request(router):
    with connect(router.port) as connection:
        port = connection.getsockname()[1]
        connection.sendall(head("GET", "/head/%41?query=1", "X-One: first", "x-one: second"))
        assert json.loads(answer_on(connection)[1]) == [
            "GET",
            "/head/A",
            f"127.0.0.1:{port}",
            "first",
        ]


def test_answer_to_head_has_the_length_and_no_body(router):
    connection = http.client.HTTPConnection("127.0.0.1", router.port)
    connection.request("HEAD", "/pid")
    answer = connection.getresponse()
    assert int(answer.headers["content-length"]) > 0
    assert answer.read() == b""
    connection.request("GET", "/pid")
    assert connection.getresponse().status == 200
    connection.close()


def test_health_and_readiness(router):
    assert router.get("/healthz") == (200, b"ok\n")
    assert router.get("/readyz") == (200, b"ready\n")
    assert router.get("/readyz", b"x")[0] == 405


# Bodies


@pytest.mark.parametrize("size", [1, 1000, 300_000, MIB])
def test_body_of_announced_length(router, size):
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    assert router.get("/echo", body) == (200, body)


def test_no_body_and_empty_bodies(router):
    assert raw(router.port, head("POST", "/echo")) == (200, b"")
    assert raw(router.port, head("POST", "/echo", "content-length: 0")) == (200, b"")
    assert raw(router.port, head("POST", "/echo", CHUNKED) + b"0\r\n\r\n") == (200, b"")


def test_chunked_body(router):
    data = b"3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"
    assert raw(router.port, head("POST", "/echo", CHUNKED) + data) == (200, b"abcd")


def test_chunked_body_over_the_cap(router):
    piece = b"80000\r\n" + bytes(0x80000) + b"\r\n"
    for number in (3, 32):
        # The rest is taken too, so that a client that still writes reads its answer.
        data = head("POST", "/echo", CHUNKED) + number * piece + b"0\r\n\r\n"
        assert raw(router.port, data) == (413, b"BodyTooLarge")
    assert "a request failed" not in router.stderr.read_text()


@pytest.mark.parametrize("end", [b"zz\r\n", b"0\r\nx: trailer\r\n\r\n"])
def test_broken_chunks_and_trailers_are_refused(router, end):
    data = head("POST", "/echo", CHUNKED) + b"3\r\nabc\r\n" + end
    assert raw(router.port, data) == (400, b"BodyCut")


@pytest.mark.parametrize(
    "begin",
    [
        head("POST", "/echo", "content-length: 10") + b"abc",
        head("POST", "/echo", CHUNKED) + b"3\r\nabc\r\n",
    ],
)
def test_cut_upload(router, begin):
    before = count(router, "BodyCut")
    with connect(router.port) as connection:
        connection.sendall(begin)
    eventually(lambda: count(router, "BodyCut") == before + 1)


@pytest.mark.parametrize(
    "begin",
    [
        head("POST", "/echo", "content-length: 10") + b"abc",
        head("POST", "/echo", CHUNKED) + b"3\r\nabc\r\n",
    ],
)
def test_slow_upload(router, begin):
    assert raw(router.port, begin) == (408, b"BodyTooSlow")


def test_too_large_is_said_to_a_client_that_writes_everything_first(router):
    connection = http.client.HTTPConnection("127.0.0.1", router.port, timeout=20)
    connection.request("POST", "/echo", body=bytes(20 * MIB))
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (413, b"BodyTooLarge")
    connection.close()


def test_too_large_is_answered_before_anything_was_read(router):
    assert raw(router.port, head("POST", "/echo", f"content-length: {2 * MIB}"))[0] == 413
    assert raw(router.port, head("POST", "/unread", f"content-length: {MIB}"))[0] == 401


def test_bodies_held_are_bounded_and_given_back(router):
    begin = head("POST", "/echo", f"content-length: {MIB}") + b"x"
    before = count(router, "BodyCut")
    with connect(router.port) as one, connect(router.port) as two:
        one.sendall(begin)
        two.sendall(begin)

        def refused() -> bool:
            status, body = router.get("/echo", bytes(MIB))
            return bool(status == 503 and body == b"BodiesHeld")

        eventually(refused)
        # Also to a client that writes all of it before it reads.
        connection = http.client.HTTPConnection("127.0.0.1", router.port, timeout=20)
        connection.request("POST", "/echo", body=bytes(MIB))
        assert connection.getresponse().read() == b"BodiesHeld"
        connection.close()
    eventually(lambda: count(router, "BodyCut") == before + 2)
    assert router.get("/echo", bytes(MIB))[0] == 200


def test_large_heads_are_refused(router):
    assert raw(router.port, head("GET", "/pid", "x: " + 60_000 * "a"))[0] == 200
    assert raw(router.port, head("GET", "/pid", "x: " + 140_000 * "a"))[0] == 431


# Answers


def test_stream_ends_before_its_handler(start_router):
    router = start_router()
    connection = http.client.HTTPConnection("127.0.0.1", router.port, timeout=20)
    connection.request("GET", "/ended")
    assert connection.getresponse().read() == b"all"
    assert router.get("/let") == (200, b"released")
    connection.close()


def test_client_that_leaves_a_stream_is_noticed_at_the_next_chunk(router):
    before = count(router, "stream gone")
    with connect(router.port) as connection:
        connection.sendall(head("GET", "/stream"))
        until(connection, b"one")
    eventually(lambda: count(router, "stream gone") == before + 1)


@pytest.mark.parametrize("events", [0, 1, 500])
def test_cut_brings_every_event_and_no_clean_end(router, events):
    connection = http.client.HTTPConnection("127.0.0.1", router.port, timeout=20)
    connection.request("GET", f"/cut/{events}")
    with pytest.raises(http.client.IncompleteRead) as caught:
        connection.getresponse().read()
    want = b"".join(b"data: %d\n\n" % number for number in range(events)) + b"data: error\n\n"
    assert caught.value.partial == want
    connection.close()


def test_cuts_leave_no_descriptors(router):
    def descriptors() -> int:
        return psutil.Process(router.workers()[0]).num_fds()

    def cut() -> None:
        with connect(router.port) as connection:
            connection.sendall(head("GET", "/cut/1"))
            assert not until_closed(connection).endswith(b"0\r\n\r\n")

    cut()
    before = descriptors()
    for _ in range(8):
        cut()
    eventually(lambda: descriptors() <= before + 2)


async def test_cut_is_an_error_for_aiohttp(router):
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{router.port}/cut/3") as answer,
    ):
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()


def test_cut_hits_its_own_connection_alone(router):
    with connect(router.port) as other:
        other.sendall(head("GET", "/pid"))
        assert answer_on(other)[0] == 200
        with connect(router.port) as connection:
            connection.sendall(head("GET", "/cut/1"))
            assert not until_closed(connection).endswith(b"0\r\n\r\n")
        other.sendall(head("GET", "/pid"))
        assert answer_on(other)[0] == 200


def test_client_that_leaves_before_the_first_byte_is_noticed(router):
    before, waiting = count(router, "gone"), count(router, "waiting")
    with connect(router.port) as connection:
        connection.sendall(head("GET", "/wait"))
        eventually(lambda: count(router, "waiting") == waiting + 1)
        assert count(router, "gone") == before
    eventually(lambda: count(router, "gone") == before + 1)


def test_client_that_left_before_the_watch_began_is_noticed(router):
    before = count(router, "gone")
    with connect(router.port) as connection:
        connection.sendall(head("GET", "/wait"))
    eventually(lambda: count(router, "gone") == before + 1)


def test_slow_reader_is_seen(router):
    with connect(router.port) as connection:
        connection.sendall(head("GET", "/flood"))
        eventually(lambda: any(note.startswith("unsent") for note in notes(router)))
    reader = http.client.HTTPConnection("127.0.0.1", router.port, timeout=20)
    reader.request("GET", "/flood")
    assert len(reader.getresponse().read()) >= MIB
    reader.close()


# Mistakes


def test_a_mistake_is_said_without_what_the_client_sent(router):
    assert raw(router.port, head("GET", "/mistake", "x-secret: hidden words"))[0] == 500
    with connect(router.port) as connection:
        connection.sendall(head("GET", "/late_mistake", "x-secret: hidden words"))
        answer = until_closed(connection)
    assert b"begun" in answer
    assert not answer.endswith(b"0\r\n\r\n")
    said = router.stderr.read_text()
    assert "ValueError" in said
    assert "fake_application.py" in said
    assert "hidden words" not in said
