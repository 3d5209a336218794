"""An HTTP/1.1 answer that one read brought whole: the usual one, read in one pass and without callbacks.

Anything that is not plainly this (another status, chunks, an event stream, two lengths, a line that ends
otherwise, a folded line, a word on the connection, a byte too many or too few) is left to a parser.
"""

def read_whole_answer(answer: bytes) -> tuple[str, str | None, bytes] | None:
    """The answer when ``answer`` is exactly one plain 200 with its whole body, else None.

    content-type ("" where there is none), content-encoding or None, body.
    """
