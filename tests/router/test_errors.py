"""The error table, row by row, in both forms."""

from __future__ import annotations

import json

import pytest

from router import error_answers, errors
from router.admit import AllTried, Loading, NothingServes, QueueFull, SwitchedOff, WaitedTooLong
from router.refusals import spread, to_error

ROWS = [
    (errors.BadMember, 400, "invalid_request_error", None, 400, "invalid_request_error"),
    (errors.MemberRefused, 400, "invalid_request_error", "unsupported_parameter", 400, "invalid_request_error"),
    (errors.ContextTooLong, 400, "invalid_request_error", "context_length_exceeded", 400, "invalid_request_error"),
    (errors.NoValidKey, 401, "invalid_request_error", "invalid_api_key", 401, "authentication_error"),
    (errors.UnknownModel, 404, "invalid_request_error", "model_not_found", 404, "not_found_error"),
    (errors.UnknownPath, 404, "invalid_request_error", None, 404, "not_found_error"),
    (errors.WrongMethod, 405, "invalid_request_error", None, 405, "invalid_request_error"),
    (errors.BodyLate, 408, "invalid_request_error", None, 408, "invalid_request_error"),
    (errors.BodyOverCap, 413, "invalid_request_error", "request_too_large", 413, "request_too_large"),
    (errors.EncodedBody, 415, "invalid_request_error", None, 415, "invalid_request_error"),
    (errors.Overloaded, 503, "service_unavailable_error", "server_is_overloaded", 529, "overloaded_error"),
    (errors.ModelLoading, 503, "service_unavailable_error", "model_loading", 529, "overloaded_error"),
    (errors.NoEndpoint, 503, "service_unavailable_error", "no_endpoint", 503, "api_error"),
    (errors.ModelOff, 503, "service_unavailable_error", "model_off", 503, "api_error"),
    (errors.UpstreamBroke, 502, "server_error", "upstream_error", 502, "api_error"),
    (errors.TimedOut, 504, "server_error", "timeout", 504, "timeout_error"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "status", "type_", "code", "a_status", "a_type"), ROWS)
def test_a_row(kind, status, type_, code, a_status, a_type):
    error = kind("what, why, what to do", param="model")
    assert (
        error_answers.status_of(error, "openai")
        == error_answers.status_of(error, "responses")
        == status
    )
    assert error_answers.status_of(error, "anthropic") == a_status
    body = json.loads(error_answers.body_of(error, "openai", "req-1"))
    message = "what, why, what to do (request id req-1)"
    assert body == {"error": {"message": message, "type": type_, "param": "model", "code": code}}
    anthropic = json.loads(error_answers.body_of(error, "anthropic", "req-1"))
    assert anthropic == {
        "type": "error",
        "error": {"type": a_type, "message": message},
        "request_id": "req-1",
    }


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, {"retry-after": "1", "retry-after-ms": "50"}),
        (2.4, {"retry-after": "3", "retry-after-ms": "2400"}),
        (10.0, {"retry-after": "10"}),
        (3600.0, {"retry-after": "60"}),
    ],
)
def test_retry_after_is_whole_and_at_most_a_minute(seconds, expected):
    headers = dict(error_answers.headers_of(errors.Overloaded("x", retry_after=seconds)))
    assert headers == expected | {"content-type": "application/json"}


def test_a_hopeless_one_says_so_and_no_time():
    headers = dict(error_answers.headers_of(errors.TimedOut("x", hopeless=True, retry_after=1.0)))
    assert headers["x-should-retry"] == "false"
    assert "retry-after" not in headers


def test_error_events():
    error = errors.UpstreamBroke("broke")
    chat = error_answers.event_of(error, "openai", "r", 3)
    assert chat.startswith(b"data: ")
    assert chat.endswith(b"\n\n")
    assert set(json.loads(chat[6:])["error"]) == {"message", "type", "param", "code"}
    anthropic = error_answers.event_of(error, "anthropic", "r", 3)
    assert anthropic.startswith(b"event: error\ndata: ")
    responses = error_answers.event_of(error, "responses", "r", 3)
    flat = json.loads(responses.partition(b"data: ")[2])
    assert (flat["type"], flat["sequence_number"], flat["code"]) == ("error", 3, "upstream_error")
    assert flat["error"]["code"] == "upstream_error"


@pytest.mark.parametrize(
    ("reason", "kind", "words"),
    [
        (QueueFull(1000, 3.0), errors.Overloaded, "1000 requests wait"),
        (WaitedTooLong(60.0, 3.0), errors.Overloaded, "waited its 60 s"),
        (Loading(15.0, 40.0), errors.ModelLoading, "about 40 s to go"),
        (Loading(15.0, None), errors.ModelLoading, "being loaded"),
        (SwitchedOff(), errors.ModelOff, "switched off"),
        (NothingServes("no_room", "needs 24 GB", None), errors.NoEndpoint, "no room for it: needs 24 GB"),
        (NothingServes("failed", "exit 1", 20.0), errors.NoEndpoint, "exit 1; next try in 20 s"),
        (NothingServes("something new", "", None), errors.NoEndpoint, "something new"),
        (AllTried(), errors.NoEndpoint, "no endpoint of it could be used"),
    ],
)  # fmt: skip
def test_words_of_reasons(reason, kind, words):
    error = to_error(reason, "m", "10.0.0.1:5")
    assert type(error) is kind
    assert words in error.message
    assert error.hopeless or 1.0 <= error.retry_after <= 60.0


def test_waits_are_spread_by_client():
    waits = [spread(30.0, f"10.0.0.{n}:1") for n in range(200)]
    assert 27.0 <= min(waits) < 28.5
    assert 31.5 < max(waits) <= 33.0
