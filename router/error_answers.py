"""A refusal as bytes: status, headers, body and error event in the caller's protocol.

Hopeless refusals say so by ``x-should-retry``; the others tell when to come back, at most a minute.
"""

from __future__ import annotations

import math

import msgspec

from router.errors import Form, NoValidKey, RouterError

#: Clients obey at most this; a longer value ends their retries for good.
LONGEST_RETRY_S = 60
#: Below this the wait is also given in milliseconds, which the official clients read first.
FINE_RETRY_S = 10.0


def status_of(error: RouterError, form: Form) -> int:
    """The status in the caller's protocol."""
    if form == "anthropic" and error.anthropic_status is not None:
        return error.anthropic_status
    return error.status


def headers_of(error: RouterError) -> list[tuple[str, str]]:
    """Headers that belong to the error itself."""
    headers = [("content-type", "application/json")]
    if isinstance(error, NoValidKey):
        headers.append(("www-authenticate", "Bearer"))
    if error.allow is not None:
        headers.append(("allow", error.allow))
    if error.hopeless:
        headers.append(("x-should-retry", "false"))
    elif error.retry_after is not None:
        wait = min(max(error.retry_after, 0.05), LONGEST_RETRY_S)
        headers.append(("retry-after", str(math.ceil(wait))))
        if wait < FINE_RETRY_S:
            headers.append(("retry-after-ms", str(round(wait * 1000))))
    return headers


def body_of(error: RouterError, form: Form, request_id: str) -> bytes:
    """The body of an error answer."""
    if form == "anthropic":
        return msgspec.json.encode(_anthropic(error, request_id))
    return msgspec.json.encode({"error": _openai(error, request_id)})


def event_of(error: RouterError, form: Form, request_id: str, sequence: int) -> bytes:
    """The error event that ends a broken stream; ``sequence`` is the next number of a responses stream."""
    if form == "anthropic":
        data = msgspec.json.encode(_anthropic(error, request_id))
        return b"event: error\ndata: %b\n\n" % data
    nested = _openai(error, request_id)
    if form == "responses":
        # Flat as the schema has it, nested as the real service sends it: clients raise for the nested one only.
        flat = {"type": "error", "sequence_number": sequence, "code": nested["code"]}
        flat |= {"message": nested["message"], "param": nested["param"], "error": nested}
        return b"event: error\ndata: %b\n\n" % msgspec.json.encode(flat)
    return b"data: %b\n\n" % msgspec.json.encode({"error": nested})


def _openai(error: RouterError, request_id: str) -> dict[str, str | None]:
    return {
        "message": f"{error.message} (request id {request_id})",
        "type": error.type,
        "param": error.param,
        "code": error.code,
    }


def _anthropic(error: RouterError, request_id: str) -> dict[str, object]:
    message = error.anthropic_message or error.message
    return {
        "type": "error",
        "error": {
            "type": error.anthropic_type,
            "message": f"{message} (request id {request_id})",
        },
        "request_id": request_id,
    }
