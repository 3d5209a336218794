"""The check before the timing: it must see what a router could get wrong."""

from __future__ import annotations

import msgspec
import pytest

from bench.answer_check import (
    DONE,
    StreamedAnswer,
    compare_plain,
    compare_streams,
    read_events,
)
from bench.errors import WrongAnswer

SENT = [{"text": "one"}, {"text": "two"}, {"text": "three"}, DONE]


def streamed(events, first_event_s=0.01, all_s=1.0):
    return StreamedAnswer(events, first_event_s, all_s)


def test_equal_answers_pass():
    compare_plain("r", {"a": 1, "b": [2]}, {"b": [2], "a": 1})
    compare_streams("r", streamed(SENT), streamed(SENT))


def test_changed_plain_answer():
    with pytest.raises(WrongAnswer, match="r answers"):
        compare_plain("r", {"a": 1, "added": None}, {"a": 1})


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([SENT[0], SENT[2], DONE], "event 1"),
        ([SENT[1], SENT[0], SENT[2], DONE], "event 0"),
        ([SENT[0], SENT[0], SENT[1], SENT[2], DONE], "event 1"),
        ([*SENT[:3], {"usage": {}}, DONE], "event 3"),
        (SENT[:3], "3 events; the engine sent 4"),
        ([*SENT, DONE], "5 events; the engine sent 4"),
        ([], "0 events"),
    ],
    ids=["lost", "reordered", "repeated", "added", "no end", "two ends", "nothing"],
)
def test_wrong_stream(events, said):
    with pytest.raises(WrongAnswer, match=said):
        compare_streams("r", streamed(events), streamed(SENT))


def test_an_engine_without_end_does_not_excuse_the_router():
    with pytest.raises(WrongAnswer, match="does not end"):
        compare_streams("r", streamed(SENT[:2]), streamed(SENT[:2]))


def test_a_stream_held_back():
    with pytest.raises(WrongAnswer, match="holds the stream back"):
        compare_streams("r", streamed(SENT, first_event_s=0.9), streamed(SENT))


def test_events_are_read_with_their_times():
    lines = [
        (0.1, b'data: {"a": 1}\n'),
        (0.1, b"\n"),
        (0.2, b": comment\n"),
        (0.3, b'data:{"a":2}\r\n'),
        (0.4, b"data: [DONE]\n"),
    ]
    answer = read_events(lines)
    assert answer == StreamedAnswer([{"a": 1}, {"a": 2}, DONE], 0.1, 0.4)
    assert msgspec.json.encode(answer.events) == b'[{"a":1},{"a":2},"[DONE]"]'
