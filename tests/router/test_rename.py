from __future__ import annotations

import json

import pytest

from router.rename import NameSplicer, first_event_end, keep_whole_events, names_other, rename_body


def event(model, text, *, spaced=False):
    value = {"id": "x", "model": model, "choices": [{"delta": {"content": text}}]}
    separators = None if spaced else (",", ":")
    return b"data: " + json.dumps(value, separators=separators).encode() + b"\n\n"


@pytest.mark.parametrize("spaced", [False, True])
def test_every_event_gets_the_name(spaced):
    splicer = NameSplicer('my "own"')
    for text in ("a", 'say "model":"served" twice', "b"):
        passed = splicer.splice(event("served", text, spaced=spaced))
        read = json.loads(passed[6:])
        assert read["model"] == 'my "own"'
        assert read["choices"][0]["delta"]["content"] == text


def test_several_events_at_once():
    events = event("served", "a") + b": note\n\n" + event("served", "b") + b"data: [DONE]\n\n"
    passed = NameSplicer("mine").splice(events)
    assert passed == event("mine", "a") + b": note\n\n" + event("mine", "b") + b"data: [DONE]\n\n"


def test_an_event_in_another_form_is_read_in_full():
    splicer = NameSplicer("mine")
    splicer.splice(event("served", "a"))
    assert splicer.splice(event("served", "b", spaced=True)).count(b'"mine"') == 1


def test_events_without_the_member_pass():
    for raw in (b"data: [DONE]\n\n", b": ping\n\n", b'data: {"a":1}\n\n', b"data: {broken\n\n"):
        assert NameSplicer("mine").splice(raw) == raw


def test_the_member_inside_a_response_object():
    raw = b'event: response.created\ndata: {"type":"x","response":{"id":1,"model":"served"}}\n\n'
    assert b'"model":"mine"' in NameSplicer("mine").splice(raw)


def test_whole_bodies():
    assert (
        rename_body(b'{"id":1,"model":"served","n":2}', "mine") == b'{"id":1,"model":"mine","n":2}'
    )
    same = b'{"id":1, "model": "mine"}'
    assert rename_body(same, "mine") is same
    assert rename_body(b"not json", "mine") == b"not json"
    assert names_other(b'{"model":"served"}', "mine")
    assert not names_other(b'{"id":1}', "mine")


@pytest.mark.parametrize("blank", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_where_events_end(blank):
    first, second, rest = b"data: 1" + blank, b"data: 2" + blank, b"data: 3"
    assert first_event_end(first + second) == len(first)
    assert keep_whole_events(first + second + rest) == (first + second, rest)
