"""The requests that every contestant is asked; tests and benches share them."""

from __future__ import annotations

from typing import Any

import msgspec

MODEL = "tiny"
PATH = "/v1/chat/completions"
_SYSTEM_SENTENCE = "You are a careful assistant for the support desk. "
#: 31 sentences make the whole body 1.7 KB: a short system prompt and one question.
_SYSTEM_SENTENCES = 31


def chat_body(*, stream: bool) -> bytes:
    """The 1.7 KB chat request as JSON; `stream` asks for server-sent events."""
    body: dict[str, Any] = {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": _SYSTEM_SENTENCE * _SYSTEM_SENTENCES},
            {"role": "user", "content": "Tell me about routers."},
        ],
        "max_tokens": 40,
    }
    if stream:
        body["stream"] = True
    return msgspec.json.encode(body)
