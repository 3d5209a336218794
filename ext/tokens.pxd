from libc.stdint cimport uint64_t

cdef struct Estimate:
    uint64_t middle  # millitokens
    uint64_t low     # millitokens

# Adds the text [start, stop) to the sums. text[start - 1] and text[start - 2] are read: the caller keeps two bytes
# before the text (zeros before its beginning). `media` is what one picture counts, in millitokens of the middle estimate.
cdef void add_text(const unsigned char *text, size_t start, size_t stop, uint64_t media, Estimate *sums) noexcept nogil
