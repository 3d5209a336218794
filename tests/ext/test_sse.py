from __future__ import annotations

import dataclasses
import json
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ext.sse import EventScanner, model_span, usage_of_body, whole_events_end
from tests.ext import sse_oracle

NAMES = [field.name for field in dataclasses.fields(sse_oracle.Read)]


def chunk(content, **more):
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": None}
    return {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **more}


def stream_of(*messages, end="\n", space=" ", done=True):
    texts = [m if isinstance(m, str) else json.dumps(m, ensure_ascii=False) for m in messages]
    texts += ["[DONE]"] if done else []
    return "".join(f"data:{space}{text}{end}{end}" for text in texts).encode()


def read(*chunks, close=False):
    scanner = EventScanner()
    for piece in chunks:
        scanner.feed(piece)
    if close:
        scanner.close()
    return {name: getattr(scanner, name) for name in NAMES}


def expected(stream, closed=False):
    return dataclasses.asdict(sse_oracle.read(stream, closed))


USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 16},
}
FINISHED = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
CHAT = [
    chunk("", usage=None),
    chunk("你好 😀", usage=None),
    chunk('data: [DONE]\n\ndata: {"usage":{"prompt_tokens":9}}'),
    FINISHED,
    {"choices": [], "usage": USAGE},
]
MESSAGES = (
    b'event: message_start\ndata: {"type":"message_start","message":{"model":"m","content":[],'
    b'"usage":{"input_tokens":10,"cache_read_input_tokens":5,"cache_creation_input_tokens":2,"output_tokens":1}}}\n\n'
    b'event: ping\ndata: {"type":"ping"}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"hi"}}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},'
    b'"usage":{"output_tokens":12}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)
RESPONSES = (
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"hi"}\n\n'
    b'event: response.completed\ndata: {"type":"response.completed","response":{"error":null,"usage":{"input_tokens":8,'
    b'"input_tokens_details":{"cached_tokens":4},"output_tokens":2}}}\n\n'
)


#: what only whole lines and whole events say
LINES = b'data: {"usage":\ndata:{"prompt_tokens":5}}\n\nevent: error\ndata: x\n\nevent: message_stop\ndata: {}\n\n'


def test_a_chat_stream():
    assert read(stream_of(*CHAT)) == {
        "events": 5,
        "deltas": 2,
        "started": True,
        "first_data": True,
        "ended": True,
        "finished": True,
        "failed": False,
        "usage": (20, 3, 16),
    }


def test_a_messages_stream_has_its_usage_in_two_events():
    found = read(MESSAGES)
    assert found["usage"] == (17, 12, 5)
    assert found["ended"]
    assert found["deltas"] == 1
    assert found["finished"]


def test_a_responses_stream():
    found = read(RESPONSES)
    assert found["usage"] == (8, 2, 4)
    assert found["ended"]
    assert not found["failed"]
    assert found["deltas"] == 1


def test_timings_stand_in_for_usage():
    timings = {"prompt_n": 4, "cache_n": 30, "predicted_n": 7, "prompt_ms": 1.5}
    scanner = EventScanner()
    scanner.feed(stream_of(chunk("a"), {**FINISHED, "timings": timings}))
    assert scanner.usage == (34, 7, 30)
    assert scanner.usage_from_timings
    scanner.feed(stream_of({"choices": [], "usage": USAGE}))
    assert scanner.usage == (20, 3, 16)
    assert not scanner.usage_from_timings


def test_usage_on_every_chunk_is_not_added_up():
    messages = [chunk("x", usage={"prompt_tokens": 9, "completion_tokens": i}) for i in range(1, 6)]
    assert read(stream_of(*messages))["usage"] == (9, 5, None)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        5,
        "many",
        [],
        {},
        {"prompt_tokens": -1},
        {"prompt_tokens": "7"},
        {"prompt_tokens": 1.5},
        {"x": {"prompt_tokens": 1}},
    ],
)
def test_malformed_usage_is_no_usage(usage):
    assert read(stream_of(chunk("x", usage=usage)))["usage"] == (None, None, None)


def test_usage_elsewhere_is_not_the_usage():
    stray = chunk(
        "x", metadata={"usage": USAGE}, choices=[{"usage": USAGE, "delta": {"usage": USAGE}}]
    )
    assert read(stream_of(stray))["usage"] == (None, None, None)


def test_reasoning_and_tool_arguments_are_output():
    deltas = [
        {"reasoning_content": "a"},
        {"reasoning": "a"},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
        {"role": "assistant", "content": ""},
        {"content": None},
    ]
    messages = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    assert read(stream_of(*messages, {"choices": [{"text": "a"}]}))["deltas"] == 4


@pytest.mark.parametrize(
    "stream",
    [
        stream_of({"error": {"message": "no", "code": 500}}),
        stream_of({"error": "no"}),
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n',
        stream_of({"type": "error", "message": "no"}),
    ],
)
def test_an_error_event_is_seen(stream):
    assert read(stream)["failed"]


def test_no_error_is_no_error():
    assert not read(stream_of(chunk("x", error=None), chunk('{"error":1}')))["failed"]


def test_comments_and_blank_lines_do_not_start_a_stream():
    scanner = EventScanner()
    assert scanner.feed(b": ping\n\n\r\n:\n") == 0
    assert not scanner.started
    assert not scanner.first_data
    scanner.feed(b"event: x\n")
    assert scanner.started
    assert not scanner.first_data


def test_feed_returns_the_events_it_completed():
    scanner = EventScanner()
    stream = stream_of("{}", "{}")
    assert [scanner.feed(stream[:5]), scanner.feed(stream[5:]), scanner.feed(b"")] == [0, 2, 0]
    assert scanner.events == 2


@pytest.mark.parametrize("ending", ["[DONE]", "{}"])
def test_an_event_without_its_blank_line_is_read_at_the_close(ending):
    for tail in (b"", b"\n"):
        stream = stream_of(chunk("a"), done=False) + b"data: " + ending.encode() + tail
        assert not read(stream)["ended"]
        assert read(stream)["events"] == 1
        assert read(stream, close=True) == expected(stream, closed=True)


def test_data_that_breaks_off_says_what_it_said():
    found = read(
        b'data: {"usage":{"prompt_tokens":5},"choices":[{"delta":{"content":"x"\n\ndata: {"type":"\n\n'
    )
    assert found["usage"] == (5, None, None)
    assert (found["events"], found["deltas"]) == (2, 1)


def test_a_line_above_a_mebibyte_is_counted_and_its_beginning_read():
    long = {"type": "response.completed", "response": {"output": "x" * 3_000_000, "usage": USAGE}}
    stream = stream_of(long, chunk("a", usage=USAGE))
    cut = [stream[i : i + 65_536] for i in range(0, len(stream), 65_536)]
    found = read(*cut)
    assert found["events"] == 2
    assert found["ended"]
    assert found["usage"] == (20, 3, 16)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("space", ["", " "])
@pytest.mark.parametrize("stream", [stream_of(*CHAT), b": hello\n\n" + MESSAGES, RESPONSES, LINES])
def test_every_cut_reads_the_same(stream, end, space):
    stream = stream.replace(b"data: {", b"data:%s{" % space.encode()).replace(b"\n", end.encode())
    whole = expected(stream)
    assert whole["ended"]
    for cut in range(len(stream) + 1):
        assert read(stream[:cut], stream[cut:]) == whole
    assert read(*(stream[i : i + 1] for i in range(len(stream)))) == whole


def test_nothing_points_into_a_chunk_that_is_gone():
    line = b'data: {"usage":{"prompt_tokens":5}}\n'
    for _ in range(20):
        scanner = EventScanner()
        scanner.feed(bytes(bytearray(line)))
        overwritten = [bytes(bytearray(b"x" * len(line))) for _ in range(50)]
        scanner.feed(b"\n")
        assert scanner.usage == (5, None, None)
        assert len(overwritten) == 50


lines = st.one_of(
    st.sampled_from(
        [
            "", "", "", "data", "data:", "data: ", "data: [DONE]", "data:[DONE] ",
            'data: {"choices":\ndata: [{"delta":{"content":"x"}}]\ndata:}',
            ": comment", ":", "event: message_stop", "event: error", "event:", "id: 1", "retry: 10", "dat", "data : x",
            " data: x", "datax: y", 'data: {"type":"message_stop"}', "data: [1]", 'data: "x"', "data: 7",
        ]
    ),
    st.sampled_from([*CHAT, {"usage": USAGE}, {"timings": {"prompt_n": 1}}, {"delta": "x"}]).map(
        lambda message: "data: " + json.dumps(message)
    ),
)  # fmt: skip
streams = st.lists(st.tuples(lines, st.sampled_from(["\n", "\r\n", "\r"])), max_size=25).map(
    lambda parts: "".join(line + end for line, end in parts).encode()
)


@given(streams, st.lists(st.integers(0, 1000), max_size=6), st.booleans())
@settings(max_examples=300, deadline=None)
def test_equals_the_oracle(stream, cuts, close):
    # Data that breaks off inside an object says what it said up to there: no business of the oracle's.
    data = [data for _, data in sse_oracle.events_of(stream + b"\n\n") if data.startswith(b"{")]
    assume(all(sse_oracle.first_value(each) is not None for each in data))
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[a:b] for a, b in pairwise(places)]
    assert read(*pieces, close=close) == expected(stream, closed=close)


counts = st.one_of(
    st.integers(-2, 10**6), st.none(), st.floats(0, 9), st.booleans(), st.text(max_size=3)
)
usages = st.dictionaries(
    st.sampled_from(
        [
            "prompt_tokens",
            "completion_tokens",
            "input_tokens",
            "output_tokens",
            "cache_read_input_tokens",
            "prompt_tokens_details",
            "input_tokens_details",
            "cached_tokens",
            "cache_creation_input_tokens",
            "prompt_n",
            "predicted_n",
            "cache_n",
            "other",
        ]
    ),
    st.one_of(counts, st.dictionaries(st.sampled_from(["cached_tokens", "audio_tokens"]), counts)),
)
objects = st.recursive(
    st.one_of(counts, usages, st.just('"usage":{"prompt_tokens":1}'), st.just("")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    "usage",
                    "timings",
                    "message",
                    "response",
                    "choices",
                    "delta",
                    "text",
                    "content",
                    "model",
                    "type",
                    "error",
                    "x",
                ]
            ),
            inner,
        ),
    ),
    max_leaves=12,
).filter(lambda value: isinstance(value, dict))


@given(objects)
@settings(max_examples=300, deadline=None)
def test_bodies_equal_the_oracle(message):
    usage = sse_oracle.usage_of([message])
    assert usage_of_body(json.dumps(message).encode()) == (
        None if usage == (None, None, None) else usage
    )
    assert read(stream_of(message)) == expected(stream_of(message))


def test_usage_of_bodies():
    body = {
        "choices": [{"message": {"content": 'he said "usage":{"prompt_tokens":1}'}}],
        "usage": USAGE,
    }
    assert usage_of_body(json.dumps(body, indent=2).encode()) == (20, 3, 16)
    assert usage_of_body(b"{}") is None
    assert usage_of_body(b"") is None
    assert usage_of_body(b'{"usage":{"prompt_tokens":5') == (5, None, None)
    assert usage_of_body(b'{"usage":{"input_tokens":3,"output_tokens":4}}') == (3, 4, None)


@pytest.mark.parametrize(
    ("event", "found"),
    [
        (b'data: {"id":1,"model":"a","x":{"model":"b"}}\n\n', b'"model":"a"'),
        (b'data:{"x":{"model":"b"},"model" : "a\\"b"}\n\n', b'"model" : "a\\"b"'),
        (
            b'event: message_start\r\ndata: {"type":"message_start","message":{"id":"x","model":"a"}}',
            b'"model":"a"',
        ),
        (b'data: {"response":{"tools":[{"model":"z"}],"model":"a"}}\n\n', b'"model":"a"'),
        (b': {"model":"no"}\ndata: {"model":"a"}\n\n', b'"model":"a"'),
        (b'{"choices":[{"text":"\\"model\\":\\"x\\""}],"model":"a"}', b'"model":"a"'),
        (b'data: {"choices":[{"delta":{"content":"\\"model\\":\\"x\\""}}]}\n\n', None),
        (b'data: {"choices":[{"model":"x"}]}\n\n', None),
        (b'data: {"model":null}\n\n', None),
        (b"data: [DONE]\n\n", None),
        (b": ping\n\n", None),
        (b"", None),
    ],
)
def test_model_span(event, found):
    span = model_span(event, 0)
    assert (None if span is None else event[slice(*span)]) == found
    shifted = model_span(b"xxxxx" + event, 5)
    assert shifted == (None if span is None else (span[0] + 5, span[1] + 5))


@pytest.mark.parametrize("start", [-1, 3])
def test_model_span_starts_within_the_event(start):
    with pytest.raises(ValueError, match="start must be from 0 to 2"):
        model_span(b"{}", start)


def last_event_end(buffer):
    """By trying every length: where a reader of lines has just met a blank one."""
    ends = [0]
    for stop in range(1, len(buffer) + 1):
        lines = sse_oracle.lines_of(buffer[:stop])
        if buffer[stop - 1 : stop] in (b"\n", b"\r") and lines[-2] == b"":
            ends.append(stop)
    return ends[-1]


@given(st.text(alphabet=st.sampled_from("a\n\r"), max_size=30).map(str.encode))
@settings(max_examples=300, deadline=None)
def test_whole_events_end(buffer):
    assert whole_events_end(buffer) == last_event_end(buffer)


def test_whole_events_end_of_a_tail():
    assert whole_events_end(b"data: 1\n\ndata: 2\n") == 9
    assert whole_events_end(b"data: 1\r\n\r\n") == 11
    assert whole_events_end(b"data: 1\r\rdata") == 9
    assert whole_events_end(b"data: 1") == 0


def test_timings_count_where_llama_cpp_writes_them_and_nowhere_else():
    assert usage_of_body(b'{"timings":{"prompt_n":3,"cache_n":1,"predicted_n":2}}') == (4, 2, 1)
    assert usage_of_body(b'{"message":{"timings":{"prompt_n":0}}}') is None
