"""An engine's plain answer in one read; everything else is the parser's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ext.answer import read_whole_answer
from tests.ext import answer_oracle

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


def test_the_usual_one():
    assert read_whole_answer(PLAIN) == ("application/json", None, b"{}")


def test_what_a_server_adds_does_not_matter():
    raw = (
        b"HTTP/1.1 200 OK\r\ndate: Tue, 01 Dec 2026 12:00:00 GMT\r\nserver: uvicorn\r\n"
        b"content-length:\t11 \r\ncontent-encoding: gzip\r\n\r\nhello\r\n\r\nab"
    )
    assert read_whole_answer(raw) == ("", "gzip", b"hello\r\n\r\nab")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        PLAIN[:-1],
        PLAIN + b"x",
        PLAIN.replace(b"200 OK", b"201 OK"),
        PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0"),
        PLAIN.replace(b": 2\r\n", b": 2\r\nContent-Length: 2\r\n"),
        PLAIN.replace(b": 2\r\n", b": +2\r\n"),
        PLAIN.replace(b": 2\r\n", b": \r\n"),
        PLAIN.replace(b": 2\r\n", b": 99999999999999999999\r\n"),
        PLAIN.replace(b"\r\nContent-L", b"\r\nTransfer-Encoding: chunked\r\nContent-L"),
        PLAIN.replace(b"\r\nContent-L", b"\r\nConnection: close\r\nContent-L"),
        PLAIN.replace(b"\r\nContent-L", b"\r\nKeep-Alive: timeout=5\r\nContent-L"),
        PLAIN.replace(b"\r\nContent-L", b"\nContent-L"),
        PLAIN.replace(b"\r\nContent-L", b"\r\n folded\r\nContent-L"),
        PLAIN.replace(b"json", b"js\ron"),
        PLAIN.replace(b"json", b"js\0on"),
        PLAIN.replace(b"application/json", b"Text/Event-Stream; charset=utf-8"),
    ],
)
def test_everything_else_is_left_to_the_parser(raw):
    assert read_whole_answer(raw) is None
    assert answer_oracle.read_whole_answer(raw) is None


PIECES = [
    *(b"HTTP/1.1 200 OK\r\n", b"\r\n", b"\r", b"\n", b":", b" ", b"\t", b"\0", b"2", b"0", b"ab"),
    *(b"Content-Length: 2\r\n", b"content-length:2\r\n", b"content-length : 2\r\n", b"{}"),
    *(b"Content-Type: application/json\r\n", b"content-type:text/event-stream\r\n", b"x: y\r\n"),
    *(b"Content-Encoding: gzip\r\n", b"Connection: close\r\n", b"transfer-encoding: chunked\r\n"),
]


@settings(max_examples=600)
@given(st.lists(st.sampled_from(PIECES), max_size=12), st.booleans())
def test_it_equals_its_specification(pieces, begun):
    raw = (PIECES[0] if begun else b"") + b"".join(pieces)
    assert read_whole_answer(raw) == answer_oracle.read_whole_answer(raw)


@settings(max_examples=300)
@given(st.binary(max_size=40), st.integers(0, len(PLAIN)))
def test_any_bytes_anywhere(noise, at):
    raw = PLAIN[:at] + noise + PLAIN[at:]
    assert read_whole_answer(raw) == answer_oracle.read_whole_answer(raw)
