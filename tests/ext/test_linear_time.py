"""Hostile input costs time in proportion to its length, and no byte beyond it is read."""

from __future__ import annotations

import time

import pytest

from ext.prefix import chain
from ext.scan import ScanError, Scanner
from ext.sse import EventScanner, model_span, usage_of_body, whole_events_end
from ext.tokens import estimate

MEBIBYTE = 1 << 20


def scan(body):
    try:
        return Scanner().scan(body)
    except ScanError as refusal:
        return refusal


def feed(stream):
    scanner = EventScanner()
    for start in range(0, len(stream), 4096):
        scanner.feed(stream[start : start + 4096])
    scanner.close()
    return scanner


def cost(call, data):
    def once():
        start = time.process_time()
        call(data)
        return time.process_time() - start

    return min(once() for _ in range(5))


def inside(shape, size):
    before, unit, after = shape
    return before + unit * (size // len(unit)) + after


#: what stands before, the unit repeated, what stands after
BODIES = {
    "quotes": (b'{"a":"', b'"', b""),
    "escaped quotes in a prompt": (b'{"prompt":"', rb"\"", b'"}'),
    "backslashes": (b'{"a":"', b"\\\\", b'"}'),
    "broken escapes": (b'{"prompt":"', b"\\", b""),
    "unicode escapes": (b'{"prompt":"', rb"\u4f60", b'"}'),
    "half surrogates": (b'{"prompt":"', rb"\ud83d", b'"}'),
    "opening brackets": (b"", b"[", b""),
    "opening brackets in a member": (b'{"a":', b"[", b""),
    "opening braces in messages": (b'{"messages":', b'[{"a":', b""),
    "one letter": (b'{"prompt":"', b"a", b'"}'),
    "white space": (b"", b" ", b"{}"),
    "one long number": (b'{"max_tokens":', b"9", b"}"),
    "many members": (b'{"z":1', b',"m":1', b"}"),
    "long member name": (b'{"', b"k", b'":1}'),
    "escaped member names": (b'{"z":1', rb',"\u0061\u0061":1', b"}"),
    "empty messages": (b'{"messages":[{}', b",{}", b"]}"),
    "empty prompts": (b'{"prompt":[""', b',""', b"]}"),
    "ids": (b'{"prompt":[1', b",1", b"]}"),
    "tiny pictures": (b'{"messages":[{"url":""', b',"url":""', b"}]}"),
    "tiny documents": (b'{"messages":[{"data":" "', b',"data":" "', b"}]}"),
    "tiny arguments": (b'{"messages":[{"input":{}', b',"input":{}', b"}]}"),
    "skipped members": (b'{"messages":[{"id":""', b',"id":""', b"}]}"),
    "attribution blocks": (b'{"system":[[""', b',"x-anthropic-billing-header"', b"]]}"),
    "roles": (b'{"messages":[{"role":""', b',"role":""', b"}]}"),
}
STREAMS = {
    "line feeds": b"\n",
    "carriage returns": b"\r",
    "one line": b"a",
    "data": b"data:",
    "data lines": b"data:\n",
    "quotes": b'data: {""""""\n',
    "brackets": b"data: [[[[[[\n\n",
    "carriage returned data": b"data: x\r\r",
    "usage": b'data: {"usage":{"usage":\r\n',
}


@pytest.mark.parametrize("shape", BODIES.values(), ids=BODIES)
def test_the_scan_is_linear(shape):
    one, two = (inside(shape, size) for size in (MEBIBYTE // 2, MEBIBYTE))
    assert cost(scan, two) <= 4 * cost(scan, one) + 0.002


@pytest.mark.parametrize("unit", STREAMS.values(), ids=STREAMS)
def test_reading_a_stream_is_linear(unit):
    one, two = (inside((b"", unit, b""), size) for size in (MEBIBYTE // 4, MEBIBYTE // 2))
    for call in (
        feed,
        usage_of_body,
        model_span,
        whole_events_end,
        lambda data: EventScanner().feed(data),
    ):
        assert cost(call, two) <= 4 * cost(call, one) + 0.002


@pytest.mark.parametrize(
    "unit", [b"a", b'"', b"\\", rb"\ud83d", "漢".encode(), b" ", b"\xff", b"data:"]
)
def test_estimate_and_chain_are_linear(unit):
    one, two = (inside((b"", unit, b""), size) for size in (MEBIBYTE, 2 * MEBIBYTE))
    for call in (estimate, chain):
        assert cost(call, two) <= 4 * cost(call, one) + 0.002


@pytest.mark.parametrize("shape", BODIES.values(), ids=BODIES)
def test_a_body_cut_anywhere_is_refused(shape):
    # A read past the end would find the bytes that complete the body.
    body = inside(shape, 60)
    if isinstance(scan(body), ScanError):
        return
    for stop in range(len(body)):
        assert isinstance(scan(body[:stop]), ScanError)


def test_a_million_messages_have_a_bounded_number_of_digests():
    found = scan(inside(BODIES["empty messages"], 3 * MEBIBYTE))
    assert len(found.digests) <= 128
    assert found.tokens_middle >= MEBIBYTE
