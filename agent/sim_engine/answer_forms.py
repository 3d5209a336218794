"""How an answer is written: what every form has in common, and the two forms of OpenAI.

A form turns tokens into the bytes of server-sent events, or all of them into one JSON body. It
knows nothing of connections; one object serves one request.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from agent.sim_engine.greek_reply import Reply
from agent.sim_engine.request_forms import ToolCall

encode = msgspec.json.encode
DONE = b"data: [DONE]\n\n"


class Usage(msgspec.Struct, frozen=True):
    """Tokens: of the prompts, of those the cached ones, and produced."""

    prompt: int
    cached: int
    produced: int


class Head(msgspec.Struct, frozen=True):
    """What every event of one answer repeats. created: seconds since 1970. choices: how many."""

    id: str
    created: int
    model: str
    choices: int


class Form(Protocol):
    def opening(self, usage: Usage) -> bytes:
        """The events before the first token."""

    def token(self, index: int, text: str, ended: Reply | None) -> bytes:
        """One token of choice `index`; `ended` is its reply when this is the last one."""

    def closing(self, usage: Usage, reply: Reply) -> bytes:
        """The events after the last token."""

    def whole(self, replies: list[Reply], usage: Usage) -> bytes:
        """The body of an answer that is not streamed; replies by index of the choice."""


def openai_usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "total_tokens": usage.prompt + usage.produced,
        "completion_tokens": usage.produced,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


def _event(value: object) -> bytes:
    return b"data: " + encode(value) + b"\n\n"


def _split_event(value: object) -> tuple[bytes, bytes]:
    """An event before and after its text, which stands in `value` as the string "\\0"."""
    before, _, after = _event(value).partition(b'"\\u0000"')
    return before, after


class ChatForm:
    """/v1/chat/completions."""

    def __init__(self, head: Head, include_usage: bool, call: ToolCall | None) -> None:
        self._head = head
        self._include_usage = include_usage
        self._call = call
        # The parts of a token's event that do not change are made once: a stream is mostly these.
        self._around = [_split_event(self._chunk(i, self._delta("\0"))) for i in _all(head)]

    def opening(self, usage: Usage) -> bytes:
        parts = []
        for index in _all(self._head):
            parts.append(_event(self._chunk(index, {"role": "assistant", "content": ""})))
            if self._call is not None:
                function = {"name": self._call.name, "arguments": ""}
                call = {"index": 0, "id": self._call_id(index), "type": "function"}
                delta = {"tool_calls": [{**call, "function": function}]}
                parts.append(_event(self._chunk(index, delta)))
        return b"".join(parts)

    def token(self, index: int, text: str, ended: Reply | None) -> bytes:
        if ended is not None:
            return _event(self._chunk(index, self._delta(text), ended))
        before, after = self._around[index]
        return before + encode(text) + after

    def closing(self, usage: Usage, reply: Reply) -> bytes:
        if not self._include_usage:
            return DONE
        return _event({**self._frame(), "choices": [], "usage": openai_usage(usage)}) + DONE

    def whole(self, replies: list[Reply], usage: Usage) -> bytes:
        choices = []
        for index, reply in enumerate(replies):
            text = reply.text(0, reply.tokens)
            message: dict[str, Any] = {"role": "assistant", "content": text, "tool_calls": []}
            if self._call is not None:
                function = {"name": self._call.name, "arguments": text}
                call = {"id": self._call_id(index), "type": "function", "function": function}
                message |= {"content": None, "tool_calls": [call]}
            choices.append(
                {
                    "index": index,
                    "message": message,
                    "logprobs": None,
                    "finish_reason": reply.finish,
                    "stop_reason": reply.stop,
                }
            )
        frame = {**self._frame(), "object": "chat.completion"}
        return encode({**frame, "choices": choices, "usage": openai_usage(usage)})

    def _frame(self) -> dict[str, Any]:
        return {
            "id": self._head.id,
            "object": "chat.completion.chunk",
            "created": self._head.created,
            "model": self._head.model,
        }

    def _chunk(
        self, index: int, delta: dict[str, Any], ended: Reply | None = None
    ) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        if ended is not None:
            choice |= {"finish_reason": ended.finish, "stop_reason": ended.stop}
        return {**self._frame(), "choices": [choice]}

    def _delta(self, text: str) -> dict[str, Any]:
        if self._call is None:
            return {"content": text}
        return {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}

    def _call_id(self, index: int) -> str:
        return f"call_{self._head.id}-{index}"


class CompletionForm:
    """/v1/completions."""

    def __init__(self, head: Head, include_usage: bool) -> None:
        self._head = head
        self._include_usage = include_usage
        self._around = [_split_event(self._chunk(i, "\0", None, None)) for i in _all(head)]

    def opening(self, usage: Usage) -> bytes:
        return b""

    def token(self, index: int, text: str, ended: Reply | None) -> bytes:
        if ended is not None:
            return _event(self._chunk(index, text, ended.finish, ended.stop))
        before, after = self._around[index]
        return before + encode(text) + after

    def closing(self, usage: Usage, reply: Reply) -> bytes:
        if not self._include_usage:
            return DONE
        return _event({**self._frame(), "choices": [], "usage": openai_usage(usage)}) + DONE

    def whole(self, replies: list[Reply], usage: Usage) -> bytes:
        choices = [
            self._choice(index, reply.text(0, reply.tokens), reply.finish, reply.stop)
            for index, reply in enumerate(replies)
        ]
        return encode({**self._frame(), "choices": choices, "usage": openai_usage(usage)})

    def _frame(self) -> dict[str, Any]:
        return {
            "id": self._head.id,
            "object": "text_completion",
            "created": self._head.created,
            "model": self._head.model,
        }

    def _choice(self, index: int, text: str, finish: str | None, stop: str | None) -> object:
        return {
            "index": index,
            "text": text,
            "logprobs": None,
            "finish_reason": finish,
            "stop_reason": stop,
        }

    def _chunk(self, index: int, text: str, finish: str | None, stop: str | None) -> object:
        return {**self._frame(), "choices": [self._choice(index, text, finish, stop)]}


def _all(head: Head) -> range:
    return range(head.choices)
