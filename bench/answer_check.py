"""Is a contestant's answer the engine's answer? Asked before anything is timed.

Equal in content, not in bytes: a router may frame, order or reformat as it likes, but it may not lose, add or change
anything a client reads, nor hold back a stream until it is over.
"""

from __future__ import annotations

import http.client
import time
import urllib.parse
from typing import Any

import msgspec

from bench.chat_bodies import PATH, chat_body
from bench.errors import ContestantFailed, WrongAnswer

DONE = "[DONE]"
_TIMEOUT_S = 10.0


class StreamedAnswer(msgspec.Struct, frozen=True):
    """A stream's events in order (JSON values; the last one `[DONE]`), and when they came."""

    events: list[Any]
    first_event_s: float
    all_s: float


def check_answers(name: str, url: str, engine_url: str) -> None:
    """Raises WrongAnswer unless `url` answers as the engine at `engine_url` does."""
    compare_plain(name, ask(url), ask(engine_url))
    compare_streams(name, ask_streaming(url), ask_streaming(engine_url))


def compare_plain(name: str, answer: Any, expected: Any) -> None:
    """A whole answer against the engine's own."""
    if answer != expected:
        raise WrongAnswer(f"{name} answers {answer!r}; the engine said {expected!r}")


def compare_streams(name: str, answer: StreamedAnswer, expected: StreamedAnswer) -> None:
    """Every event, in order, once, as it was sent: half of the time must be too long for the first."""
    for number, (event, sent) in enumerate(zip(answer.events, expected.events, strict=False)):
        if event != sent:
            raise WrongAnswer(f"{name}: event {number} is {event!r}; the engine sent {sent!r}")
    if len(answer.events) != len(expected.events):
        raise WrongAnswer(
            f"{name}: {len(answer.events)} events; the engine sent {len(expected.events)}"
        )
    if not answer.events or answer.events[-1] != DONE:
        raise WrongAnswer(f"{name}: the stream does not end with {DONE}")
    if answer.first_event_s > answer.all_s / 2:
        raise WrongAnswer(
            f"{name} holds the stream back: first event after {answer.first_event_s:.3f} s "
            f"of {answer.all_s:.3f} s"
        )


def ask(url: str) -> Any:
    """The whole answer, as JSON; raises ContestantFailed when there is none or it is an error."""
    connection = _connection(url)
    try:
        return msgspec.json.decode(_post(connection, stream=False).read())
    except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
        raise ContestantFailed(f"{url} does not answer: {error!r}") from error
    finally:
        connection.close()


def ask_streaming(url: str) -> StreamedAnswer:
    """The streamed answer; raises ContestantFailed when it cannot be had whole."""
    connection = _connection(url)
    started = time.monotonic()
    lines: list[tuple[float, bytes]] = []
    try:
        response = _post(connection, stream=True)
        while line := response.readline():
            lines.append((time.monotonic() - started, line))
        return read_events(lines)
    except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
        raise ContestantFailed(f"{url} does not stream an answer: {error!r}") from error
    finally:
        connection.close()


def read_events(lines: list[tuple[float, bytes]]) -> StreamedAnswer:
    """Server-sent events from lines with the time (s) at which each came."""
    times: list[float] = []
    events: list[Any] = []
    for at, line in lines:
        if line.startswith(b"data:"):
            data = line.removeprefix(b"data:").strip()
            events.append(DONE if data == DONE.encode() else msgspec.json.decode(data))
            times.append(at)
    return StreamedAnswer(events, times[0] if times else 0.0, times[-1] if times else 0.0)


def get_json(url: str, path: str) -> Any:
    """GET `path` as JSON; raises ContestantFailed."""
    connection = _connection(url)
    try:
        connection.request("GET", path)
        return msgspec.json.decode(connection.getresponse().read())
    except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
        raise ContestantFailed(f"{url}{path} does not answer: {error!r}") from error
    finally:
        connection.close()


def _connection(url: str) -> http.client.HTTPConnection:
    parts = urllib.parse.urlsplit(url)
    assert parts.hostname is not None
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S)


def _post(connection: http.client.HTTPConnection, *, stream: bool) -> http.client.HTTPResponse:
    connection.request("POST", PATH, chat_body(stream=stream), {"content-type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise ContestantFailed(f"status {response.status}: {response.read(500)!r}")
    return response
