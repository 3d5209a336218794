from libc.stdint cimport int64_t, uint64_t

from ext.prefix cimport FIRST_ENDS, LAST_ENDS, MAX_BOUNDARIES
from ext.tokens cimport Estimate

cdef enum:
    NAME_SLOTS = 512
    MAX_NAMES = 256
    MAX_DEPTH = 256
    MAX_SECTIONS = 16

# What a member of the body, or of a message, is to the scan. Sections are numbered in the order the engine sees them.
cdef enum Meaning:
    UNKNOWN
    # members of the body
    MODEL
    STREAM
    STREAM_OPTIONS
    MAX_TOKENS
    MAX_COMPLETION_TOKENS
    MAX_OUTPUT_TOKENS
    N
    BEST_OF
    CACHE_SALT
    SYSTEM
    INSTRUCTIONS
    TOOLS
    FUNCTIONS
    MESSAGES
    PROMPT
    INPUT
    CONTENT
    SUFFIX
    QUERY
    DOCUMENTS
    TEXT_1
    TEXT_2
    INCLUDE_USAGE
    REFUSED
    # members inside a message
    TEXT
    PASSED_OVER
    ROLE
    MEDIA_URL
    MEDIA_DATA
    VERBATIM

cdef struct Name:
    const unsigned char *text
    size_t size
    Meaning meaning

cdef struct Names:
    Name slots[NAME_SLOTS]

cdef struct Section:
    Meaning meaning
    size_t start
    size_t stop
    size_t ends
    size_t first[FIRST_ENDS]
    size_t last[LAST_ENDS]

cdef struct Pass:
    const unsigned char *start
    const unsigned char *at
    const unsigned char *end
    const Names *names
    uint64_t media_tokens
    # the canonical prompt
    unsigned char *text
    size_t written
    bint fresh                  # no piece yet in this message
    size_t pieces               # in this section
    Section sections[MAX_SECTIONS]
    int section_count
    # what went wrong
    int problem
    Meaning member
    Py_ssize_t refused_start, refused_stop
    # what was found; a span is -1, -1 where the member is absent
    uint64_t seen
    Py_ssize_t insert_at
    Py_ssize_t model_start, model_stop
    Py_ssize_t options_start, options_stop
    Py_ssize_t usage_start, usage_stop
    int stream, include_usage
    int64_t max_tokens, max_completion_tokens, max_output_tokens, n, best_of
    int64_t prompts
    bint has_tools
    uint64_t salt
    int64_t images, remote_media
    Estimate sums
    int boundary_count
    size_t positions[MAX_BOUNDARIES]
    uint64_t digests[MAX_BOUNDARIES]
    uint64_t tokens[MAX_BOUNDARIES]


cdef class Scanned:
    cdef readonly str model
    cdef readonly bint stream, has_tools
    cdef readonly Py_ssize_t insert_at
    cdef readonly int64_t n, best_of, prompts, tokens_middle, tokens_low, images, remote_media
    cdef readonly uint64_t salt
    cdef int _include_usage
    cdef int64_t _max_tokens, _max_completion_tokens, _max_output_tokens
    cdef Py_ssize_t _model_start, _model_stop, _options_start, _options_stop, _usage_start, _usage_stop
    cdef int _count
    cdef uint64_t _digests[MAX_BOUNDARIES]
    cdef uint64_t _tokens[MAX_BOUNDARIES]
    cdef list _digests_with(self, uint64_t seed, bint seeded)


cdef class Scanner:
    cdef Names _names
    cdef list _kept
    cdef uint64_t _media_tokens
    cdef unsigned char *_scratch
    cdef size_t _room
    cdef _refusal(self, Pass *state)
