"""What ``ext.answer`` does, in plain Python: its specification."""

from __future__ import annotations

_BEGIN = b"HTTP/1.1 200 OK\r\n"
_LENGTH = b"\r\ncontent-length:"
_NOT_PLAIN = (
    b"\r\ntransfer-encoding:",
    b"\r\nconnection:",
    b"\r\nkeep-alive:",
    b"\r\n ",
    b"\r\n\t",
)


def read_whole_answer(data: bytes):
    if not data.startswith(_BEGIN):
        return None
    end = data.find(b"\r\n\r\n") + 2
    if end < 2:
        return None
    head = data[:end].lower()
    breaks = head.count(b"\r\n")
    if head.count(b"\n") != breaks or head.count(b"\r") != breaks or b"\0" in head:
        return None
    if any(line in head for line in _NOT_PLAIN):
        return None
    if head.count(_LENGTH) != 1:
        return None
    at = head.find(_LENGTH) + len(_LENGTH)
    length = head[at : head.find(b"\r", at)].strip(b" \t")
    if not length.isdigit() or len(length) > 18 or end + 2 + int(length) != len(data):
        return None
    kind = _value(data, head, b"\r\ncontent-type:")
    if kind is not None and kind[:17].lower() == "text/event-stream":
        return None
    return kind or "", _value(data, head, b"\r\ncontent-encoding:"), data[end + 2 :]


def _value(data: bytes, head: bytes, name: bytes):
    at = head.find(name)
    if at < 0:
        return None
    at += len(name)
    return data[at : head.find(b"\r", at)].strip(b" \t").decode("latin-1")
