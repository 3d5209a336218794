# The members of the body, and what follows from the canonical prompt: boundaries, digests, estimates.


cdef int take_count(Pass *s, int64_t least, int64_t *value) noexcept nogil:
    cdef const unsigned char *start
    cdef unsigned char c = next_byte(s)
    cdef bint whole
    cdef int64_t number
    if c == 110:
        return pass_literal(s)
    if element_of(c) != IDS:
        return fail_kind(s, NOT_COUNT)
    start = s.at
    if pass_number(s, &whole, &number):
        return -1
    if not whole or number < least or number > MAX_COUNT:
        s.at = start
        return fail(s, OUT_OF_RANGE if whole else NOT_COUNT)
    value[0] = number
    return 0


cdef int take_flag(Pass *s, int *flag) noexcept nogil:
    cdef unsigned char c = next_byte(s)
    if c == 110:
        return pass_literal(s)
    if c != 116 and c != 102:
        return fail_kind(s, NOT_BOOLEAN)
    flag[0] = c == 116
    return pass_literal(s)


cdef int take_options(Pass *s) noexcept nogil:
    # stream_options: null or an object, of which include_usage is read.
    cdef Meaning meaning
    cdef unsigned char c = next_byte(s)
    if c == 110:
        return pass_literal(s)
    if c != 123:
        return fail_kind(s, NOT_OBJECT)
    s.at += 1
    c = next_byte(s)
    if c == 125:
        s.at += 1
        return 0
    while True:
        if take_key(s, &OPTION_TABLE, &meaning):
            return -1
        c = next_byte(s)
        if meaning == INCLUDE_USAGE:
            s.member = INCLUDE_USAGE
            if s.usage_start >= 0:
                return fail(s, TWICE)
            s.usage_start = s.at - s.start
            if take_flag(s, &s.include_usage):
                return -1
            s.usage_stop = s.at - s.start
            s.member = STREAM_OPTIONS
        elif pass_value(s, 2, False):
            return -1
        c = next_byte(s)
        if c != 44:
            if c != 125:
                return fail(s, BAD_COMMA)
            s.at += 1
            return 0
        s.at += 1
        next_byte(s)


cdef int take_member(Pass *s, Meaning meaning) noexcept nogil:
    cdef unsigned char c
    cdef size_t before = s.written
    if meaning == UNKNOWN:
        return pass_value(s, 1, False)
    s.member = meaning
    if meaning == REFUSED:
        s.at = s.start + s.refused_start
        return fail(s, MUST_NOT_PASS)
    c = next_byte(s)
    if s.seen & (<uint64_t>1 << <int>meaning):
        return fail(s, TWICE)
    s.seen |= <uint64_t>1 << <int>meaning
    if meaning == MODEL or meaning == CACHE_SALT:
        if c == 110:
            return pass_literal(s)
        if c != 34:
            return fail_kind(s, NOT_STRING)
        if meaning == MODEL:
            s.model_start = s.at - s.start
            if pass_string(s):
                return -1
            s.model_stop = s.at - s.start
            return 0
        if copy_string(s):
            return -1
        if s.written > before:
            s.salt = xxh64_of(s.text + before, s.written - before, 0)
        s.written = before
        return 0
    if meaning == STREAM:
        return take_flag(s, &s.stream)
    if meaning == STREAM_OPTIONS:
        s.options_start = s.at - s.start
        if take_options(s):
            return -1
        s.options_stop = s.at - s.start
        return 0
    if meaning == MAX_TOKENS:
        return take_count(s, 0, &s.max_tokens)
    if meaning == MAX_COMPLETION_TOKENS:
        return take_count(s, 0, &s.max_completion_tokens)
    if meaning == MAX_OUTPUT_TOKENS:
        return take_count(s, 0, &s.max_output_tokens)
    if meaning == N:
        return take_count(s, 1, &s.n)
    if meaning == BEST_OF:
        return take_count(s, 1, &s.best_of)
    return take_section(s, meaning)


cdef int take_body(Pass *s) noexcept nogil:
    cdef Meaning meaning
    cdef unsigned char c = next_byte(s)
    if s.at >= s.end:
        return fail(s, BAD_EMPTY)
    if c != 123:
        if fail_kind(s, BAD_BODY) and s.problem != BAD_BODY:
            return -1
        return fail(s, BAD_BODY)
    s.at += 1
    s.insert_at = s.at - s.start
    if next_byte(s) != 125:
        while True:
            if take_key(s, s.names, &meaning) or take_member(s, meaning):
                return -1
            s.member = UNKNOWN
            c = next_byte(s)
            if c != 44:
                break
            s.at += 1
            next_byte(s)
        if c != 125:
            return fail(s, BAD_COMMA)
    s.at += 1
    next_byte(s)
    if s.at < s.end:
        return fail(s, BAD_TRAILING)
    return 0


cdef int order_sections(Pass *s, size_t *ends, size_t *number) noexcept nogil:
    # Puts the sections in the order of their meanings; `ends` gets the ends of messages that boundaries may use.
    cdef Section *order[MAX_SECTIONS]
    cdef Section *section
    cdef unsigned char *moved
    cdef size_t to = 0, i, kept
    cdef int at, place
    cdef bint sorted = True
    for at in range(s.section_count):
        place = at
        while place > 0 and order[place - 1].meaning > s.sections[at].meaning:
            order[place] = order[place - 1]
            place -= 1
            sorted = False
        order[place] = &s.sections[at]
    number[0] = 0
    for at in range(s.section_count):
        section = order[at]
        kept = section.ends if section.ends < FIRST_ENDS else <size_t>FIRST_ENDS
        for i in range(kept):
            ends[number[0]] = section.first[i] - section.start + to
            number[0] += 1
        i = FIRST_ENDS
        if section.ends > FIRST_ENDS + LAST_ENDS:
            i = section.ends - LAST_ENDS
        while i < section.ends:
            ends[number[0]] = section.last[(i - FIRST_ENDS) % LAST_ENDS] - section.start + to
            number[0] += 1
            i += 1
        to += section.stop - section.start
    if sorted:
        return 0
    moved = <unsigned char *>malloc(s.written + SLACK)
    if moved == NULL:
        return fail(s, NO_MEMORY)
    to = 0
    for at in range(s.section_count):
        memcpy(moved + to, s.text + order[at].start, order[at].stop - order[at].start)
        to += order[at].stop - order[at].start
    memcpy(s.text, moved, to)
    free(moved)
    return 0


cdef int run(Pass *s) noexcept nogil:
    cdef size_t ends[MAX_SECTIONS * (FIRST_ENDS + LAST_ENDS)]
    cdef size_t number, done = 0
    cdef int i
    if take_body(s) or order_sections(s, ends, &number):
        return -1
    s.boundary_count = place_boundaries(s.written, ends, number, s.positions)
    digest_at(s.text, s.positions, s.boundary_count, s.digests)
    for i in range(s.boundary_count):
        add_text(s.text, done, s.positions[i], s.media_tokens, &s.sums)
        s.tokens[i] = (s.sums.middle + 999) // 1000
        done = s.positions[i]
    return 0
