# JSON, token by token. Functions return 0, or -1 with `problem` set and `at` where it is.


cdef inline int fail(Pass *s, Problem problem) noexcept nogil:
    if s.at >= s.end and problem in (BAD_VALUE, BAD_KEY, BAD_COLON, BAD_COMMA, BAD_LITERAL, BAD_NUMBER):
        problem = BAD_TRUNCATED
    s.problem = problem
    return -1


cdef int fail_string(Pass *s, JsonStop stop) noexcept nogil:
    if stop == AT_CONTROL:
        return fail(s, BAD_CONTROL)
    if stop == AT_INVALID:
        return fail(s, BAD_UTF8)
    return fail(s, BAD_STRING_END if stop == AT_END else BAD_ESCAPE)


cdef inline unsigned char next_byte(Pass *s) noexcept nogil:
    # The next byte that is no white space, or 0 at the end.
    cdef unsigned char c
    while s.at < s.end:
        c = s.at[0]
        if c > 32 or not (c == 32 or c == 10 or c == 13 or c == 9):
            return c
        s.at += 1
    return 0


cdef inline int pass_string(Pass *s) noexcept nogil:
    cdef JsonStop stop
    s.at = json_skip(s.at + 1, s.end, &stop)
    if stop != AT_QUOTE:
        return fail_string(s, stop)
    s.at += 1
    return 0


cdef inline int copy_string(Pass *s) noexcept nogil:
    cdef JsonStop stop
    cdef size_t written
    s.at = json_decode(s.at + 1, s.end, s.text + s.written, &written, &stop)
    if stop != AT_QUOTE:
        return fail_string(s, stop)
    s.written += written
    s.at += 1
    return 0


cdef int pass_number(Pass *s, bint *whole, int64_t *value) noexcept nogil:
    # `value` of a whole number stops growing beyond MAX_COUNT.
    cdef bint negative = False
    whole[0] = True
    value[0] = 0
    if s.at[0] == 45:
        negative = True
        s.at += 1
    if s.at >= s.end or s.at[0] < 48 or s.at[0] > 57:
        return fail(s, BAD_NUMBER)
    if s.at[0] == 48:
        s.at += 1
        if s.at < s.end and s.at[0] >= 48 and s.at[0] <= 57:
            return fail(s, BAD_NUMBER)
    else:
        while s.at < s.end and s.at[0] >= 48 and s.at[0] <= 57:
            if value[0] <= MAX_COUNT:
                value[0] = value[0] * 10 + (s.at[0] - 48)
            s.at += 1
    if s.at < s.end and s.at[0] == 46:
        whole[0] = False
        s.at += 1
        if pass_digits(s):
            return -1
    if s.at < s.end and (s.at[0] | 32) == 101:
        whole[0] = False
        s.at += 1
        if s.at < s.end and (s.at[0] == 43 or s.at[0] == 45):
            s.at += 1
        if pass_digits(s):
            return -1
    if negative:
        value[0] = -value[0]
    return 0


cdef int pass_digits(Pass *s) noexcept nogil:
    if s.at >= s.end or s.at[0] < 48 or s.at[0] > 57:
        return fail(s, BAD_NUMBER)
    while s.at < s.end and s.at[0] >= 48 and s.at[0] <= 57:
        s.at += 1
    return 0


cdef int pass_literal(Pass *s) noexcept nogil:
    cdef unsigned char c = s.at[0]
    cdef const unsigned char *text = b"true"
    cdef Py_ssize_t size = 4
    if c == 102:
        text = b"false"
        size = 5
    elif c == 110:
        text = b"null"
    elif c != 116:
        return fail(s, BAD_LITERAL if (c | 32) >= 97 and (c | 32) <= 122 else BAD_VALUE)
    if s.end - s.at < size or memcmp(s.at, text, size) != 0:
        return fail(s, BAD_LITERAL)
    s.at += size
    return 0


cdef inline int pass_scalar(Pass *s) noexcept nogil:
    cdef bint whole
    cdef int64_t value
    if s.at < s.end and (s.at[0] == 45 or (s.at[0] >= 48 and s.at[0] <= 57)):
        return pass_number(s, &whole, &value)
    if s.at >= s.end:
        return fail(s, BAD_VALUE)
    return pass_literal(s)


cdef inline int pass_colon(Pass *s) noexcept nogil:
    if next_byte(s) != 58:
        return fail(s, BAD_COLON)
    s.at += 1
    return 0


cdef int take_key(Pass *s, const Names *names, Meaning *meaning) noexcept nogil:
    # From the quote that opens a member name to behind its colon.
    cdef const unsigned char *key = s.at + 1
    cdef const unsigned char *stop
    cdef const unsigned char *found
    cdef JsonStop why
    cdef unsigned char plain[MAX_KEY * 6 + SLACK]
    cdef size_t size
    if s.at >= s.end or s.at[0] != 34:
        return fail(s, BAD_KEY)
    if pass_string(s):
        return -1
    stop = s.at - 1
    size = stop - key
    found = key
    if size <= MAX_KEY * 6:
        if memchr(key, 92, size) != NULL:
            json_decode(key, stop, plain, &size, &why)
            found = plain
        meaning[0] = meaning_of(names, found, size)
    else:
        meaning[0] = UNKNOWN
    if meaning[0] == REFUSED:
        s.refused_start = key - s.start - 1
        s.refused_stop = stop - s.start + 1
    return pass_colon(s)


cdef int pass_value(Pass *s, int depth, bint copying) noexcept nogil:
    # Validates one value inside `depth` open containers; `copying` writes it as compact JSON, strings unescaped.
    cdef unsigned char objects[MAX_DEPTH + 1]
    cdef int base = depth
    cdef unsigned char c
    cdef const unsigned char *scalar
    cdef bint key = False
    c = next_byte(s)
    while True:
        # A value or a member name starts here.
        if c == 34:
            if copying:
                put(s, 34)
                if copy_string(s):
                    return -1
                put(s, 34)
            elif pass_string(s):
                return -1
            if key:
                if pass_colon(s):
                    return -1
                if copying:
                    put(s, 58)
                key = False
                c = next_byte(s)
                continue
        elif key:
            return fail(s, BAD_KEY)
        elif c == 123 or c == 91:
            if depth >= MAX_DEPTH:
                return fail(s, TOO_DEEP)
            depth += 1
            objects[depth] = c == 123
            s.at += 1
            if copying:
                put(s, c)
            c = next_byte(s)
            if c != (125 if objects[depth] else 93):
                key = objects[depth]
                continue
            s.at += 1
            depth -= 1
            if copying:
                put(s, c)
        else:
            scalar = s.at
            if pass_scalar(s):
                return -1
            if copying:
                memcpy(s.text + s.written, scalar, s.at - scalar)
                s.written += s.at - scalar
        # A value has ended here.
        while True:
            if depth == base:
                return 0
            c = next_byte(s)
            if c == 44:
                s.at += 1
                if copying:
                    put(s, c)
                key = objects[depth]
                c = next_byte(s)
                break
            if c != (125 if objects[depth] else 93):
                return fail(s, BAD_COMMA)
            s.at += 1
            depth -= 1
            if copying:
                put(s, c)
