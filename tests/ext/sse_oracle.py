"""Plain Python specification of ext.sse: the whole stream at once, every event parsed as JSON."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

TERMINAL = {"message_stop", "response.completed", "response.incomplete", "response.failed"}
OUTPUT = {
    "content",
    "reasoning_content",
    "reasoning",
    "refusal",
    "text",
    "thinking",
    "partial_json",
    "arguments",
}
Usage = tuple[int | None, int | None, int | None]


@dataclass
class Read:
    events: int = 0
    deltas: int = 0
    started: bool = False
    first_data: bool = False
    ended: bool = False
    finished: bool = False
    failed: bool = False
    usage: Usage = (None, None, None)


def lines_of(stream: bytes) -> list[bytes]:
    return re.split(rb"\r\n|\n|\r", stream)


def events_of(stream: bytes) -> list[tuple[str, bytes]]:
    """(type, data) of each event that a blank line has ended."""
    events, data, kind = [], None, ""
    for line in lines_of(stream)[:-1]:
        if line == b"":
            if data is not None:
                events.append((kind, data.strip(bytes(range(33)))))
            data, kind = None, ""
        name, colon, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data = value if data is None else data + b"\n" + value
        elif name == b"event" and colon:
            kind = value.decode(errors="replace")
    return events


def first_value(data: bytes) -> Any:
    """The JSON value that the data begins with, None where there is no whole one."""
    try:
        return json.JSONDecoder().raw_decode(data.decode())[0]
    except ValueError:
        return None


def members(value: Any) -> list[tuple[str, Any]]:
    """All (key, value) inside, at any depth."""
    if isinstance(value, dict):
        return [pair for k, v in value.items() for pair in [(k, v), *members(v)]]
    if isinstance(value, list):
        return [pair for item in value for pair in members(item)]
    return []


SAME = {"output_tokens": "completion_tokens"}
USAGE_NAMES = [
    "prompt_tokens",
    "input_tokens",
    "completion_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
]


def note(into: dict[Any, int], holder: Any, names: list[str]) -> None:
    """Notes the whole numbers under these names; a later member of the same meaning wins."""
    for name, value in holder.items() if isinstance(holder, dict) else ():
        if name in ("prompt_tokens_details", "input_tokens_details") and "prompt_tokens" in names:
            note(into, value, ["cached_tokens"])
        if name in names and type(value) is int and 0 <= value < 10**15:
            into[SAME.get(name, name)] = value


def usage_of(messages: list[Any]) -> Usage:
    """Usage of the JSON objects of one answer, the last value of each member winning."""
    usage: dict[str, int] = {}
    timings: dict[str, int] = {}
    for message in messages:
        for name, value in message.items():
            if name in ("message", "response") and isinstance(value, dict):
                note(usage, value.get("usage"), USAGE_NAMES)
            elif name == "usage":
                note(usage, value, USAGE_NAMES)
            elif name == "timings":
                note(timings, value, ["prompt_n", "predicted_n", "cache_n"])
    prompt = usage.get("prompt_tokens")
    if prompt is None and "input_tokens" in usage:
        prompt = usage["input_tokens"]
        prompt += usage.get("cache_read_input_tokens", 0)
        prompt += usage.get("cache_creation_input_tokens", 0)
    if prompt is None and "prompt_n" in timings:
        prompt = timings["prompt_n"] + timings.get("cache_n", 0)
    completion = usage.get("completion_tokens", timings.get("predicted_n"))
    cached = usage.get(
        "cached_tokens", usage.get("cache_read_input_tokens", timings.get("cache_n"))
    )
    return prompt, completion, cached


def read(stream: bytes, closed: bool = False) -> Read:
    found = Read()
    if closed:
        stream += b"\n\n"
    found.started = any(line and line[:1] != b":" for line in lines_of(stream)[:-1])
    messages = []
    for kind, data in events_of(stream):
        if data == b"[DONE]":
            found.ended = True
            continue
        if not data:
            continue
        found.events += 1
        found.first_data = True
        found.ended = found.ended or kind in TERMINAL
        found.failed = found.failed or kind == "error"
        message = first_value(data)
        if not isinstance(message, dict):
            continue
        messages.append(message)
        output = members(message.get("choices")) + members(message.get("delta"))
        found.deltas += any(k in OUTPUT and isinstance(v, str) and v != "" for k, v in output) or (
            isinstance(message.get("delta"), str) and message["delta"] != ""
        )
        found.finished = found.finished or any(
            k in ("finish_reason", "stop_reason") and isinstance(v, str) for k, v in output
        )
        found.ended = found.ended or any(message.get("type") == kind for kind in TERMINAL)
        error = message.get("error")
        found.failed = found.failed or message.get("type") == "error"
        found.failed = found.failed or isinstance(error, str | dict | list)
    found.usage = usage_of(messages)
    return found
