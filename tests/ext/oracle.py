"""Plain Python specification of the extensions: what each must answer, written for reading, not for speed.

The tests hold the extensions equal to it. Weights, marks and names are repeated here on purpose: a change of either
side alone fails.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import xxhash

# --- ext.tokens -----------------------------------------------------------------------------------------------------

REPEATED = (100, 62)
WORD = (650, 500)
LETTER = (100, 40)
DIGIT = (550, 333)
SPACE = (50, 100)
OTHER = (650, 250)
MEDIA_LOW = 64_000

#: first byte of a character from -> thousandths of a token, middle and low
FIRST_BYTES = [
    (0xF5, (0, 0)),
    (0xF0, (2000, 500)),
    (0xEE, (800, 300)),
    (0xEA, (700, 300)),
    (0xE4, (670, 400)),
    (0xE3, (700, 300)),
    (0xE2, (800, 300)),
    (0xE0, (600, 200)),
    (0xCA, (420, 200)),
    (0xC0, (200, 150)),
    (0x80, (0, 0)),
]


def thousandths(text: bytes, media_tokens: int = 1024) -> tuple[int, int]:
    """Middle and low estimate of plain (unescaped) text, marks of the canonical prompt included."""
    marks = {0xFE: (4000, 2000), 0xFF: (media_tokens * 1000, MEDIA_LOW), 0xFC: (1000, 1000)}
    middle = low = 0
    before, before_that = 0, 0
    for byte in text:
        run = byte == before == before_that and byte < 0x80
        char, last = chr(byte), chr(before)
        digit = char in "0123456789"
        letter = char.isascii() and char.isalpha()
        follows_letter = last.isascii() and last.isalpha()
        costs = []
        if letter and (not follows_letter or (char.isupper() and last.islower())):
            costs.append(WORD)
        if byte >= 0x80:
            costs.append(marks.get(byte) or next(c for start, c in FIRST_BYTES if byte >= start))
        elif run:
            costs.append((DIGIT[0], REPEATED[1]) if digit else REPEATED)
        elif letter:
            costs.append(LETTER)
        elif digit:
            costs.append(DIGIT)
        else:
            costs.append(SPACE if char == " " else OTHER)
        middle += sum(cost[0] for cost in costs)
        low += sum(cost[1] for cost in costs)
        before, before_that = byte, before
    return middle, low


def whole(estimate: tuple[int, int]) -> tuple[int, int]:
    return -(-estimate[0] // 1000), -(-estimate[1] // 1000)


# --- ext.prefix -----------------------------------------------------------------------------------------------------


def xxh64(data: bytes, seed: int = 0) -> int:
    return xxhash.xxh64_intdigest(data, seed)


def boundaries(length: int, ends: list[int]) -> list[int]:
    dense = range(256, min(length, 2048) + 1, 256)
    sparse = [1 << power for power in range(12, 48) if 1 << power <= length]
    kept = ends if len(ends) <= 64 else ends[:8] + ends[-56:]
    return sorted({*dense, *sparse, *kept} - {0})


def digest(text: bytes, position: int) -> int:
    state = 0
    for start in range(0, position, 256):
        state = xxh64(text[start : min(start + 256, position)], state)
    return state


def chain(text: bytes, ends: list[int]) -> list[tuple[int, int]]:
    return [(position, digest(text, position)) for position in boundaries(len(text), ends)]


def seed(*parts: bytes) -> int:
    state = 0
    for part in parts:
        state = xxh64(part, state)
    return state


# --- ext.scan -------------------------------------------------------------------------------------------------------


class Refused(Exception):
    def __init__(self, kind: str, member: str = "") -> None:
        super().__init__(kind, member)
        self.kind = kind
        self.member = member


class Number(str):
    """A number as it was written."""


class Object(list[tuple[str, Any]]):
    """Members in order, duplicates kept."""


#: members that are part of the prompt, in the order in which the engine sees them
SECTIONS = [
    "system",
    "instructions",
    "tools",
    "functions",
    "messages",
    "prompt",
    "input",
    "content",
    "suffix",
    "query",
    "documents",
    "text_1",
    "text_2",
]
COUNTS = {"max_tokens": 0, "max_completion_tokens": 0, "max_output_tokens": 0, "n": 1, "best_of": 1}
READ_ONCE = {"model", "stream", "stream_options", "cache_salt", *COUNTS, *SECTIONS}
PASSED_OVER = {
    "type",
    "id",
    "call_id",
    "tool_call_id",
    "tool_use_id",
    "cache_control",
    "signature",
    "encrypted_content",
    "detail",
    "format",
    "media_type",
    "mime_type",
    "status",
    "index",
    "annotations",
    "logprobs",
    "filename",
}
MEDIA_URL = {"url", "image_url", "video_url", "audio_url", "image"}
MEDIA_DATA = {"data", "file_data"}
VERBATIM = {"input", "arguments"}
LIMIT = 2**31 - 1


def utf8(text: str) -> bytes:
    return "".join("\ufffd" if 0xD800 <= ord(c) < 0xE000 else c for c in text).encode()


def bits(value: int, number: int) -> bytes:
    return bytes(0x80 | (value >> (6 * i)) & 63 for i in range(number))


def compact(value: Any) -> bytes:
    if isinstance(value, Object):
        return b"{%s}" % b",".join(b'"%s":%s' % (utf8(k), compact(v)) for k, v in value)
    if isinstance(value, list):
        return b"[%s]" % b",".join(compact(v) for v in value)
    if isinstance(value, Number):
        return value.encode()
    if isinstance(value, str):
        return b'"%s"' % utf8(value)
    return {True: b"true", False: b"false", None: b"null"}[value]


@dataclass
class Prompt:
    """The canonical prompt and what was seen while it was written."""

    text: bytearray = field(default_factory=bytearray)
    ends: list[int] = field(default_factory=list)
    prompts: int = 1
    images: int = 0
    remote_media: int = 0
    has_tools: bool = False
    fresh: bool = True
    pieces: int = 0
    section: str = ""

    def begin_piece(self) -> None:
        if not self.fresh:
            self.text += b"\xfd"
        self.fresh = False
        self.pieces += 1

    def begin_message(self, role: str) -> None:
        self.text += b"\xfe" + bits(xxh64(utf8(role)), 2)
        self.fresh = True

    def add_text(self, text: str, attribution: bool = False) -> None:
        if attribution and self.pieces == 0 and text.startswith("x-anthropic-billing-header"):
            self.pieces += 1
            return
        self.begin_piece()
        self.text += utf8(text)

    def add_media(self, key: str, text: str) -> None:
        data = utf8(text)
        if key in MEDIA_DATA and any(byte <= 32 or byte >= 0x80 for byte in data[:64]):
            self.add_text(text)
            return
        self.images += 1
        self.remote_media += key in MEDIA_URL and not data.startswith(b"data:")
        self.text += b"\xff" + bits(xxh64(data), 8)
        self.fresh = False
        self.pieces += 1

    def add_section(self, name: str, value: Any) -> None:
        if value is None or (name in ("tools", "functions") and value == []):
            return
        before = len(self.ends)
        self.section, self.pieces = name, 0
        if name in ("system", "instructions"):
            self.begin_message("system")
        else:
            self.text += b"\xfd"
            self.fresh = True
        if name in ("tools", "functions"):
            self.text += compact(value)
            self.has_tools = True
        elif isinstance(value, list) and not isinstance(value, Object):
            self.add_list(name, value)
        else:
            self.add_value(value, "", 0)
        if len(self.ends) == before or self.ends[-1] != len(self.text):
            self.ends.append(len(self.text))

    def add_list(self, name: str, items: list[Any]) -> None:
        batch = name in ("prompt", "input")
        kinds = {"string" if type(i) is str else type(i).__name__ for i in items}
        for item in items:
            if name in ("messages", "input") and isinstance(item, Object):
                roles = [v for k, v in item if k == "role" and type(v) is str]
                self.begin_message_of(roles)
                self.add_value(item, "", 1, message=True)
                self.ends.append(len(self.text))
            elif batch and type(item) is list:
                self.text += b"" if self.fresh else b"\xfd"
                self.fresh = True
                for value in item:
                    self.add_id(value) if type(value) is Number else self.add_value(value, "", 2)
                self.ends.append(len(self.text))
            elif batch and type(item) is Number:
                self.add_id(item)
            else:
                self.add_value(item, "", 1)
                if type(item) is str:
                    self.ends.append(len(self.text))
        if batch and len({"other" if k in ("bool", "NoneType") else k for k in kinds}) > 1:
            raise Refused("type", name)
        if batch and kinds in ({"string"}, {"list"}):
            self.prompts = max(self.prompts, len(items))

    def begin_message_of(self, roles: list[str]) -> None:
        if roles:
            self.begin_message(roles[-1])
        else:
            self.text += b"\xfe\x80\x80"
            self.fresh = True

    def add_id(self, number: Number) -> None:
        if not re.fullmatch(r"-?\d+", number):
            raise Refused("type", self.section)
        if number.startswith("-") or int(number) > LIMIT:
            raise Refused("range", self.section)
        self.text += b"\xfc" + bytes(0x80 | int(d) for d in number)
        self.fresh = False
        self.pieces += 1

    def add_value(self, value: Any, key: str, level: int, message: bool = False) -> None:
        """`level`: containers of the section around the value; `message`: the value is a message."""
        if key in PASSED_OVER:
            return
        if type(value) is str:
            if key in MEDIA_URL | MEDIA_DATA:
                self.add_media(key, value)
            else:
                attribution_level = {"system": 2, "messages": 3}.get(self.section, 1000)
                self.add_text(value, level >= attribution_level)
        elif isinstance(value, list) and key in VERBATIM:
            self.begin_piece()
            self.text += compact(value)
        elif isinstance(value, Object):
            for name, member in value:
                if not (message and name == "role" and type(member) is str):
                    self.add_value(member, name, level + 1)
        elif isinstance(value, list):
            for item in value:
                self.add_value(item, "", level + 1)


@dataclass
class Scanned:
    model: str | None = None
    stream: bool = False
    include_usage: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    n: int = 1
    best_of: int = 1
    salt: int = 0
    prompts: int = 1
    has_tools: bool = False
    images: int = 0
    remote_media: int = 0
    tokens_middle: int = 0
    tokens_low: int = 0
    digests: list[tuple[int, int]] = field(default_factory=list)


def not_a_constant(_text: str) -> Any:
    raise ValueError


def parse(body: bytes) -> Any:
    try:
        return json.loads(
            body.decode(),
            object_pairs_hook=Object,
            parse_int=Number,
            parse_float=Number,
            parse_constant=not_a_constant,
        )
    except ValueError:
        raise Refused("malformed") from None


def count(name: str, value: Any) -> int:
    if not isinstance(value, Number) or not re.fullmatch(r"-?\d+", value):
        raise Refused("type", name)
    if not COUNTS[name] <= int(value) <= LIMIT:
        raise Refused("range", name)
    return int(value)


def check_section(name: str, value: Any) -> None:
    is_list = type(value) is list
    if name in ("messages", "tools", "functions") and not (is_list or value is None):
        raise Refused("type", name)
    if name in ("system", "instructions", "prompt", "input") and not (
        is_list or value is None or type(value) is str
    ):
        raise Refused("type", name)


def usage_option(options: Any) -> bool | None:
    if options is None:
        return None
    if not isinstance(options, Object):
        raise Refused("type", "stream_options")
    values = [value for name, value in options if name == "include_usage"]
    if len(values) > 1:
        raise Refused("duplicate", "stream_options.include_usage")
    if values and values[0] not in (True, False, None):
        raise Refused("type", "stream_options.include_usage")
    return values[0] if values else None


def scan(body: bytes, refused: tuple[str, ...] = (), media_tokens: int = 1024) -> Scanned:
    """What a body says. Of several faults the one that comes first is reported, after a malformed body."""
    value = parse(body)
    if not isinstance(value, Object):
        raise Refused("type")
    found = Scanned()
    seen: dict[str, Any] = {}
    for name, member in value:
        if name in refused:
            raise Refused("refused", name)
        if name in seen:
            raise Refused("duplicate", name)
        if name not in READ_ONCE:
            continue
        seen[name] = member
        if name in SECTIONS:
            check_section(name, member)
            Prompt().add_section(name, member)
        elif name == "stream_options":
            found.include_usage = usage_option(member)
        elif member is None:
            continue
        elif name in ("model", "cache_salt"):
            if type(member) is not str:
                raise Refused("type", name)
            if name == "model":
                found.model = utf8(member).decode()
            elif member:
                found.salt = xxh64(utf8(member))
        elif name == "stream":
            if not isinstance(member, bool):
                raise Refused("type", name)
            found.stream = member
        else:
            setattr(found, name, count(name, member))
    prompt = Prompt()
    for name in SECTIONS:
        prompt.add_section(name, seen.get(name))
    text = bytes(prompt.text)
    found.prompts, found.has_tools = prompt.prompts, prompt.has_tools
    found.images, found.remote_media = prompt.images, prompt.remote_media
    found.tokens_middle, found.tokens_low = whole(thousandths(text, media_tokens))
    found.digests = [
        (value, whole(thousandths(text[:position], media_tokens))[0])
        for position, value in chain(text, prompt.ends)
    ]
    return found
