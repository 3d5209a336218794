"""Chunks: every split gives the same, and nothing passes that is written otherwise."""

from __future__ import annotations

import pytest

from router.chunked_body import LONGEST_LINE, BrokenChunks, ChunkedBody

WHOLE = b'3\r\nabc\r\n00A;name="v"\r\n0123\r\n6789\r\n1\r\n\n\r\n0\r\n\r\n'
BODY = b"abc0123\r\n6789\n"


def feed(*pieces: bytes) -> tuple[bytes, bytes | None]:
    """The body and what followed it, None when it has not ended."""
    body, into = ChunkedBody(), bytearray()
    for number, piece in enumerate(pieces):
        rest = body.feed(piece, into)
        if rest is not None:
            return bytes(into), rest + b"".join(pieces[number + 1 :])
    return bytes(into), None


def test_whole_in_one_piece_and_what_follows():
    assert feed(WHOLE) == (BODY, b"")
    assert feed(WHOLE + b"GET / HTTP/1.1\r\n") == (BODY, b"GET / HTTP/1.1\r\n")
    assert feed(b"0\r\n\r\n") == (b"", b"")


def test_every_split_in_two_and_byte_by_byte():
    for at in range(len(WHOLE) + 1):
        assert feed(WHOLE[:at], WHOLE[at:] + b"next") == (BODY, b"next")
    assert feed(*(bytes([each]) for each in WHOLE)) == (BODY, b"")


def test_until_the_last_line_it_has_not_ended():
    for at in range(len(WHOLE)):
        found, rest = feed(WHOLE[:at])
        assert rest is None
        assert BODY.startswith(found)


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n",
        b"zz\r\n",
        b"-1\r\n",
        b"+3\r\nabc\r\n",
        b"0x3\r\nabc\r\n",
        b" 3\r\nabc\r\n",
        b"3 \r\nabc\r\n",
        b"3_0\r\nabc\r\n",
        b"3\nabc\n0\n\n",
        b"3\nabc\r\n0\r\n\r\n",
        b"3;a\nb\r\nabc\r\n",
        b"3;a\rb\r\nabc\r\n",
        b"3\r\nabcd\r\n",
        b"3\r\nabc\n0\r\n\r\n",
        b"3\r\nabc0\r\n\r\n",
        b"0\r\nx: trailer\r\n\r\n",
        b"0\r\n\n",
        b"fffffffffffffffff\r\n",
        b"3;" + b"a" * LONGEST_LINE + b"\r\nabc\r\n",
    ],
)
def test_anything_else_is_refused_whole_or_byte_by_byte(data):
    with pytest.raises(BrokenChunks):
        feed(data)
    with pytest.raises(BrokenChunks):
        feed(*(bytes([each]) for each in data))


def test_a_line_without_an_end_is_not_held():
    with pytest.raises(BrokenChunks):
        feed(b"3;", *[b"a" * 100] * 5)
