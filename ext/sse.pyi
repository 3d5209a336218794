"""Reads alongside a stream of server-sent events: has it begun, has it ended, what was used."""

Usage = tuple[int | None, int | None, int | None]
"""(prompt, completion, cached) tokens; prompt includes the cached part in every protocol; None: not reported."""

class EventScanner:
    """Reads one answer's stream. It is fed every chunk, split anywhere; lines end with LF, CRLF or CR."""

    def __init__(self) -> None: ...
    def feed(self, chunk: bytes) -> int:
        """Reads on; returns how many data events this chunk completed."""
    def close(self) -> None:
        """The stream has ended: an event without its blank line is read as well."""
    @property
    def started(self) -> bool:
        """A line that is neither blank nor a comment has been completed."""
    @property
    def first_data(self) -> bool:
        """A data event has been completed."""
    @property
    def events(self) -> int:
        """Data events so far, `data: [DONE]` and events without data not counted."""
    @property
    def deltas(self) -> int:
        """Events that carried output (text, reasoning, tool arguments): about the tokens, where usage is absent."""
    @property
    def finished(self) -> bool:
        """A finish_reason or stop_reason was given."""
    @property
    def ended(self) -> bool:
        """The success or failure terminator was seen: `data: [DONE]`, message_stop, response.completed, .incomplete or
        .failed."""
    @property
    def failed(self) -> bool:
        """An error event was seen."""
    @property
    def usage(self) -> Usage:
        """Last value of each; llama.cpp's `timings` fill what `usage` leaves out."""
    @property
    def usage_from_timings(self) -> bool:
        """The completion tokens come from llama.cpp's `timings`, which count one of `n` choices."""

def usage_of_body(body: bytes) -> Usage | None:
    """Usage in a whole JSON answer, None where it reports none."""

def model_span(event: bytes, start: int = 0) -> tuple[int, int] | None:
    """Where the member `model` stands in an event (or in a bare JSON object), read from `start`: from the opening quote
    of its name to the end of its value. Looked for where the protocols have it: in the event itself or in its `message`
    or `response`. None: not there, or no string."""

def whole_events_end(buffer: bytes) -> int:
    """How many bytes of the buffer are whole events, 0 if none is."""
