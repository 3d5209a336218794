# What scan and sse share: finding where the plain part of a JSON string stops, 16 bytes at a time.
#
# Inside a JSON string a plain byte is any but the quote, the backslash, the control characters (which JSON forbids
# there) and 0xF5..0xFF (which no UTF-8 text contains; the canonical prompt uses them as marks, see prefix.pyx).
# No load reaches past `end`; json_copy_plain may store up to 15 bytes past what it reports, so its target has that slack.

cdef extern from *:
    """
    #include <stddef.h>
    #include <string.h>
    #if defined(__SSE2__)
    #include <emmintrin.h>
    /* Bit i set: byte i is not plain. One subtraction maps both forbidden ranges to the top of the byte. */
    static inline int json_special(const unsigned char *from, __m128i *loaded) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)from);
        const __m128i moved = _mm_sub_epi8(bytes, _mm_set1_epi8(0x20));
        const __m128i outside = _mm_cmpeq_epi8(_mm_max_epu8(moved, _mm_set1_epi8((char)0xD5)), moved);
        const __m128i quotes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
        const __m128i slashes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\\\'));
        *loaded = bytes;
        return _mm_movemask_epi8(_mm_or_si128(outside, _mm_or_si128(quotes, slashes)));
    }
    #endif
    static inline int json_is_plain(unsigned char c) {
        return c != '"' && c != '\\\\' && (unsigned char)(c - 0x20) < 0xD5;
    }
    static inline size_t json_plain(const unsigned char *from, const unsigned char *end) {
        const unsigned char *at = from;
    #if defined(__SSE2__)
        __m128i loaded;
        while (end - at >= 16) {
            const int special = json_special(at, &loaded);
            if (special) return (size_t)(at - from) + (size_t)__builtin_ctz((unsigned)special);
            at += 16;
        }
    #endif
        while (at < end && json_is_plain(*at)) at++;
        return (size_t)(at - from);
    }
    static inline size_t json_copy_plain(unsigned char *to, const unsigned char *from, const unsigned char *end) {
        const unsigned char *at = from;
    #if defined(__SSE2__)
        __m128i loaded;
        while (end - at >= 16) {
            const int special = json_special(at, &loaded);
            _mm_storeu_si128((__m128i *)(to + (at - from)), loaded);
            if (special) return (size_t)(at - from) + (size_t)__builtin_ctz((unsigned)special);
            at += 16;
        }
    #endif
        while (at < end && json_is_plain(*at)) { to[at - from] = *at; at++; }
        return (size_t)(at - from);
    }
    /* A hexadecimal digit's value plus one; 0: none. */
    static const unsigned char json_hex[256] = {
        ['0'] = 1, ['1'] = 2, ['2'] = 3, ['3'] = 4, ['4'] = 5, ['5'] = 6, ['6'] = 7, ['7'] = 8, ['8'] = 9, ['9'] = 10,
        ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
        ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16,
    };
    /* The value of four hexadecimal digits, or -1. */
    static inline int json_hex4(const unsigned char *at, const unsigned char *end) {
        int a, b, c, d;
        if (end - at < 4) return -1;
        a = json_hex[at[0]]; b = json_hex[at[1]]; c = json_hex[at[2]]; d = json_hex[at[3]];
        if (!a || !b || !c || !d) return -1;
        return ((a - 1) << 12) | ((b - 1) << 8) | ((c - 1) << 4) | (d - 1);
    }
    """
    int json_hex4(const unsigned char *at, const unsigned char *end) noexcept nogil
    size_t json_plain(const unsigned char *start, const unsigned char *end) noexcept nogil
    size_t json_copy_plain(unsigned char *to, const unsigned char *start, const unsigned char *end) noexcept nogil


cdef enum JsonStop:
    AT_QUOTE    # the quote that ends the string
    AT_END      # the text ended first
    AT_CONTROL  # a control character
    AT_INVALID  # a byte that no UTF-8 text contains
    AT_ESCAPE   # a backslash with no valid escape after it


cdef inline unsigned char json_short_escape(unsigned char c) noexcept nogil:
    # The character that a backslash and `c` stand for, or 0.
    if c == 34 or c == 92 or c == 47:
        return c
    if c == 110:
        return 10
    if c == 116:
        return 9
    if c == 114:
        return 13
    if c == 98:
        return 8
    if c == 102:
        return 12
    return 0


cdef inline size_t json_put_character(unsigned char *to, int point) noexcept nogil:
    # Writes the character as UTF-8; returns the number of bytes.
    if point < 0x80:
        to[0] = <unsigned char>point
        return 1
    if point < 0x800:
        to[0] = <unsigned char>(0xC0 | (point >> 6))
        to[1] = <unsigned char>(0x80 | (point & 63))
        return 2
    if point < 0x10000:
        to[0] = <unsigned char>(0xE0 | (point >> 12))
        to[1] = <unsigned char>(0x80 | ((point >> 6) & 63))
        to[2] = <unsigned char>(0x80 | (point & 63))
        return 3
    to[0] = <unsigned char>(0xF0 | (point >> 18))
    to[1] = <unsigned char>(0x80 | ((point >> 12) & 63))
    to[2] = <unsigned char>(0x80 | ((point >> 6) & 63))
    to[3] = <unsigned char>(0x80 | (point & 63))
    return 4


cdef inline JsonStop json_stop_of(const unsigned char *at, const unsigned char *end) noexcept nogil:
    if at >= end:
        return AT_END
    if at[0] == 34:
        return AT_QUOTE
    if at[0] < 32:
        return AT_CONTROL
    return AT_ESCAPE if at[0] == 92 else AT_INVALID


cdef inline const unsigned char *json_decode(
    const unsigned char *at, const unsigned char *end, unsigned char *to, size_t *written, JsonStop *stop
) noexcept nogil:
    # Decodes the inside of a string into `to` (room for end - at + 16 bytes) until something stops it; returns where.
    # Half of a surrogate pair becomes U+FFFD.
    cdef size_t plain, done = 0
    cdef unsigned char short
    cdef int point, second
    while True:
        if at >= end or at[0] != 92:  # escapes often follow one another
            plain = json_copy_plain(to + done, at, end)
            at += plain
            done += plain
        stop[0] = json_stop_of(at, end)
        if stop[0] != AT_ESCAPE or end - at < 2:
            break
        short = json_short_escape(at[1])
        if short:
            to[done] = short
            done += 1
            at += 2
            continue
        point = json_hex4(at + 2, end) if at[1] == 117 else -1
        if point < 0:
            break
        at += 6
        if point >= 0xD800 and point < 0xE000:
            second = -1
            if point < 0xDC00 and end - at >= 6 and at[0] == 92 and at[1] == 117:
                second = json_hex4(at + 2, end)
            if second >= 0xDC00 and second < 0xE000:
                point = 0x10000 + ((point - 0xD800) << 10) + (second - 0xDC00)
                at += 6
            else:
                point = 0xFFFD
        done += json_put_character(to + done, point)
    written[0] = done
    return at


cdef inline const unsigned char *json_skip(
    const unsigned char *at, const unsigned char *end, JsonStop *stop
) noexcept nogil:
    # As json_decode, without the text.
    while True:
        if at >= end or at[0] != 92:
            at += json_plain(at, end)
        stop[0] = json_stop_of(at, end)
        if stop[0] != AT_ESCAPE or end - at < 2:
            return at
        if json_short_escape(at[1]):
            at += 2
        elif at[1] == 117 and json_hex4(at + 2, end) >= 0:
            at += 6
        else:
            return at
