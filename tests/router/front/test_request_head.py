"""Heads of requests: what is read out of them, and what is refused."""

from __future__ import annotations

import pytest

from router import request_head
from router.request_head import CHUNKED, HeadRefused, read_head


def head(*lines: str, line: str = "POST /v1/x HTTP/1.1") -> bytes:
    return "\r\n".join([line, *lines, "", ""]).encode("latin-1")


def refusal(raw: bytes) -> int:
    with pytest.raises(HeadRefused) as caught:
        read_head(raw)
    assert caught.value.why
    return caught.value.status


def test_headers_are_found_whatever_their_case_and_place():
    found = read_head(
        head("Host: h", "X-Request-ID:  one\t", "x-request-id: two", "Empty:", "L: é")
    )
    assert (found.method, found.path, found.newer) == ("POST", "/v1/x", True)
    assert found.header("host") == "h"
    assert found.header("x-request-id") == "one"
    assert found.header("empty") == ""
    assert found.header("l") == "é"
    assert found.header("request-id") is None
    assert found.header("post /v1/x http/1.1") is None


def test_a_header_is_not_found_within_a_value():
    found = read_head(head("a: content-length: 7", "b: x", "c:transfer-encoding: chunked"))
    assert found.length == 0
    assert found.header("content-length") is None


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/a/b", "/a/b"),
        ("/a?b=/c", "/a"),
        ("/%41%2Fb%0d%0A", "/A/b\r\n"),
        ("/%C3%A9", "/é"),
        ("/%ff", "/\ufffd"),
        ("//h/a", "//h/a"),
        ("http://h:1/a/b?c", "/a/b"),
        ("http://h", "/"),
        ("http://h?q=/x", "/"),
        ("*", "*"),
    ],
)
def test_paths(target, path):
    # Twice: the second time from what is kept.
    for _ in range(2):
        assert read_head(head(line=f"OPTIONS {target} HTTP/1.1")).path == path


def test_kept_request_lines_are_bounded():
    for number in range(2000):
        assert read_head(head(line=f"GET /{number} HTTP/1.1")).path == f"/{number}"
        read_head(head(line=f"GET /?{number} HTTP/1.1"))
    read_head(head(line=f"GET /{'a' * 1000} HTTP/1.1"))
    assert len(request_head._LINES) <= request_head._KEPT_LINES
    assert all(b"?" not in each and len(each) < 200 for each in request_head._LINES)


@pytest.mark.parametrize(
    ("lines", "length"),
    [
        ([], 0),
        (["Content-Length: 0"], 0),
        (["content-length: \t17 "], 17),
        (["Transfer-Encoding: Chunked"], CHUNKED),
    ],
)
def test_lengths(lines, length):
    assert read_head(head(*lines)).length == length


@pytest.mark.parametrize(
    ("version", "lines", "keep"),
    [
        ("1.1", [], True),
        ("1.1", ["Connection: keep-alive"], True),
        ("1.1", ["Connection: x, Close"], False),
        ("1.1", ["connection: keep-alive", "connection: close"], False),
        ("1.1", ["connection: upgrade", "upgrade: websocket"], False),
        (
            "1.1",
            ["connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "content-length: 3"],
            False,
        ),
        ("1.1", ["upgrade: websocket"], True),
        ("1.0", [], False),
        ("1.0", ["connection: Keep-Alive"], True),
    ],
)
def test_keeping_the_connection(version, lines, keep):
    found = read_head(head(*lines, line=f"GET / HTTP/{version}"))
    assert found.keep is keep
    assert found.newer is (version == "1.1")


@pytest.mark.parametrize(
    "lines",
    [
        ["content-length: 3", "transfer-encoding: chunked"],
        ["transfer-encoding: chunked", "content-length: 3"],
        ["content-length: 3", "content-length: 3"],
        ["content-length: 3", "Content-Length: 4"],
        ["content-length: 3, 3"],
        ["content-length: +3"],
        ["content-length: -3"],
        ["content-length: 0x3"],
        ["content-length: 3 3"],
        ["content-length:"],
        ["content-length: 99999999999999999999"],
        ["transfer-encoding: chunked", "transfer-encoding: chunked"],
        ["transfer-encoding: chunked, identity"],
        ["transfer-encoding: xchunked"],
        ["transfer-encoding:"],
        ["transfer-encoding: \x0bchunked"],
        ["transfer-encoding : chunked"],
        ["content-length : 3"],
        ["a: b", " content-length: 3"],
        ["a: b", "\ttransfer-encoding: chunked"],
        ["a: b\ncontent-length: 3"],
        ["a: b\rcontent-length: 3"],
        ["a: b\x00"],
        ["no colon"],
        [": no name"],
        ["connection: upgrade", "upgrade: x", "content-length: 3", "transfer-encoding: chunked"],
    ],
)
def test_heads_that_two_readers_could_read_differently(lines):
    assert refusal(head(*lines)) == 400


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET /", 400),
        ("GET  / HTTP/1.1", 400),
        ("GET /  HTTP/1.1", 400),
        ("GET / a HTTP/1.1", 400),
        ("GET / HTTP/1.1 ", 400),
        ("GET /\x01 HTTP/1.1", 400),
        ("get / HTTP/1.1", 400),
        ("NOTHING / HTTP/1.1", 400),
        ("\nGET / HTTP/1.1", 400),
        ("GET / HTTP/2.0", 505),
        ("GET / HTTP/0.9", 505),
        ("PRI * HTTP/2.0", 505),
        ("CONNECT h:1 HTTP/1.1", 405),
    ],
)
def test_request_lines_that_are_refused(line, status):
    assert refusal(head(line=line)) == status


def test_codings_that_are_not_spoken():
    assert refusal(head("transfer-encoding: gzip, chunked")) == 501
    assert refusal(head("transfer-encoding: chunked", line="POST / HTTP/1.0")) == 400
