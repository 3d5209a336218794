# The canonical prompt (scan.pyx): marks, pieces of text, and the walk through a section.

cdef uint64_t SYSTEM_ROLE = xxh64_of(b"system", 6, 0)
cdef const unsigned char *BILLING = b"x-anthropic-billing-header"


cdef inline void put(Pass *s, unsigned char byte) noexcept nogil:
    s.text[s.written] = byte
    s.written += 1


cdef inline void begin_piece(Pass *s) noexcept nogil:
    if not s.fresh:
        put(s, 0xFD)
    s.fresh = False
    s.pieces += 1


cdef inline size_t begin_message(Pass *s, uint64_t role) noexcept nogil:
    # Returns where the role stands, for put_role.
    put(s, 0xFE)
    s.written += 2
    put_role(s, s.written - 2, role)
    s.fresh = True
    return s.written - 2


cdef inline void put_role(Pass *s, size_t place, uint64_t role) noexcept nogil:
    s.text[place] = <unsigned char>(0x80 | (role & 63))
    s.text[place + 1] = <unsigned char>(0x80 | ((role >> 6) & 63))


cdef inline void end_message(Pass *s, Section *section) noexcept nogil:
    if section.ends < FIRST_ENDS:
        section.first[section.ends] = s.written
    else:
        section.last[(section.ends - FIRST_ENDS) % LAST_ENDS] = s.written
    section.ends += 1


cdef int take_text(Pass *s, bint attribution) noexcept nogil:
    # A string as a piece of text. `attribution`: as the first piece it is left out where it is Claude Code's
    # attribution block, which changes from request to request.
    cdef size_t before = s.written
    cdef bint fresh = s.fresh
    cdef bint first = s.pieces == 0
    begin_piece(s)
    cdef size_t start = s.written
    if copy_string(s):
        return -1
    if attribution and first and s.written - start >= 26 and memcmp(s.text + start, BILLING, 26) == 0:
        s.written = before
        s.fresh = fresh
    return 0


cdef int take_role(Pass *s, size_t place) noexcept nogil:
    cdef size_t before = s.written
    if copy_string(s):
        return -1
    put_role(s, place, xxh64_of(s.text + before, s.written - before, 0))
    s.written = before
    return 0


cdef int take_media(Pass *s, Meaning meaning) noexcept nogil:
    cdef size_t before = s.written, size, i
    cdef uint64_t digest
    if copy_string(s):
        return -1
    size = s.written - before
    if meaning == MEDIA_DATA and reads_as_text(s.text + before, size):
        memmove(s.text + before + (0 if s.fresh else 1), s.text + before, size)
        s.written = before
        begin_piece(s)
        s.written += size
        return 0
    digest = xxh64_of(s.text + before, size, 0)
    s.images += 1
    if meaning == MEDIA_URL and (size < 5 or memcmp(s.text + before, b"data:", 5) != 0):
        s.remote_media += 1
    s.written = before
    put(s, 0xFF)
    for i in range(8):
        put(s, <unsigned char>(0x80 | ((digest >> (6 * i)) & 63)))
    s.fresh = False
    s.pieces += 1
    return 0


cdef bint reads_as_text(const unsigned char *text, size_t size) noexcept nogil:
    # A `data` member holds base64, or (a plain text document) the text itself.
    cdef size_t i
    for i in range(size if size < 64 else 64):
        if text[i] <= 32 or text[i] >= 0x80:
            return True
    return False


cdef int take_id(Pass *s) noexcept nogil:
    cdef const unsigned char *start = s.at
    cdef const unsigned char *digit
    cdef bint whole
    cdef int64_t value
    if pass_number(s, &whole, &value):
        return -1
    if not whole or start[0] == 45 or value > MAX_COUNT:
        s.at = start
        return fail(s, ID_RANGE if whole else NOT_ID)
    put(s, 0xFC)
    digit = start
    while digit < s.at:
        put(s, <unsigned char>(0x80 | (digit[0] - 48)))
        digit += 1
    s.fresh = False
    s.pieces += 1
    return 0


cdef int take_section(Pass *s, Meaning meaning) noexcept nogil:
    # One member that is part of the prompt.
    cdef Section *section = &s.sections[s.section_count]
    cdef unsigned char c = next_byte(s)
    cdef size_t start = s.written
    s.member = meaning
    if c == 110:
        return pass_literal(s)
    if meaning == MESSAGES or meaning == TOOLS or meaning == FUNCTIONS:
        if c != 91:
            return fail_kind(s, NOT_ARRAY)
    elif meaning == SYSTEM or meaning == INSTRUCTIONS or meaning == PROMPT or meaning == INPUT:
        if c != 34 and c != 91:
            return fail_kind(s, NOT_STRING_OR_ARRAY)
    section.meaning = meaning
    section.start = start
    section.ends = 0
    s.pieces = 0
    if meaning == SYSTEM or meaning == INSTRUCTIONS:
        begin_message(s, SYSTEM_ROLE)
    else:
        put(s, 0xFD)
        s.fresh = True
    if meaning == TOOLS or meaning == FUNCTIONS:
        if pass_value(s, 1, True):
            return -1
        if s.written - start == 3:  # the mark and []: no tools
            s.written = start
            s.member = UNKNOWN
            return 0
        s.has_tools = True
    elif walk(s, section):
        return -1
    if section.ends == 0 or s.written != last_end(section):
        end_message(s, section)
    section.stop = s.written
    s.section_count += 1
    s.member = UNKNOWN
    return 0


cdef inline size_t last_end(const Section *section) noexcept nogil:
    if section.ends <= FIRST_ENDS:
        return section.first[section.ends - 1]
    return section.last[(section.ends - FIRST_ENDS - 1) % LAST_ENDS]


cdef int fail_kind(Pass *s, Problem problem) noexcept nogil:
    # A value of the wrong type; one that is no JSON at all is that first.
    cdef const unsigned char *value = s.at
    cdef Meaning member = s.member
    s.member = UNKNOWN
    if pass_value(s, 1, False):
        return -1
    s.member = member
    s.at = value
    return fail(s, problem)


cdef enum Element:
    STRINGS = 1
    IDS = 2
    LISTS = 4
    OBJECTS = 8
    OTHERS = 16


cdef inline Element element_of(unsigned char c) noexcept nogil:
    if c == 34:
        return STRINGS
    if c == 91:
        return LISTS
    if c == 123:
        return OBJECTS
    if c == 45 or (c >= 48 and c <= 57):
        return IDS
    return OTHERS


cdef int walk(Pass *s, Section *section) noexcept nogil:
    # The value of a section, container by container. `level`: containers open inside the section.
    cdef bint listed = section.meaning == MESSAGES or section.meaning == INPUT
    cdef bint prompts = section.meaning == PROMPT or section.meaning == INPUT
    cdef int attribution_level = 2 if section.meaning == SYSTEM else 3 if section.meaning == MESSAGES else MAX_DEPTH + 1
    cdef unsigned char objects[MAX_DEPTH + 1]
    cdef unsigned char c
    cdef int level = 0, kinds = 0
    cdef int64_t elements = 0
    cdef size_t role = 0
    cdef bint in_list, closing
    cdef Meaning meaning = TEXT
    while True:
        # 1. A value starts here.
        c = next_byte(s)
        in_list = level == 1 and not objects[1]
        closing = False
        if in_list:
            kinds |= element_of(c)
            elements += 1
        if meaning == PASSED_OVER:
            if pass_value(s, level + 1, False):
                return -1
        elif c == 34:
            if meaning == ROLE and level == 2 and listed and not objects[1]:
                if take_role(s, role):
                    return -1
            elif meaning == MEDIA_URL or meaning == MEDIA_DATA:
                if take_media(s, meaning):
                    return -1
            else:
                if take_text(s, level >= attribution_level):
                    return -1
                if in_list:
                    end_message(s, section)
        elif c == 123 or c == 91:
            if meaning == VERBATIM:
                begin_piece(s)
                if pass_value(s, level + 1, True):
                    return -1
            else:
                if level + 1 >= MAX_DEPTH:
                    s.member = UNKNOWN
                    return fail(s, TOO_DEEP)
                level += 1
                objects[level] = c == 123
                s.at += 1
                if in_list:
                    if listed and objects[2]:
                        role = begin_message(s, 0)
                    elif prompts and not objects[2]:
                        if not s.fresh:
                            put(s, 0xFD)
                        s.fresh = True
                closing = next_byte(s) == (125 if objects[level] else 93)
                if not closing:
                    meaning = TEXT
                    if objects[level] and take_key(s, &MESSAGE_TABLE, &meaning):
                        return -1
                    continue
        elif prompts and not (level and objects[1]) and (level == 1 or (level == 2 and not objects[2])) and (
            element_of(c) == IDS
        ):
            if take_id(s):
                return -1
        elif pass_scalar(s):
            return -1
        # 2. A value, or an empty container, has ended here.
        while level:
            c = next_byte(s)
            if c == 44 and not closing:
                s.at += 1
                meaning = TEXT
                next_byte(s)
                if objects[level] and take_key(s, &MESSAGE_TABLE, &meaning):
                    return -1
                break
            if c != (125 if objects[level] else 93):
                return fail(s, BAD_COMMA)
            s.at += 1
            closing = False
            if level == 2 and not objects[1] and (listed if objects[2] else prompts):
                end_message(s, section)
            level -= 1
        if level == 0:
            break
    if prompts and kinds & (kinds - 1):
        return fail(s, MIXED)
    if prompts and (kinds == STRINGS or kinds == LISTS) and elements > s.prompts:
        s.prompts = elements
    return 0
