from libc.stdint cimport uint64_t

cdef enum:
    DIGEST_BLOCK = 256
    DENSE_LIMIT = 2048
    FIRST_ENDS = 8
    LAST_ENDS = 56
    MAX_BOUNDARIES = 192

cdef uint64_t xxh64_of(const unsigned char *data, size_t size, uint64_t seed) noexcept nogil

# Ascending positions of the boundaries of a text into `positions` (room for MAX_BOUNDARIES); returns their number.
# `ends`: ascending, at most `length`.
cdef int place_boundaries(size_t length, const size_t *ends, size_t count, size_t *positions) noexcept nogil

# Digest of the text up to each of the ascending positions.
cdef void digest_at(const unsigned char *text, const size_t *positions, int count, uint64_t *digests) noexcept nogil

cdef uint64_t mix_of(uint64_t digest, uint64_t seed) noexcept nogil
