"""Answers of /v1/messages: Anthropic's events and body.

As Anthropic counts, input_tokens are the uncached ones and cache_read_input_tokens the cached.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from agent.sim_engine.answer_forms import Head, Usage, encode
from agent.sim_engine.greek_reply import Reply
from agent.sim_engine.request_forms import ToolCall

_STOP_REASONS = {"length": "max_tokens", "stop": "stop_sequence", "tool_calls": "tool_use"}


def _event(kind: str, fields: dict[str, Any]) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + encode({"type": kind, **fields}) + b"\n\n"


class MessagesForm:
    def __init__(self, head: Head, call: ToolCall | None) -> None:
        self._head = head
        self._call = call
        kind, field = (
            ("text_delta", "text") if call is None else ("input_json_delta", "partial_json")
        )
        around = _event(
            "content_block_delta", {"index": 0, "delta": {"type": kind, field: "\0"}}
        ).partition(b'"\\u0000"')
        self._before, self._after = around[0], around[2]

    def opening(self, usage: Usage) -> bytes:
        message = {
            **self._frame(),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(usage),
        }
        block = {"index": 0, "content_block": self._block("", {})}
        return _event("message_start", {"message": message}) + _event("content_block_start", block)

    def token(self, index: int, text: str, ended: Reply | None) -> bytes:
        return self._before + encode(text) + self._after

    def closing(self, usage: Usage, reply: Reply) -> bytes:
        delta = {"stop_reason": _STOP_REASONS[reply.finish], "stop_sequence": reply.stop}
        return (
            _event("content_block_stop", {"index": 0})
            + _event("message_delta", {"delta": delta, "usage": _usage(usage)})
            + _event("message_stop", {})
        )

    def whole(self, replies: list[Reply], usage: Usage) -> bytes:
        (reply,) = replies
        arguments = _arguments(self._call, reply)
        return encode(
            {
                **self._frame(),
                "content": [self._block(reply.text(0, reply.tokens), arguments)],
                "stop_reason": _STOP_REASONS[reply.finish],
                "stop_sequence": reply.stop,
                "usage": _usage(usage),
            }
        )

    def _frame(self) -> dict[str, Any]:
        head = self._head
        return {"id": head.id, "type": "message", "role": "assistant", "model": head.model}

    def _block(self, text: str, arguments: Any) -> dict[str, Any]:
        if self._call is None:
            return {"type": "text", "text": text}
        tool_id = f"toolu_{self._head.id}"
        return {"type": "tool_use", "id": tool_id, "name": self._call.name, "input": arguments}


def _arguments(call: ToolCall | None, reply: Reply) -> Any:
    """The call's arguments; none when max_tokens cut them off."""
    return Raw(call.arguments.encode()) if call and reply.finish == "tool_calls" else {}


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.produced,
    }
