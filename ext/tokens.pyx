# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Estimates how many tokens a text is, without a tokenizer.

Each byte falls into a class by its value and the two bytes before it; the estimate is a weighted sum of the class
counts. Sums of bytes can be split anywhere and added, and the compiler counts 16 bytes at a time. Weights are in
thousandths of a token and there are two sets of them:

* *middle*, for limits and work. Tokenizers of the GPT, Llama and Qwen families take English at about 4.4 characters to
  a token, code at about 3.3, Chinese at about 1.5, Russian at about 2.5 (figures their authors and users report).
  Digits come one to a token (Llama 2, Qwen, SmolLM2) or up to three (GPT-4, Llama 3): the middle is under two, within
  2x of both. Held against SmolLM2's tokenizer, middle / truth is 1.08 for a licence text (5.1 characters to a token),
  0.87 for technical prose, 1.04 for Python, 0.72 for C, 0.80 for minified JavaScript, 0.92 for JSON, 0.55 for digits,
  0.60 for hexadecimal, 0.49 for base64. (It knows no Chinese: 0.37 there; Qwen and GPT do.)
* *low*, for the context check, which must not refuse what fits: each class at the most characters per token that
  usual tokenizers reach on real text, and a run of one character at 16 to a token.

An ASCII word costs a part for its start and a part for each letter, so that short names in code, long words, and
base64 (a lower case letter followed by an upper case one starts a word) each come out near the truth. The first two
characters of a run count by their class; the rest of it is `repeated`.

Bytes 0x80..0xBF continue a character and weigh nothing, so a character counts by its first byte. The marks of the
canonical prompt (prefix.pyx) count as what they stand for: a message, a picture, a token id.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memset

from ext.json_text cimport AT_END, AT_INVALID, JsonStop, json_decode

MEDIA_TOKENS = 1024

cdef enum:
    BLOCK = 224          # counters are bytes: a block may not exceed 255

    # thousandths of a token, middle and low
    WORD = 650
    WORD_LOW = 500
    LETTER = 100
    LETTER_LOW = 40
    DIGIT = 550
    DIGIT_LOW = 333
    SPACE = 50
    SPACE_LOW = 100
    OTHER = 650          # punctuation, line ends, control characters
    OTHER_LOW = 250
    REPEATED = 100       # the third and later byte of a run, digits excepted in the middle
    REPEATED_LOW = 62
    LATIN = 200          # U+0080..U+024F: letters inside words of the Latin script
    LATIN_LOW = 150
    TWO_BYTE = 420       # Greek, Cyrillic, Hebrew, Arabic and what lies between
    TWO_BYTE_LOW = 200
    INDIC = 600          # U+0800..U+1FFF: Indic scripts, Thai, Georgian, Ethiopic
    INDIC_LOW = 200
    SYMBOL = 800         # U+2000..U+2FFF and U+E000..U+FFFF: dashes, quotes, arrows, boxes, full-width forms
    SYMBOL_LOW = 300
    KANA = 700           # U+3000..U+3FFF
    KANA_LOW = 300
    HAN = 670            # U+4000..U+9FFF
    HAN_LOW = 400
    HANGUL = 700         # U+A000..U+DFFF
    HANGUL_LOW = 300
    EMOJI = 2000         # beyond U+FFFF
    EMOJI_LOW = 500
    MESSAGE = 4000       # role and frame of a message in usual chat templates
    MESSAGE_LOW = 2000
    MEDIA_LOW = 64000    # the smallest pictures of small vision models
    TOKEN_ID = 1000


cdef void add_text(const unsigned char *text, size_t start, size_t stop, uint64_t media, Estimate *sums) noexcept nogil:
    cdef const unsigned char *at = text + start
    cdef size_t left = stop - start, size
    while left:
        size = left if left < BLOCK else BLOCK
        add_block(at, size, media, sums)
        at += size
        left -= size


cdef inline void add_block(const unsigned char *at, size_t size, uint64_t media, Estimate *sums) noexcept nogil:
    cdef unsigned char letters = 0, words = 0, digits = 0, spaces = 0, high = 0
    cdef unsigned char repeated = 0, repeated_digits = 0
    cdef unsigned char byte, before, letter, was_letter, fresh, digit, camel
    cdef size_t i
    cdef uint64_t others
    for i in range(size):
        byte = at[i]
        before = at[<Py_ssize_t>i - 1]
        fresh = (byte != before) | (before != at[<Py_ssize_t>i - 2]) | (byte >= 0x80)
        letter = <unsigned char>((byte | 32) - 97) < 26
        was_letter = <unsigned char>((before | 32) - 97) < 26
        camel = (<unsigned char>(byte - 65) < 26) & (<unsigned char>(before - 97) < 26)
        digit = <unsigned char>(byte - 48) < 10
        words = <unsigned char>(words + (letter & ((was_letter ^ 1) | camel)))
        letters = <unsigned char>(letters + (letter & fresh))
        digits = <unsigned char>(digits + (digit & fresh))
        spaces = <unsigned char>(spaces + ((byte == 32) & fresh))
        high = <unsigned char>(high + (byte >= 0x80))
        repeated = <unsigned char>(repeated + (fresh ^ 1))
        repeated_digits = <unsigned char>(repeated_digits + (digit & (fresh ^ 1)))
    others = size - letters - digits - spaces - high - repeated
    sums.middle += (
        <uint64_t>words * WORD + <uint64_t>letters * LETTER + <uint64_t>(digits + repeated_digits) * DIGIT
        + <uint64_t>spaces * SPACE + others * OTHER + <uint64_t>(repeated - repeated_digits) * REPEATED
    )
    sums.low += (
        <uint64_t>words * WORD_LOW + <uint64_t>letters * LETTER_LOW + <uint64_t>digits * DIGIT_LOW + <uint64_t>spaces * SPACE_LOW
        + others * OTHER_LOW + <uint64_t>repeated * REPEATED_LOW
    )
    if high:
        add_high(at, size, media, sums)


cdef void add_high(const unsigned char *at, size_t size, uint64_t media, Estimate *sums) noexcept nogil:
    # Counting "at or above" a bound takes one comparison; the classes are the differences.
    cdef unsigned char from_c0 = 0, from_ca = 0, from_e0 = 0, from_e2 = 0, from_e3 = 0, from_e4 = 0, from_ea = 0
    cdef unsigned char from_ee = 0, from_f0 = 0, from_f5 = 0, messages = 0, pictures = 0, ids = 0, again = 0
    cdef unsigned char byte
    cdef size_t i
    cdef uint64_t latin, two_byte, indic, symbols, kana, han, hangul, emoji
    for i in range(size):
        byte = at[i]
        from_c0 = <unsigned char>(from_c0 + (byte >= 0xC0))
        from_ca = <unsigned char>(from_ca + (byte >= 0xCA))
        from_e0 = <unsigned char>(from_e0 + (byte >= 0xE0))
        from_e2 = <unsigned char>(from_e2 + (byte >= 0xE2))
        from_e3 = <unsigned char>(from_e3 + (byte >= 0xE3))
        from_e4 = <unsigned char>(from_e4 + (byte >= 0xE4))
        from_ea = <unsigned char>(from_ea + (byte >= 0xEA))
        from_ee = <unsigned char>(from_ee + (byte >= 0xEE))
        from_f0 = <unsigned char>(from_f0 + (byte >= 0xF0))
        from_f5 = <unsigned char>(from_f5 + (byte >= 0xF5))
        messages = <unsigned char>(messages + (byte == 0xFE))
        pictures = <unsigned char>(pictures + (byte == 0xFF))
        ids = <unsigned char>(ids + (byte == 0xFC))
    latin = from_c0 - from_ca
    two_byte = from_ca - from_e0
    indic = from_e0 - from_e2
    symbols = (from_e2 - from_e3) + (from_ee - from_f0)
    kana = from_e3 - from_e4
    han = from_e4 - from_ea
    hangul = from_ea - from_ee
    emoji = from_f0 - from_f5
    sums.middle += (
        latin * LATIN + two_byte * TWO_BYTE + indic * INDIC + symbols * SYMBOL + kana * KANA + han * HAN
        + hangul * HANGUL + emoji * EMOJI
        + <uint64_t>messages * MESSAGE + pictures * media + <uint64_t>ids * TOKEN_ID
    )
    sums.low += (
        latin * LATIN_LOW + two_byte * TWO_BYTE_LOW + indic * INDIC_LOW + symbols * SYMBOL_LOW + kana * KANA_LOW
        + han * HAN_LOW + hangul * HANGUL_LOW + emoji * EMOJI_LOW
        + <uint64_t>messages * MESSAGE_LOW + <uint64_t>pictures * MEDIA_LOW + <uint64_t>ids * TOKEN_ID
    )


def estimate(const unsigned char[::1] text not None, long long media_tokens=MEDIA_TOKENS):
    cdef size_t size = text.shape[0], written, length = 2
    cdef const unsigned char *at
    cdef const unsigned char *end
    cdef unsigned char *plain
    cdef JsonStop stop
    cdef Estimate sums = Estimate(0, 0)
    if media_tokens < 0:
        raise ValueError("media_tokens must not be negative")
    if size == 0:
        return 0, 0
    at = &text[0]
    end = at + size
    if is_data_url(at, end):
        return media_tokens, MEDIA_LOW // 1000
    plain = <unsigned char *>malloc(size + 32)
    if plain == NULL:
        raise MemoryError
    with nogil:
        memset(plain, 0, 2)
        while True:
            at = json_decode(at, end, plain + length, &written, &stop)
            length += written
            if stop == AT_END:
                break
            # What cannot stand in a JSON string counts as it is; an invalid byte must not pass for a mark.
            plain[length] = at[0] if stop != AT_INVALID else 63
            length += 1
            at += 1
        add_text(plain, 2, length, 0, &sums)
        free(plain)
    return (sums.middle + 999) // 1000, (sums.low + 999) // 1000


cdef bint is_data_url(const unsigned char *at, const unsigned char *end) noexcept nogil:
    cdef size_t i, head
    if end - at < 5 or memcmp(at, b"data:", 5) != 0:
        return False
    head = <size_t>(end - at)
    if head > 128:
        head = 128
    for i in range(5, head - 6 if head > 11 else 5):
        if memcmp(at + i, b"base64,", 7) == 0:
            return True
        if at[i] <= 32:
            return False
    return False
