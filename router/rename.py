"""The model's name in an answer: what the client asked for, in every chunk (R16, FR30).

The first event that has the member ``model`` gives the exact bytes from its opening quote to the end of
its value. In each later event these bytes are looked for and replaced, at the first place where a ``{``, a
``,`` or white space stands before them: a quote inside text is always escaped, so text is never hit. An
event without them is read in full.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from ext.sse import model_span, whole_events_end

_BEFORE_MEMBER = frozenset(b"{, \t\r\n")


@lru_cache(maxsize=4096)
def member(asked: str) -> bytes:
    """The member ``model`` with what the client asked for, as compact JSON."""
    return b'"model":' + msgspec.json.encode(asked)


class NameSplicer:
    """For one stream; ``asked`` is what the client called the model."""

    def __init__(self, asked: str) -> None:
        self._written = member(asked)
        self._found = b""

    def splice(self, events: bytes) -> bytes:
        """Whole events with the name replaced in each."""
        if events.count(b"data:") <= 1:
            return self._splice_event(events)
        done = []
        while events:
            # One event after the other: each has the name at its own place, or not at all.
            end = first_event_end(events)
            done.append(self._splice_event(events[:end]))
            events = events[end:]
        return b"".join(done)

    def _splice_event(self, event: bytes) -> bytes:
        found = self._found
        if found:
            at = event.find(found)
            if at > 0 and event[at - 1] in _BEFORE_MEMBER:
                return b"".join((event[:at], self._written, event[at + len(found) :]))
        span = model_span(event)
        if span is None:
            return event
        start, end = span
        self._found = event[start:end]
        return b"".join((event[:start], self._written, event[end:]))


def first_event_end(events: bytes) -> int:
    """Where the first of several whole events ends; all of it when no blank line is found."""
    ends = [
        at + len(blank)
        for blank in (b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n")
        if (at := events.find(blank)) >= 0
    ]
    return min(ends, default=len(events))


def names_other(answer: bytes, asked: str) -> bool:
    """Whether an event or a whole answer names its model, and not as the client did."""
    if member(asked) in answer:
        # A quote inside text is always escaped: these bytes are a member, and engines write no other there.
        return False
    span = model_span(answer)
    if span is None:
        return False
    value = answer[span[0] : span[1]].partition(b":")[2].strip()
    return value != msgspec.json.encode(asked)


def rename_body(body: bytes, asked: str) -> bytes:
    """A whole JSON answer that names the model as the client did; the same object when it does."""
    if not names_other(body, asked):
        return body
    span = model_span(body)
    assert span is not None
    return b"".join((body[: span[0]], member(asked), body[span[1] :]))


def keep_whole_events(held: bytes) -> tuple[bytes, bytes]:
    """(the whole events, the unfinished rest)."""
    end = whole_events_end(held)
    return held[:end], held[end:]
