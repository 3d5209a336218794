# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Routing hashes: digests of the beginnings of a prompt.

Two prompts that begin with the same text have the same digests at the same places, so a digest that an endpoint was
sent before says how much of a new prompt its cache may hold. The digest of whole blocks is a chain,
`state = xxh64(block, seed=state)` over blocks of 256 bytes starting with state 0; at a place inside a block it is
`xxh64(rest of the block, seed=state)`. Digests are unseeded: `mix` adds the model, adapter and salt once they are known.

Boundaries, the places where a digest is taken: every 256 bytes up to 2,048 (the head); beyond it the powers of two;
and the ends of messages, of which the first 8 and the last 56 are kept, so that a body of a million messages has no
million digests while the next turn of a long conversation still finds where the last one ended.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #define XXH_PRIME1 0x9E3779B185EBCA87ULL
    #define XXH_PRIME2 0xC2B2AE3D27D4EB4FULL
    #define XXH_PRIME3 0x165667B19E3779F9ULL
    #define XXH_PRIME4 0x85EBCA77C2B2AE63ULL
    #define XXH_PRIME5 0x27D4EB2F165667C5ULL

    static inline uint64_t xxh_turn(uint64_t value, int by) { return (value << by) | (value >> (64 - by)); }
    static inline uint64_t xxh_word(const unsigned char *at) {
        uint64_t word;
        memcpy(&word, at, 8);
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
    #endif
        return word;
    }
    static inline uint64_t xxh_half(const unsigned char *at) {
        uint32_t half;
        memcpy(&half, at, 4);
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        half = __builtin_bswap32(half);
    #endif
        return half;
    }
    static inline uint64_t xxh_round(uint64_t lane, uint64_t word) {
        return xxh_turn(lane + word * XXH_PRIME2, 31) * XXH_PRIME1;
    }
    static inline uint64_t xxh_merge(uint64_t hash, uint64_t lane) {
        return (hash ^ xxh_round(0, lane)) * XXH_PRIME1 + XXH_PRIME4;
    }
    static inline uint64_t xxh_avalanche(uint64_t hash) {
        hash = (hash ^ (hash >> 33)) * XXH_PRIME2;
        hash = (hash ^ (hash >> 29)) * XXH_PRIME3;
        return hash ^ (hash >> 32);
    }
    static uint64_t xxh64(const unsigned char *at, size_t size, uint64_t seed) {
        const unsigned char *const end = at + size;
        uint64_t hash;
        if (size >= 32) {
            uint64_t a = seed + XXH_PRIME1 + XXH_PRIME2, b = seed + XXH_PRIME2, c = seed, d = seed - XXH_PRIME1;
            do {
                a = xxh_round(a, xxh_word(at));
                b = xxh_round(b, xxh_word(at + 8));
                c = xxh_round(c, xxh_word(at + 16));
                d = xxh_round(d, xxh_word(at + 24));
                at += 32;
            } while (end - at >= 32);
            hash = xxh_turn(a, 1) + xxh_turn(b, 7) + xxh_turn(c, 12) + xxh_turn(d, 18);
            hash = xxh_merge(xxh_merge(xxh_merge(xxh_merge(hash, a), b), c), d);
        } else {
            hash = seed + XXH_PRIME5;
        }
        hash += size;
        for (; end - at >= 8; at += 8)
            hash = xxh_turn(hash ^ xxh_round(0, xxh_word(at)), 27) * XXH_PRIME1 + XXH_PRIME4;
        if (end - at >= 4) {
            hash = xxh_turn(hash ^ (xxh_half(at) * XXH_PRIME1), 23) * XXH_PRIME2 + XXH_PRIME3;
            at += 4;
        }
        for (; at < end; at++)
            hash = xxh_turn(hash ^ (*at * XXH_PRIME5), 11) * XXH_PRIME1;
        return xxh_avalanche(hash);
    }
    """
    uint64_t xxh64_c "xxh64"(const unsigned char *at, size_t size, uint64_t seed) noexcept nogil
    uint64_t xxh_avalanche(uint64_t hash) noexcept nogil


cdef uint64_t xxh64_of(const unsigned char *data, size_t size, uint64_t seed) noexcept nogil:
    return xxh64_c(data, size, seed)


cdef int place_boundaries(size_t length, const size_t *ends, size_t count, size_t *positions) noexcept nogil:
    cdef int placed = 0
    cdef size_t regular = DIGEST_BLOCK, next_end = 0, position
    while True:
        if next_end == FIRST_ENDS and count > <size_t>(FIRST_ENDS + LAST_ENDS):
            next_end = count - LAST_ENDS
        if next_end < count and ends[next_end] <= regular:
            position = ends[next_end]
            next_end += 1
        elif regular <= length:
            position = regular
            regular += DIGEST_BLOCK if regular < DENSE_LIMIT else regular
        elif next_end < count:
            position = ends[next_end]
            next_end += 1
        else:
            return placed
        if position and (placed == 0 or positions[placed - 1] != position):
            positions[placed] = position
            placed += 1


cdef void digest_at(const unsigned char *text, const size_t *positions, int count, uint64_t *digests) noexcept nogil:
    cdef uint64_t state = 0
    cdef size_t done = 0
    cdef int i
    for i in range(count):
        while positions[i] - done >= DIGEST_BLOCK:
            state = xxh64_c(text + done, DIGEST_BLOCK, state)
            done += DIGEST_BLOCK
        digests[i] = state if positions[i] == done else xxh64_c(text + done, positions[i] - done, state)


cdef uint64_t mix_of(uint64_t digest, uint64_t seed) noexcept nogil:
    # A bijection of the digest for each seed: two digests never become one.
    return xxh_avalanche(digest ^ xxh_avalanche(seed + <uint64_t>0x9E3779B185EBCA87))


def xxh64(const unsigned char[::1] data not None, uint64_t seed=0):
    return xxh64_c(&data[0] if data.shape[0] else NULL, data.shape[0], seed)


def mix(uint64_t digest, uint64_t seed):
    return mix_of(digest, seed)


def seed(*parts):
    cdef uint64_t state = 0
    cdef const unsigned char[::1] part
    for part in parts:
        state = xxh64_c(&part[0] if part.shape[0] else NULL, part.shape[0], state)
    return state


def chain(const unsigned char[::1] text not None, ends=()):
    cdef size_t length = text.shape[0], number = len(ends), i
    cdef size_t before = 0
    cdef size_t positions[MAX_BOUNDARIES]
    cdef uint64_t digests[MAX_BOUNDARIES]
    cdef int count
    cdef size_t *places = <size_t *>PyMem_Malloc((number + 1) * sizeof(size_t))
    if places == NULL:
        raise MemoryError
    try:
        for i in range(number):
            places[i] = ends[i]
            if places[i] < before or places[i] > length:
                raise ValueError("ends must ascend and lie within the text")
            before = places[i]
        count = place_boundaries(length, places, number, positions)
        digest_at(&text[0] if length else NULL, positions, count, digests)
    finally:
        PyMem_Free(places)
    return [(positions[i], digests[i]) for i in range(count)]
