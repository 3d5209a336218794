# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Reads alongside a stream of server-sent events: has it begun, has it ended, what was used.

The bytes themselves pass elsewhere; nothing here changes or holds them back. Lines end with LF, CRLF or CR, at any
split. A line, or the data of an event, is copied only when a chunk ends inside it; one above 1 MiB counts as an event
but is not read.

An event's JSON is walked once, shallowly: strings are jumped over 16 bytes at a time, keys are looked at, nothing is
built. A key counts only where the protocols have it (on the path choices / delta / message / response), never inside
text, where a quote is always escaped. JSON that breaks off says what it said up to there.

Three protocols report usage differently; `usage` is one form of it, the prompt with its cached part included:
    OpenAI      usage.prompt_tokens, completion_tokens, prompt_tokens_details.cached_tokens (responses: input_tokens,
                output_tokens, input_tokens_details.cached_tokens)
    Anthropic   usage.input_tokens without the cached part, cache_read_input_tokens, cache_creation_input_tokens,
                output_tokens; in message_start and, later, message_delta: the last value of each wins
    llama.cpp   timings.prompt_n without the cached part, cache_n, predicted_n; used where there is no usage
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy

from ext.json_text cimport AT_QUOTE, JsonStop, json_skip

cdef enum:
    HELD_SIZE = 1 << 20      # bytes of an unfinished line or event that are kept
    PATH_SIZE = 8            # deeper than this no key counts
    MAX_DIGITS = 15

cdef Counts NOTHING = Counts(-1, -1, -1, -1, -1, -1)


cdef inline bint same(const unsigned char *text, const char *name, size_t size) noexcept nogil:
    return memcmp(text, name, size) == 0


cdef Key key_of(const unsigned char *text, size_t size) noexcept nogil:
    if size == 4:
        if same(text, b"type", 4):
            return TYPE
        if same(text, b"text", 4):
            return TEXT
    elif size == 5:
        if same(text, b"usage", 5):
            return USAGE
        if same(text, b"delta", 5):
            return DELTA
        if same(text, b"model", 5):
            return MODEL
        if same(text, b"error", 5):
            return ERROR
    elif size == 7:
        if same(text, b"choices", 7):
            return CHOICES
        if same(text, b"content", 7) or same(text, b"refusal", 7):
            return TEXT
        if same(text, b"message", 7):
            return WRAPPER
        if same(text, b"timings", 7):
            return TIMINGS
        if same(text, b"cache_n", 7):
            return CACHE_N
    elif size == 8:
        if same(text, b"response", 8):
            return WRAPPER
        if same(text, b"thinking", 8):
            return TEXT
        if same(text, b"prompt_n", 8):
            return PROMPT_N
    elif size == 9:
        if same(text, b"reasoning", 9) or same(text, b"arguments", 9):
            return TEXT
    elif size == 11:
        if same(text, b"stop_reason", 11):
            return FINISH
        if same(text, b"predicted_n", 11):
            return PREDICTED_N
    elif size == 12:
        if same(text, b"input_tokens", 12):
            return INPUT
        if same(text, b"partial_json", 12):
            return TEXT
    elif size == 13:
        if same(text, b"finish_reason", 13):
            return FINISH
        if same(text, b"prompt_tokens", 13):
            return PROMPT_TOTAL
        if same(text, b"output_tokens", 13):
            return COMPLETION
        if same(text, b"cached_tokens", 13):
            return CACHED
    elif size == 17:
        if same(text, b"completion_tokens", 17):
            return COMPLETION
        if same(text, b"reasoning_content", 17):
            return TEXT
    elif size == 20:
        if same(text, b"input_tokens_details", 20):
            return DETAILS
    elif size == 21:
        if same(text, b"prompt_tokens_details", 21):
            return DETAILS
    elif size == 23:
        if same(text, b"cache_read_input_tokens", 23):
            return CACHE_READ
    elif size == 27:
        if same(text, b"cache_creation_input_tokens", 27):
            return CACHE_WRITTEN
    return OTHER


cdef bint is_terminal(const unsigned char *type, size_t size) noexcept nogil:
    return (
        (size == 12 and same(type, b"message_stop", 12))
        or (size == 18 and same(type, b"response.completed", 18))
        or (size == 19 and same(type, b"response.incomplete", 19))
        or (size == 15 and same(type, b"response.failed", 15))
    )


cdef inline const unsigned char *closing_quote(const unsigned char *at, const unsigned char *end) noexcept nogil:
    # From inside a string to the quote that ends it, or NULL. Engines' invalid bytes are passed over.
    cdef JsonStop stop
    while True:
        at = json_skip(at, end, &stop)
        if stop == AT_QUOTE:
            return at
        at += 2 if at < end and at[0] == 92 else 1
        if at >= end:
            return NULL


cdef inline void put_usage(Key key, int64_t value, Counts *counts) noexcept nogil:
    if key == PROMPT_TOTAL:
        counts.prompt_total = value
    elif key == INPUT:
        counts.input = value
    elif key == COMPLETION:
        counts.completion = value
    elif key == CACHE_READ:
        counts.cache_read = value
    elif key == CACHE_WRITTEN:
        counts.cache_written = value


cdef inline void put_timing(Key key, int64_t value, Counts *counts) noexcept nogil:
    if key == PROMPT_N:
        counts.input = value
    elif key == CACHE_N:
        counts.cache_read = value
    elif key == PREDICTED_N:
        counts.completion = value


cdef const unsigned char *take_number(const unsigned char *at, const unsigned char *end, int64_t *value) noexcept nogil:
    # `value` is -1 unless this is a whole number that is not negative.
    cdef const unsigned char *start = at
    cdef int64_t number = 0
    while at < end and at[0] >= 48 and at[0] <= 57:
        if at - start < MAX_DIGITS:
            number = number * 10 + (at[0] - 48)
        at += 1
    value[0] = number if at > start and at - start <= MAX_DIGITS else -1
    while at < end and at[0] != 44 and at[0] != 125 and at[0] != 93 and at[0] > 32:
        value[0] = -1
        at += 1
    return at


cdef void read_object(
    const unsigned char *origin, const unsigned char *at, const unsigned char *end,
    Counts *usage, Counts *timings, Reading *said,
) noexcept nogil:
    # `origin`: what the span of the model's member is counted from.
    cdef Key path[PATH_SIZE + 1]
    cdef Key key = OTHER, inside
    cdef int depth = 0
    cdef bint own, output
    cdef unsigned char c
    cdef const unsigned char *start
    cdef const unsigned char *key_start = at
    cdef const unsigned char *stop
    cdef int64_t number
    path[0] = OTHER
    said.delta = said.finished = said.error = said.terminal = False
    said.model_start = said.model_stop = -1
    while at < end and at[0] <= 32:
        at += 1
    if at >= end or at[0] != 123:
        return
    while at < end:
        c = at[0]
        if c == 34:
            start = at + 1
            stop = closing_quote(start, end)
            if stop == NULL:
                return
            at = stop + 1
            while at < end and at[0] <= 32:
                at += 1
            if at < end and at[0] == 58:
                key = key_of(start, stop - start) if depth <= PATH_SIZE else OTHER
                key_start = start - 1
                at += 1
                continue
            if key != OTHER:
                own = depth == 1 or (depth == 2 and path[2] == WRAPPER)
                output = depth >= 2 and (path[2] == CHOICES or path[2] == DELTA)
                if key == TEXT or key == DELTA:
                    if stop > start and (output if key == TEXT else depth == 1):
                        said.delta = True
                elif key == FINISH:
                    if output:
                        said.finished = True
                elif key == MODEL:
                    if own and said.model_start < 0:
                        said.model_start = key_start - origin
                        said.model_stop = stop + 1 - origin
                elif key == TYPE:
                    if depth == 1:
                        said.terminal |= is_terminal(start, stop - start)
                        said.error |= stop - start == 5 and same(start, b"error", 5)
                elif key == ERROR:
                    said.error |= depth == 1
                key = OTHER
        elif c == 123 or c == 91:
            own = depth == 1 or (depth == 2 and path[2] == WRAPPER)
            inside = OTHER
            if key == USAGE:
                if own:
                    inside = key
            elif key == TIMINGS:
                # llama.cpp's own, and it wraps nothing.
                if depth == 1:
                    inside = key
            elif key == CHOICES or key == DELTA or key == WRAPPER:
                inside = key
            elif key == DETAILS:
                if depth <= PATH_SIZE and path[depth] == USAGE:
                    inside = DETAILS
            elif key == ERROR:
                said.error |= depth == 1
            depth += 1
            if depth <= PATH_SIZE:
                path[depth] = inside
            key = OTHER
            at += 1
        elif c == 125 or c == 93:
            depth -= 1
            key = OTHER
            at += 1
            if depth <= 0:
                return
        elif key != OTHER and c >= 48 and c <= 57:
            at = take_number(at, end, &number)
            if number >= 0 and depth <= PATH_SIZE:
                if path[depth] == USAGE:
                    put_usage(key, number, usage)
                elif path[depth] == TIMINGS:
                    put_timing(key, number, timings)
                elif path[depth] == DETAILS and key == CACHED:
                    usage.cached = number
            key = OTHER
        else:
            if c > 32:  # a comma, or a value that nothing is read from: null, true, a negative number
                key = OTHER
            at += 1


cdef tuple usage_of(const Counts *usage, const Counts *timings):
    cdef int64_t prompt = usage.prompt_total, completion = usage.completion, cached = usage.cached
    if prompt < 0 and usage.input >= 0:
        prompt = usage.input + max(usage.cache_read, 0) + max(usage.cache_written, 0)
    if prompt < 0 and timings.input >= 0:
        prompt = timings.input + max(timings.cache_read, 0)
    if completion < 0:
        completion = timings.completion
    if cached < 0:
        cached = usage.cache_read if usage.cache_read >= 0 else timings.cache_read
    return (
        prompt if prompt >= 0 else None,
        completion if completion >= 0 else None,
        cached if cached >= 0 else None,
    )


cdef const unsigned char *json_start(const unsigned char *at, const unsigned char *end) noexcept nogil:
    # The first data of an event, or the beginning of a bare JSON object; NULL where there is none.
    while at < end:
        while at < end and at[0] <= 32:
            at += 1
        if at < end and at[0] == 123:
            return at
        if end - at >= 5 and same(at, b"data:", 5):
            return at + 5
        while at < end and at[0] != 10 and at[0] != 13:
            at += 1
    return NULL


def usage_of_body(bytes body not None):
    cdef Counts usage = NOTHING, timings = NOTHING
    cdef Reading said
    cdef const unsigned char *at = body
    read_object(at, at, at + len(body), &usage, &timings, &said)
    found = usage_of(&usage, &timings)
    return None if found == (None, None, None) else found


def model_span(bytes event not None, Py_ssize_t start=0):
    cdef Counts usage = NOTHING, timings = NOTHING
    cdef Reading said
    cdef Py_ssize_t size = len(event)
    cdef const unsigned char *origin = event
    cdef const unsigned char *at
    if start < 0 or start > size:
        raise ValueError(f"start must be from 0 to {size}")
    at = json_start(origin + start, origin + size)
    if at == NULL:
        return None
    read_object(origin, at, origin + size, &usage, &timings, &said)
    return None if said.model_start < 0 else (said.model_start, said.model_stop)


def whole_events_end(bytes buffer not None):
    cdef const unsigned char *text = buffer
    cdef Py_ssize_t at = len(buffer), line_end
    while at > 0:
        at -= 1
        if text[at] != 10 and text[at] != 13:
            continue
        line_end = at + 1
        if text[at] == 10 and at > 0 and text[at - 1] == 13:
            at -= 1
        if at == 0 or text[at - 1] == 10 or text[at - 1] == 13:
            return line_end
    return 0


cdef class EventScanner:
    def __cinit__(self):
        self._usage = NOTHING
        self._timings = NOTHING

    def __dealloc__(self):
        free(self._line)
        free(self._data)

    @property
    def usage(self):
        return usage_of(&self._usage, &self._timings)

    @property
    def usage_from_timings(self):
        return self._usage.completion < 0 and self._timings.completion >= 0

    def feed(self, bytes chunk not None):
        cdef const unsigned char *at = chunk
        cdef const unsigned char *end = at + len(chunk)
        cdef const unsigned char *stop
        cdef const unsigned char *line_feed = at - 1
        cdef const unsigned char *carriage = at - 1
        cdef int64_t before = self.events
        if at < end and self._skip_lf:
            self._skip_lf = False
            if at[0] == 10:
                at += 1
        while at < end:
            # The next of each kind is looked for once, so that lines cost their own length.
            if line_feed < at:
                line_feed = <const unsigned char *>memchr(at, 10, end - at)
                if line_feed == NULL:
                    line_feed = end
            if carriage < at:
                carriage = <const unsigned char *>memchr(at, 13, end - at)
                if carriage == NULL:
                    carriage = end
            stop = line_feed if line_feed < carriage else carriage
            if self._line_size or stop == end:
                extend(&self._line, &self._line_size, &self._line_room, at, stop - at)
                if stop == end:
                    break
                self._take_line(self._line, self._line_size)
                self._line_size = 0
                self._settle()
            else:
                self._take_line(at, stop - at)
            at = stop + 1
            if stop == carriage:
                if at == end:
                    self._skip_lf = True
                elif at[0] == 10:
                    at += 1
        self._settle()
        return self.events - before

    def close(self):
        if self._line_size:
            self._take_line(self._line, self._line_size)
            self._line_size = 0
        self._dispatch()

    cdef int _settle(self) except -1:
        # Data that was taken in place moves to our own memory before that place goes away.
        if self._in_place != NULL:
            extend(&self._data, &self._data_size, &self._data_room, self._in_place, self._in_place_size)
            self._in_place = NULL
        return 0

    cdef int _take_line(self, const unsigned char *line, size_t size) except -1:
        cdef size_t value
        if size == 0:
            return self._dispatch()
        if line[0] == 58:
            return 0
        self.started = True
        if size >= 4 and same(line, b"data", 4) and (size == 4 or line[4] == 58):
            value = 5 if size > 4 else 4
            if value < size and line[value] == 32:
                value += 1
            self._data_lines += 1
            if self._data_lines == 1:
                self._in_place = line + value
                self._in_place_size = size - value
            else:
                self._settle()
                extend(&self._data, &self._data_size, &self._data_room, <const unsigned char *>b"\n", 1)
                extend(&self._data, &self._data_size, &self._data_room, line + value, size - value)
        elif size >= 6 and same(line, b"event:", 6):
            value = 7 if size > 6 and line[6] == 32 else 6
            self._named_end = is_terminal(line + value, size - value)
            self._named_error = size - value == 5 and same(line + value, b"error", 5)
        return 0

    cdef int _dispatch(self) except -1:
        # A blank line: the event is whole.
        cdef const unsigned char *at = self._in_place
        cdef size_t size = self._in_place_size
        cdef Reading said
        if self._in_place == NULL:
            at = self._data
            size = self._data_size
        if self._data_lines:
            while size and at[0] <= 32:
                at += 1
                size -= 1
            while size and at[size - 1] <= 32:
                size -= 1
            if size == 6 and same(at, b"[DONE]", 6):
                self.ended = True
            elif size:
                self.events += 1
                self.first_data = True
                read_object(at, at, at + size, &self._usage, &self._timings, &said)
                self.deltas += said.delta
                self.finished |= said.finished
                self.failed |= said.error | self._named_error
                self.ended |= said.terminal | self._named_end
        self._data_lines = 0
        self._data_size = 0
        self._in_place = NULL
        self._named_end = self._named_error = False
        return 0


cdef int extend(
    unsigned char **held, size_t *size, size_t *room, const unsigned char *more, size_t number
) except -1:
    # Appends; what exceeds HELD_SIZE is dropped.
    cdef size_t wanted
    cdef unsigned char *grown
    if number > HELD_SIZE - size[0]:
        number = HELD_SIZE - size[0]
    wanted = size[0] + number
    if number == 0:
        return 0
    if wanted > room[0]:
        wanted = 2 * wanted if wanted > 512 else 1024
        grown = <unsigned char *>realloc(held[0], wanted)
        if grown == NULL:
            raise MemoryError
        held[0] = grown
        room[0] = wanted
    memcpy(held[0] + size[0], more, number)
    size[0] += number
    return 0
