# Why a body is refused: every reason, its kind and its text.

MALFORMED = "malformed"
DUPLICATE = "duplicate"
TYPE = "type"
RANGE = "range"
REFUSED_MEMBER = "refused"
DEPTH = "depth"

# Problems, in the order of PROBLEMS.
cdef enum Problem:
    NO_PROBLEM
    BAD_EMPTY
    BAD_BODY
    BAD_TRUNCATED
    BAD_VALUE
    BAD_NUMBER
    BAD_LITERAL
    BAD_KEY
    BAD_COLON
    BAD_COMMA
    BAD_TRAILING
    BAD_STRING_END
    BAD_CONTROL
    BAD_UTF8
    BAD_ESCAPE
    TOO_DEEP
    TWICE
    NOT_STRING
    NOT_BOOLEAN
    NOT_OBJECT
    NOT_ARRAY
    NOT_STRING_OR_ARRAY
    NOT_COUNT
    NOT_ID
    MIXED
    OUT_OF_RANGE
    ID_RANGE
    MUST_NOT_PASS
    NO_MEMORY

PROBLEMS = {
    BAD_EMPTY: (MALFORMED, "the body is empty; it must be a JSON object"),
    BAD_BODY: (TYPE, "the body must be a JSON object, starting with {"),
    BAD_TRUNCATED: (MALFORMED, "the body ends before the JSON is complete"),
    BAD_VALUE: (MALFORMED, "a JSON value was expected"),
    BAD_NUMBER: (MALFORMED, "not a number in JSON's form"),
    BAD_LITERAL: (MALFORMED, "only true, false and null may stand without quotes"),
    BAD_KEY: (MALFORMED, "a member name in double quotes was expected"),
    BAD_COLON: (MALFORMED, "a colon was expected after the member name"),
    BAD_COMMA: (MALFORMED, "a comma or the closing bracket was expected"),
    BAD_TRAILING: (MALFORMED, "nothing may follow the closing } of the body"),
    BAD_STRING_END: (MALFORMED, "the body ends inside a string"),
    BAD_CONTROL: (MALFORMED, "a control character inside a string must be escaped, such as \\n"),
    BAD_UTF8: (MALFORMED, "the body is not UTF-8"),
    BAD_ESCAPE: (MALFORMED, "not a JSON escape: after a backslash write one of \"\\/bfnrt or u and four hex digits"),
    TOO_DEEP: (DEPTH, "arrays and objects may be nested at most 256 deep"),
    TWICE: (DUPLICATE, "this member appears twice; send it once"),
    NOT_STRING: (TYPE, "must be a string"),
    NOT_BOOLEAN: (TYPE, "must be true or false"),
    NOT_OBJECT: (TYPE, "must be an object"),
    NOT_ARRAY: (TYPE, "must be an array"),
    NOT_STRING_OR_ARRAY: (TYPE, "must be a string or an array"),
    NOT_COUNT: (TYPE, "must be an integer, without quotes, fraction or exponent"),
    NOT_ID: (TYPE, "token ids must be integers"),
    MIXED: (TYPE, "must hold elements of one kind: all strings, all token ids, or all lists of token ids"),
    OUT_OF_RANGE: (RANGE, "is out of range: at most 2147483647, and at least 0 (n and best_of: 1)"),
    ID_RANGE: (RANGE, "token ids must be from 0 to 2147483647"),
    MUST_NOT_PASS: (REFUSED_MEMBER, "this member is not accepted here; remove it"),
}


class ScanError(Exception):
    def __init__(self, kind, member, message, offset):
        super().__init__(f"{member}: {message}" if member else f"{message} (byte {offset})")
        self.kind = kind
        self.member = member
        self.message = message
        self.offset = offset
