from libc.stdint cimport int64_t

# What a key is to the reader of an event.
cdef enum Key:
    OTHER
    USAGE
    TIMINGS
    TYPE
    MODEL
    ERROR
    CHOICES
    DELTA
    WRAPPER            # `message` and `response`: what they hold counts as the event's own
    TEXT               # a string that is output
    FINISH
    # members of a usage object
    PROMPT_TOTAL       # prompt_tokens
    INPUT              # input_tokens: total, or uncached where Anthropic's cache members stand beside it
    COMPLETION         # completion_tokens, output_tokens
    CACHE_READ
    CACHE_WRITTEN
    DETAILS            # the object around cached_tokens
    CACHED             # cached_tokens, part of the total
    # members of llama.cpp's timings
    PROMPT_N
    CACHE_N
    PREDICTED_N

# Token counts as they were sent; -1: not sent. Later values replace earlier ones, one by one. Of timings only input
# (prompt_n), cache_read (cache_n) and completion (predicted_n) are used.
cdef struct Counts:
    int64_t prompt_total
    int64_t input
    int64_t completion
    int64_t cached
    int64_t cache_read
    int64_t cache_written

# What one JSON object (an event, or a body) says.
cdef struct Reading:
    bint delta
    bint finished
    bint error
    bint terminal
    Py_ssize_t model_start, model_stop


cdef class EventScanner:
    cdef readonly int64_t events, deltas
    cdef readonly bint started, first_data, ended, finished, failed
    cdef Counts _usage
    cdef Counts _timings
    # the unfinished line, and the data of the unfinished event where it could not be read in place
    cdef unsigned char *_line
    cdef size_t _line_size, _line_room
    cdef unsigned char *_data
    cdef size_t _data_size, _data_room
    cdef const unsigned char *_in_place
    cdef size_t _in_place_size
    cdef int _data_lines
    cdef bint _skip_lf, _named_end, _named_error
    cdef int _take_line(self, const unsigned char *line, size_t size) except -1
    cdef int _dispatch(self) except -1
    cdef int _settle(self) except -1
