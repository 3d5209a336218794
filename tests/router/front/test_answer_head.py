"""Heads of answers."""

from __future__ import annotations

import pytest

from router.answer_head import AnswerHeads, has_no_body, head_bytes, header_lines


def test_a_begin_is_made_once_a_second():
    heads = AnswerHeads(784111777.0)
    begin = heads.begin(200)
    assert begin == "HTTP/1.1 200 OK\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
    heads.tick(784111777.9)
    assert heads.begin(200) is begin
    heads.tick(784111778.0)
    assert "08:49:38" in heads.begin(200)
    # Also when the clock is set back.
    heads.tick(784111777.0)
    assert heads.begin(200) == begin


def test_statuses_without_a_name():
    assert AnswerHeads(0).begin(499).startswith("HTTP/1.1 499 Unknown\r\n")


def test_control_characters_do_not_get_out():
    for code in [*range(32), 127, *range(128, 160)]:
        assert header_lines([("x", f"a{chr(code)}b")]) == "x: a b\r\n"
    assert header_lines([("x", "a"), ("y", "b")]) == "x: a\r\ny: b\r\n"
    # Characters that would be a line's end in a narrower coding.
    assert head_bytes(header_lines([("x", "\u560d\u560aé\U0001f600")])) == b"x: ??\xe9?\r\n"


@pytest.mark.parametrize(
    ("method", "status", "none"),
    [("GET", 200, False), ("HEAD", 200, True), ("POST", 204, True), ("GET", 304, True)],
)
def test_answers_that_end_with_their_head(method, status, none):
    assert has_no_body(method, status) is none
