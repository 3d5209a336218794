"""The head of a request: whether it may stand, and what of it is looked at.

llhttp (by httptools) judges the head: whatever it lets pass has lines that end in CR LF and nowhere else a CR or an
LF, names that are tokens right up to their colon, no folded line, at most one ``content-length`` and never
together with ``transfer-encoding``. A header is then found by a search for its line, when it is asked for:
most never are, and a callback for each costs more than the whole judgement.

llhttp is never shown a byte that follows the head. So how long the body is, and where the next request begins, is
decided here alone, and no two readings of the same bytes can differ.
"""

from __future__ import annotations

from urllib.parse import unquote

import httptools

#: ``RequestHead.length`` of a body whose length is not announced.
CHUNKED = -1
#: Request lines whose reading is kept; a longer line, and one with a query, is read each time.
_KEPT_LINES = 512
_KEPT_LENGTH = 160


class HeadRefused(Exception):
    """The head cannot be answered as asked. ``status`` of the answer, ``why`` for people."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class RequestHead:
    """``keep``: the connection may be used again; ``newer``: HTTP/1.1 or later, not 1.0."""

    __slots__ = ("_lower", "_raw", "keep", "length", "method", "newer", "path")

    def __init__(
        self,
        raw: bytes,
        lower: bytes,
        line: tuple[str, str, bool],
        length: int,
        keep: bool,
    ) -> None:
        self._raw = raw
        self._lower = lower
        self.method, self.path, self.newer = line
        #: Bytes of the body, CHUNKED when it has chunks.
        self.length = length
        self.keep = keep

    def header(self, name: str) -> str | None:
        """The first value of a header (name in lower case), or None."""
        needle = _NEEDLES.get(name)
        if needle is None:
            needle = _NEEDLES[name] = f"\r\n{name}:".encode("latin-1")
        begin = self._lower.find(needle)
        if begin < 0:
            return None
        begin += len(needle)
        raw = self._raw
        return raw[begin : raw.find(b"\r\n", begin)].strip(b" \t").decode("latin-1")


def read_head(raw: bytes) -> RequestHead:
    """Read a head that ends with its empty line. HeadRefused."""
    upgrade = False
    try:
        httptools.HttpRequestParser(_SILENT).feed_data(raw)
    except httptools.HttpParserUpgrade:
        # Asked for by the client and never done: it is answered in HTTP/1.1.
        upgrade = True
    except httptools.HttpParserError as error:
        raise HeadRefused(400, f"this is no request of HTTP/1.1: {error}") from None
    request_line = raw[: raw.find(b"\r\n")]
    line = _LINES.get(request_line) or _read_line(request_line)
    lower = raw.lower()
    begin = lower.find(b"\r\ncontent-length:")
    if begin >= 0:
        value = raw[begin + 17 : raw.find(b"\r\n", begin + 17)].strip(b" \t")
        if not value.isdigit():
            raise HeadRefused(400, "content-length is not a number")
        length = int(value)
    elif lower.find(b"\r\ntransfer-encoding:") >= 0:
        length = CHUNKED
    else:
        length = 0
    newer = line[2]
    keep = newer
    if lower.find(b"\r\nconnection:") >= 0:
        asked = _connection_options(lower)
        keep = b"close" not in asked and (newer or b"keep-alive" in asked)
    head = RequestHead(raw, lower, line, length, keep and not upgrade)
    if length == CHUNKED:
        _check_chunked(head)
    return head


def _read_line(request_line: bytes) -> tuple[str, str, bool]:
    """Method, percent-decoded path without query, and whether it is HTTP/1.1."""
    parts = request_line.split(b" ")
    if len(parts) != 3:
        raise HeadRefused(400, "the request line is not: METHOD TARGET HTTP/1.1")
    method, target, version = parts
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise HeadRefused(505, "this router speaks HTTP/1.1")
    if not method.replace(b"-", b"").isalpha():
        raise HeadRefused(400, "the method is not a word")
    if method == b"CONNECT":
        raise HeadRefused(405, "this router is no proxy")
    found = (method.decode("ascii"), _path_of(target), version == b"HTTP/1.1")
    if len(request_line) <= _KEPT_LENGTH and b"?" not in target:
        if len(_LINES) >= _KEPT_LINES:
            _LINES.clear()
        _LINES[request_line] = found
    return found


def _path_of(target: bytes) -> str:
    text = target.decode("latin-1")
    if not text.startswith("/") and "://" in text:
        # absolute-form, as it is written to proxies.
        rest = text.partition("://")[2]
        cut = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
        text = rest[cut:]
        if not text.startswith("/"):
            text = "/" + text
    for mark in ("?", "#"):
        text = text.partition(mark)[0]
    return unquote(text, errors="replace") if "%" in text else text


def _connection_options(lower: bytes) -> set[bytes]:
    """What all ``connection`` headers together ask for."""
    found: set[bytes] = set()
    for line in lower.split(b"\r\n"):
        if line.startswith(b"connection:"):
            found.update(option.strip(b" \t") for option in line[11:].split(b","))
    return found


def _check_chunked(head: RequestHead) -> None:
    coding = head.header("transfer-encoding")
    if coding is None or coding.lower() != "chunked":
        raise HeadRefused(501, "of the transfer codings only chunked is known here")
    if not head.newer:
        # Whoever passed it on may have seen another end of it.
        raise HeadRefused(400, "HTTP/1.0 has no transfer-encoding")


class _Silent:
    """Wants no callback: llhttp alone decides whether the head may stand."""

    on_message_begin = None
    on_url = None
    on_header = None
    on_headers_complete = None
    on_body = None
    on_chunk_header = None
    on_chunk_complete = None
    on_message_complete = None


_SILENT = _Silent()
_LINES: dict[bytes, tuple[str, str, bool]] = {}
#: Only names that our own code asks for.
_NEEDLES: dict[str, bytes] = {}
