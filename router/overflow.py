"""Prompts that do not fit the window: ours found before sending, and the engines' own words for it.

Agents recover by the code ``context_length_exceeded`` and by known phrases; engines send neither reliably.
"""

from __future__ import annotations

import re

import msgspec

from router.bookings import WINDOW_TOLERANCE
from router.errors import ContextTooLong, Form

#: Longer bodies of a 400 are not read for it.
LONGEST_READ = 16 * 1024

_VLLM = re.compile(
    r"maximum context length is (\d+) tokens.{0,200}?(?:requested|resulted in|contains at least) (\d+)",
    re.DOTALL,
)
_SGLANG = re.compile(
    r"(?:input|length of)[^0-9]{0,60}\(?(\d+)(?: tokens)?\)?.{0,80}?(?:context length|maximum)[^0-9]{0,30}\(?(\d+)",
    re.DOTALL | re.IGNORECASE,
)


class _Error(msgspec.Struct):
    message: str = ""
    type: str | None = None
    n_prompt_tokens: int | None = None
    n_ctx: int | None = None


class _Body(msgspec.Struct):
    error: _Error | str | None = None
    message: str = ""


_decode = msgspec.json.Decoder(_Body).decode


def exceeds(low_tokens: int, window: int | None) -> bool:
    """Whether a prompt is refused; an unknown window is not checked."""
    return window is not None and low_tokens > window * WINDOW_TOLERANCE


def too_long(
    tokens: int, window: int, form: Form, member: str, *, estimated: bool
) -> ContextTooLong:
    """The refusal in the phrases that agents look for."""
    about = "estimated " if estimated else ""
    return ContextTooLong(
        f"This model's maximum context length is {window} tokens, but the request has {about}{tokens} "
        "tokens. Shorten the prompt",
        param=None if form == "anthropic" else member,
        anthropic_message=f"prompt is too long: {tokens} tokens > {window} maximum",
    )


def recognise(body: bytes) -> tuple[int, int] | None:
    """(prompt tokens, window) when an engine's 400 says that the prompt does not fit."""
    if len(body) > LONGEST_READ:
        return None
    try:
        read = _decode(body)
    except msgspec.MsgspecError:
        return None
    error = read.error
    if isinstance(error, _Error):
        if error.n_prompt_tokens is not None and error.n_ctx is not None:
            return error.n_prompt_tokens, error.n_ctx
        text = error.message
    else:
        text = error or read.message
    found = _VLLM.search(text)
    if found is not None:
        return int(found[2]), int(found[1])
    found = _SGLANG.search(text)
    if found is not None and int(found[1]) > int(found[2]):
        return int(found[1]), int(found[2])
    return None
