# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The plain answer: one HTTP/1.1 200 that one read brought whole. See the stub for what it is for."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeLatin1
from libc.string cimport memcmp


cdef inline unsigned char lower(unsigned char byte) noexcept nogil:
    return byte + 32 if 65 <= byte <= 90 else byte


cdef bint is_named(const unsigned char* line, Py_ssize_t size, const char* name) noexcept nogil:
    """Whether the ``size`` bytes of a header's name are ``name`` (in lower case)."""
    cdef Py_ssize_t at
    for at in range(size):
        if lower(line[at]) != <unsigned char>name[at]:
            return False
    return True


cdef object text_of(const unsigned char* data, Py_ssize_t begin, Py_ssize_t end):
    """A header's value without the blanks around it."""
    while begin < end and (data[begin] == 32 or data[begin] == 9):
        begin += 1
    while end > begin and (data[end - 1] == 32 or data[end - 1] == 9):
        end -= 1
    return PyUnicode_DecodeLatin1(<char*>data + begin, end - begin, NULL)


cdef Py_ssize_t number_of(const unsigned char* data, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
    """A length in digits with blanks around it; -1 when it is none."""
    cdef Py_ssize_t found = 0
    while begin < end and (data[begin] == 32 or data[begin] == 9):
        begin += 1
    while end > begin and (data[end - 1] == 32 or data[end - 1] == 9):
        end -= 1
    if begin == end or end - begin > 18:
        return -1
    while begin < end:
        if not 48 <= data[begin] <= 57:
            return -1
        found = found * 10 + (data[begin] - 48)
        begin += 1
    return found


def read_whole_answer(bytes answer not None):
    cdef const unsigned char* data = <const unsigned char*>PyBytes_AS_STRING(answer)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(answer)
    cdef Py_ssize_t at = 17, line, colon, length = -1
    cdef Py_ssize_t kind_begin = -1, kind_end = 0, coding_begin = -1, coding_end = 0
    if size < 19 or memcmp(data, b"HTTP/1.1 200 OK\r\n", 17) != 0:
        return None
    while True:
        line = at
        colon = -1
        if at < size and (data[at] == 32 or data[at] == 9):
            return None
        while at < size and data[at] != 13:
            if data[at] == 10 or data[at] == 0:
                return None
            if colon < 0 and data[at] == 58:
                colon = at
            at += 1
        if at + 1 >= size or data[at + 1] != 10:
            return None
        if at == line:
            break
        if colon >= 0:
            if colon - line == 14 and is_named(data + line, 14, b"content-length"):
                if length >= 0:
                    return None
                length = number_of(data, colon + 1, at)
                if length < 0:
                    return None
            elif colon - line == 12 and is_named(data + line, 12, b"content-type"):
                if kind_begin < 0:
                    kind_begin, kind_end = colon + 1, at
            elif colon - line == 16 and is_named(data + line, 16, b"content-encoding"):
                if coding_begin < 0:
                    coding_begin, coding_end = colon + 1, at
            elif colon - line == 17 and is_named(data + line, 17, b"transfer-encoding"):
                return None
            elif colon - line == 10 and (
                is_named(data + line, 10, b"connection") or is_named(data + line, 10, b"keep-alive")
            ):
                return None
        at += 2
    at += 2
    if length < 0 or length != size - at:
        return None
    kind = "" if kind_begin < 0 else text_of(data, kind_begin, kind_end)
    if kind[:17].lower() == "text/event-stream":
        return None
    coding = None if coding_begin < 0 else text_of(data, coding_begin, coding_end)
    return kind, coding, PyBytes_FromStringAndSize(<char*>data + at, size - at)
