# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""One pass over the raw JSON body of a request.

The pass validates all of the body, notes the members that matter, and writes the *canonical prompt*: the text of the
conversation, unescaped, in one buffer. Estimate and routing hashes are two separate functions of that text. Nothing
recurses and nothing is built as Python objects; the buffer never grows beyond the body.

The canonical prompt
    Sections come in the order in which the engine sees them (Meaning in scan.pxd), whatever the order of the members.
    FE r r           a message begins; r r are 12 bits of the role's xxh64, so it does not matter where `role` stands
    FD               between two pieces of text of one message (so a string and a list of one part are the same)
    FF d*8           a picture or other media: 48 bits of the xxh64 of its data instead of the data
    FC d d ...       a token id, one d for each decimal digit
    d and r are 0x80 plus up to six bits. Text holds no byte above F4 (the pass refuses them), so marks are never text.

What is text inside a message: every string, except under the keys in MESSAGE_NAMES that say otherwise. Arguments of
tool calls and tool definitions are copied as compact JSON with their strings unescaped: structure is text there.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset

from ext.json_text cimport (
    AT_CONTROL, AT_END, AT_ESCAPE, AT_INVALID, AT_QUOTE, JsonStop, json_decode, json_skip,
)
from ext.prefix cimport digest_at, mix_of, place_boundaries, xxh64_of
from ext.tokens cimport add_text

cdef enum:
    PAD = 16                     # zeros before the text: tokens looks back two bytes
    SLACK = 64                   # json_copy_plain writes up to 15 bytes too many
    DETACHED_SIZE = 1 << 20      # longer bodies are scanned without the GIL
    MAX_COUNT = 0x7FFFFFFF       # engines keep token counts in 32 bits
    MAX_KEY = 64                 # a longer key is none of ours

include "scan_problems.pxi"
include "scan_names.pxi"
include "scan_json.pxi"
include "scan_prompt.pxi"
include "scan_body.pxi"


cdef class Scanned:
    @property
    def model_span(self):
        return self._model_start, self._model_stop

    @property
    def stream_options_span(self):
        return self._options_start, self._options_stop

    @property
    def include_usage_span(self):
        return self._usage_start, self._usage_stop

    @property
    def include_usage(self):
        return None if self._include_usage < 0 else bool(self._include_usage)

    @property
    def max_tokens(self):
        return None if self._max_tokens < 0 else self._max_tokens

    @property
    def max_completion_tokens(self):
        return None if self._max_completion_tokens < 0 else self._max_completion_tokens

    @property
    def max_output_tokens(self):
        return None if self._max_output_tokens < 0 else self._max_output_tokens

    @property
    def digests(self):
        return self._digests_with(0, False)

    def seeded(self, uint64_t seed):
        return self._digests_with(seed, True)

    cdef list _digests_with(self, uint64_t seed, bint seeded):
        cdef int i
        return [
            (mix_of(self._digests[i], seed) if seeded else self._digests[i], self._tokens[i])
            for i in range(self._count)
        ]


cdef class Scanner:
    def __cinit__(self, refused=(), *, int64_t media_tokens=1024):
        if media_tokens < 0:
            raise ValueError("media_tokens must not be negative")
        memset(&self._names, 0, sizeof(Names))
        self._media_tokens = <uint64_t>media_tokens * 1000
        self._kept = [name.encode() for name in refused]
        if len(self._kept) + len(BODY_NAMES) > MAX_NAMES:
            raise ValueError(f"at most {MAX_NAMES - len(BODY_NAMES)} refused members")
        for name in self._kept:
            if not 0 < len(name) <= MAX_KEY:
                raise ValueError(f"a refused member's name has 1 to {MAX_KEY} bytes: {name!r}")
            if name in BODY_NAMES:
                raise ValueError(f"{name.decode()} cannot be refused: the scan reads it")
            add_name(&self._names, name, REFUSED)
        for name, meaning in BODY_NAMES.items():
            add_name(&self._names, name, meaning)

    def __dealloc__(self):
        free(self._scratch)

    def scan(self, bytes body not None):
        cdef Pass state
        cdef size_t size = PyBytes_GET_SIZE(body)
        cdef size_t room = size + PAD + SLACK
        cdef unsigned char *buffer
        cdef bint detached = size > DETACHED_SIZE
        # The scratch buffer belongs to whoever holds the GIL; a long scan gives the GIL up and has its own.
        if detached:
            buffer = <unsigned char *>malloc(room)
        else:
            if self._room < room:
                free(self._scratch)
                self._room = 0
                self._scratch = <unsigned char *>malloc(2 * room)
                if self._scratch != NULL:
                    self._room = 2 * room
            buffer = self._scratch
        if buffer == NULL:
            raise MemoryError
        memset(buffer, 0, PAD)
        prepare(&state, body, size)
        state.names = &self._names
        state.media_tokens = self._media_tokens
        state.text = buffer + PAD
        cdef int failed
        if not detached:
            if run(&state):
                raise self._refusal(&state)
            return result_of(&state)
        try:
            with nogil:
                failed = run(&state)
            if failed:
                raise self._refusal(&state)
            return result_of(&state)
        finally:
            free(buffer)

    cdef _refusal(self, Pass *state):
        if state.problem == NO_MEMORY:
            return MemoryError()
        kind, message = PROBLEMS[state.problem]
        if kind == MALFORMED or kind == DEPTH:
            member = ""
        elif kind == REFUSED_MEMBER:
            member = decoded(state, state.refused_start)
        else:
            member = MEMBER_TEXT.get(state.member, "")
        return ScanError(kind, member, message, state.at - state.start)


cdef void prepare(Pass *state, bytes body, size_t size):
    # All but the text and the arrays, which are written before they are read.
    state.start = <const unsigned char *>PyBytes_AS_STRING(body)
    state.at = state.start
    state.end = state.start + size
    state.written = 0
    state.fresh = True
    state.pieces = 0
    state.section_count = 0
    state.problem = NO_PROBLEM
    state.member = UNKNOWN
    state.refused_start = state.refused_stop = -1
    state.seen = 0
    state.insert_at = -1
    state.model_start = state.model_stop = -1
    state.options_start = state.options_stop = -1
    state.usage_start = state.usage_stop = -1
    state.stream = 0
    state.include_usage = -1
    state.max_tokens = state.max_completion_tokens = state.max_output_tokens = -1
    state.n = state.best_of = state.prompts = 1
    state.has_tools = False
    state.salt = 0
    state.images = state.remote_media = 0
    state.sums = Estimate(0, 0)
    state.boundary_count = 0


cdef str decoded(Pass *state, Py_ssize_t quote):
    # The string that opens at `quote` (it has been validated). The text of the prompt is no longer needed.
    state.at = state.start + quote
    state.written = 0
    copy_string(state)
    try:
        return PyUnicode_DecodeUTF8(<const char *>state.text, state.written, NULL)
    except UnicodeDecodeError:
        raise ScanError(MALFORMED, "", PROBLEMS[BAD_UTF8][1], quote) from None


cdef Scanned result_of(Pass *state):
    cdef Scanned found = Scanned.__new__(Scanned)
    found.model = decoded(state, state.model_start) if state.model_start >= 0 else None
    found.stream = state.stream
    found.has_tools = state.has_tools
    found.insert_at = state.insert_at
    found.n = state.n
    found.best_of = state.best_of
    found.prompts = state.prompts
    found.tokens_middle = (state.sums.middle + 999) // 1000
    found.tokens_low = (state.sums.low + 999) // 1000
    found.images = state.images
    found.remote_media = state.remote_media
    found.salt = state.salt
    found._include_usage = state.include_usage
    found._max_tokens = state.max_tokens
    found._max_completion_tokens = state.max_completion_tokens
    found._max_output_tokens = state.max_output_tokens
    found._model_start = state.model_start
    found._model_stop = state.model_stop
    found._options_start = state.options_start
    found._options_stop = state.options_stop
    found._usage_start = state.usage_start
    found._usage_stop = state.usage_stop
    found._count = state.boundary_count
    memcpy(found._digests, state.digests, state.boundary_count * sizeof(uint64_t))
    memcpy(found._tokens, state.tokens, state.boundary_count * sizeof(uint64_t))
    return found
