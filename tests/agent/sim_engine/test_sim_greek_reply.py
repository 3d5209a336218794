"""What is said, and where a stop string ends it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.sim_engine.greek_reply import LETTERS, call_reply, greek_reply

ALL = " ".join(LETTERS)


def whole(reply) -> str:
    return reply.text(0, reply.tokens)


def test_the_alphabet_in_order_and_again():
    assert len(LETTERS) == 24
    reply = greek_reply(26, ())
    assert whole(reply) == ALL + " alpha beta"
    assert (reply.tokens, reply.finish, reply.stop) == (26, "length", None)


@given(st.integers(0, 80), st.integers(0, 80), st.integers(0, 80))
def test_parts_add_up(a, b, c):
    a, b, c = sorted((a, b, c))
    reply = greek_reply(80, ())
    assert reply.text(a, b) + reply.text(b, c) == reply.text(a, c)


@pytest.mark.parametrize(
    ("stops", "text", "tokens", "stop"),
    [
        (("gamma",), "alpha beta ", 3, "gamma"),
        (("gamma", "be"), "alpha ", 2, "be"),
        (("a",), "", 1, "a"),
        (("eta gam",), "alpha b", 3, "eta gam"),
        (("omega alpha",), ALL.removesuffix("omega"), 25, "omega alpha"),
        ((" alpha beta",), ALL, 26, " alpha beta"),
    ],
)
def test_stop_strings(stops, text, tokens, stop):
    reply = greek_reply(100, stops)
    assert (whole(reply), reply.tokens, reply.finish, reply.stop) == (text, tokens, "stop", stop)


def test_a_stop_string_that_comes_too_late_or_never():
    assert greek_reply(2, ("gamma",)).finish == "length"
    assert greek_reply(100, ("aleph",)).finish == "length"
    assert whole(greek_reply(100, ("aleph",))) == whole(greek_reply(100, ()))


@given(st.integers(1, 100), st.integers(0, 400), st.integers(1, 60))
def test_stop_ends_exactly_before_the_first_occurrence(max_tokens, start, length):
    text = whole(greek_reply(300, ()))
    stop = text[start : start + length]
    reply = greek_reply(max_tokens, (stop,))
    full = whole(greek_reply(max_tokens, ()))
    at = full.find(stop)
    assert whole(reply) == (full if at < 0 else full[:at])
    assert reply.finish == ("length" if at < 0 else "stop")


def test_a_tool_call_in_tokens():
    reply = call_reply('{"city":"alpha"}', 100)
    assert (whole(reply), reply.tokens, reply.finish) == ('{"city":"alpha"}', 4, "tool_calls")
    cut = call_reply('{"city":"alpha"}', 2)
    assert (whole(cut), cut.tokens, cut.finish) == ('{"city":', 2, "length")
