"""Reads request bodies of the OpenAI and the Anthropic form into the values that answers need.

A chat becomes one text that is cut into blocks for the prefix cache. The text of a conversation is
the beginning of the text of the same conversation with more turns, and a turn that the engine
wrote itself reads the same when it comes back as part of the next request.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from agent.sim_engine.errors import Rejected, bad_request
from agent.sim_engine.prefix_cache import count_tokens

#: As vLLM would, a chat without max_tokens could run to the end of the context; that much Greek
#: helps nobody.
DEFAULT_CHAT_TOKENS = 128
DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's
MAX_CHOICES = 128  # choices of one request: beyond it a typing mistake is likelier than a wish

_Count = Annotated[int, Meta(ge=1)]
_Choices = Annotated[int, Meta(ge=1, le=MAX_CHOICES)]
_TokenId = Annotated[int, Meta(ge=0, lt=2**32)]
_Prompt = str | list[Any]
_Stops = str | list[str] | None


class _Message(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[dict[str, Any]] | None = None


class _Function(msgspec.Struct):
    name: str
    parameters: dict[str, Any] | None = None


class _Tool(msgspec.Struct):
    function: _Function


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _ChatBody(msgspec.Struct):
    messages: Annotated[list[_Message], Meta(min_length=1)]
    model: str | None = None
    max_tokens: _Count | None = None
    max_completion_tokens: _Count | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: _Choices | None = None
    stop: _Stops = None
    tools: list[_Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None


class _CompletionBody(msgspec.Struct):
    prompt: _Prompt
    model: str | None = None
    max_tokens: _Count | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: _Choices | None = None
    stop: _Stops = None


class _AnthropicTool(msgspec.Struct):
    name: str
    input_schema: dict[str, Any] | None = None


class _MessagesBody(msgspec.Struct):
    messages: Annotated[list[_Message], Meta(min_length=1)]
    model: str
    max_tokens: _Count
    system: str | list[dict[str, Any]] | None = None
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    tools: list[_AnthropicTool] | None = None
    tool_choice: dict[str, Any] | None = None


class _CountBody(msgspec.Struct):
    messages: Annotated[list[_Message], Meta(min_length=1)]
    model: str
    system: str | list[dict[str, Any]] | None = None
    tools: list[_AnthropicTool] | None = None


class _EmbeddingsBody(msgspec.Struct):
    input: _Prompt
    model: str | None = None
    dimensions: Annotated[int, Meta(ge=1, le=65_536)] | None = None
    encoding_format: Literal["float", "base64"] | None = None


class _TokenizeBody(msgspec.Struct):
    model: str | None = None
    prompt: str | None = None
    messages: list[_Message] | None = None


class ToolCall(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """A request for tokens. max_tokens is settled: it fits the context."""

    model: str
    prompts: tuple[bytes, ...]
    max_tokens: int
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    stops: tuple[str, ...] = ()
    call: ToolCall | None = None


class Embeddings(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    inputs: tuple[bytes, ...]
    dimensions: int | None
    base64: bool


class Limits(msgspec.Struct, frozen=True):
    """What this engine serves: names (the first is the default), context, whether it calls tools."""

    names: tuple[str, ...]
    max_model_len: int
    tools: bool


def read_chat(body: bytes, limits: Limits) -> Generation:
    asked = _decode(body, _ChatBody)
    model = _known(asked.model, limits)
    tools = asked.tools or []
    prompt = render_chat(asked.messages, None, [_raw(tool) for tool in tools])
    wanted = asked.max_completion_tokens or asked.max_tokens
    _check_stream_options(asked.stream, asked.stream_options)
    return Generation(
        model=model,
        prompts=(prompt,),
        max_tokens=_room((prompt,), wanted, DEFAULT_CHAT_TOKENS, limits, "messages"),
        n=asked.n or 1,
        stream=bool(asked.stream),
        include_usage=bool(asked.stream_options and asked.stream_options.include_usage),
        stops=_stops(asked.stop),
        call=_openai_call(asked, tools) if limits.tools else None,
    )


def read_completion(body: bytes, limits: Limits) -> Generation:
    asked = _decode(body, _CompletionBody)
    model = _known(asked.model, limits)
    prompts = _prompts(asked.prompt, "prompt")
    _check_stream_options(asked.stream, asked.stream_options)
    return Generation(
        model=model,
        prompts=prompts,
        max_tokens=_room(prompts, asked.max_tokens, DEFAULT_COMPLETION_TOKENS, limits, "prompt"),
        n=asked.n or 1,
        stream=bool(asked.stream),
        include_usage=bool(asked.stream_options and asked.stream_options.include_usage),
        stops=_stops(asked.stop),
    )


def read_messages(body: bytes, limits: Limits) -> Generation:
    asked = _decode(body, _MessagesBody)
    model = _known(asked.model, limits)
    tools = asked.tools or []
    prompt = render_chat(asked.messages, asked.system, [_raw(tool) for tool in tools])
    return Generation(
        model=model,
        prompts=(prompt,),
        max_tokens=_room((prompt,), asked.max_tokens, asked.max_tokens, limits, "messages"),
        stream=bool(asked.stream),
        stops=tuple(stop for stop in asked.stop_sequences or () if stop),
        call=_anthropic_call(asked, tools) if limits.tools else None,
    )


def read_count(body: bytes, limits: Limits) -> int:
    """Prompt tokens of an Anthropic count_tokens request."""
    asked = _decode(body, _CountBody)
    _known(asked.model, limits)
    tools = [_raw(tool) for tool in asked.tools or []]
    return count_tokens(render_chat(asked.messages, asked.system, tools))


def read_embeddings(body: bytes, limits: Limits) -> Embeddings:
    asked = _decode(body, _EmbeddingsBody)
    model = _known(asked.model, limits)
    inputs = _prompts(asked.input, "input")
    for text in inputs:
        if count_tokens(text) > limits.max_model_len:
            raise _too_long(count_tokens(text), limits, "input")
    return Embeddings(
        model=model,
        inputs=inputs,
        dimensions=asked.dimensions,
        base64=asked.encoding_format == "base64",
    )


def read_tokenize(body: bytes, limits: Limits) -> bytes:
    """The text that is to be counted."""
    asked = _decode(body, _TokenizeBody)
    _known(asked.model, limits)
    if asked.messages:
        return render_chat(asked.messages, None, [])
    if asked.prompt is None:
        raise bad_request("Give either prompt (a text) or messages.", "prompt")
    return asked.prompt.encode()


def render_chat(
    messages: Sequence[_Message],
    system: str | list[dict[str, Any]] | None,
    tools: Sequence[bytes],
) -> bytes:
    """The conversation as one text, up to where the engine's own turn begins."""
    parts = [b"<|tools|>" + b"".join(tools) + b"\n"] if tools else []
    if system is not None:
        parts.append(b"<|system|>" + _content(system) + b"\n")
    for message in messages:
        calls = msgspec.json.encode(message.tool_calls) if message.tool_calls else b""
        role = message.role.encode()
        parts.append(b"<|" + role + b"|>" + _content(message.content) + calls + b"\n")
    parts.append(b"<|assistant|>")
    return b"".join(parts)


def _content(content: str | list[dict[str, Any]] | None) -> bytes:
    if content is None:
        return b""
    if isinstance(content, str):
        return content.encode()
    return b"".join(
        part["text"].encode() if isinstance(part.get("text"), str) else msgspec.json.encode(part)
        for part in content
    )


B = TypeVar("B")


def _decode(body: bytes, form: type[B]) -> B:
    try:
        return msgspec.json.decode(body, type=form)
    except msgspec.ValidationError as wrong:
        raise bad_request(str(wrong)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise bad_request(f"The body is not valid JSON: {wrong}") from None


def _known(model: str | None, limits: Limits) -> str:
    if model is None:
        return limits.names[0]
    if model not in limits.names:
        raise Rejected(404, "NotFoundError", f"The model `{model}` does not exist.", "model")
    return model


def _room(
    prompts: Iterable[bytes], wanted: int | None, default: int, limits: Limits, param: str
) -> int:
    """The tokens that may be produced; Rejected when prompt and wish exceed the context."""
    longest = max(count_tokens(prompt) for prompt in prompts)
    room = limits.max_model_len - longest
    if room < 1:
        raise _too_long(longest, limits, param)
    if wanted is not None and wanted > room:
        raise bad_request(
            f"'max_tokens' or 'max_completion_tokens' is too large: {wanted}. This model's maximum "
            f"context length is {limits.max_model_len} tokens and your request has {longest} input "
            f"tokens ({wanted} > {limits.max_model_len} - {longest}).",
            "max_tokens",
        )
    return min(default, room) if wanted is None else wanted


def _too_long(tokens: int, limits: Limits, param: str) -> Rejected:
    return bad_request(
        f"This model's maximum context length is {limits.max_model_len} tokens. However, your "
        f"request has {tokens} input tokens. Please reduce the length of the input {param}.",
        param,
    )


def _prompts(value: _Prompt, field: str) -> tuple[bytes, ...]:
    """A text, texts, token ids, or lists of token ids; an id counts as one token."""
    for form, several in (
        (str, False),
        (list[_TokenId], False),
        (list[str], True),
        (list[list[_TokenId]], True),
    ):
        try:
            read: Any = msgspec.convert(value, form)
        except msgspec.ValidationError:
            continue
        prompts = tuple(_prompt_bytes(one) for one in (read if several else [read]))
        if prompts and all(prompts):
            return prompts
        break
    raise bad_request(
        f"`{field}` must be a non-empty text, a list of texts, a list of token ids, or a list of "
        "lists of token ids.",
        field,
    )


def _prompt_bytes(prompt: str | list[int]) -> bytes:
    return prompt.encode() if isinstance(prompt, str) else array("I", prompt).tobytes()


def _check_stream_options(stream: bool | None, options: _StreamOptions | None) -> None:
    if options is not None and not stream:
        raise bad_request(
            "Stream options can only be defined when `stream=True`.", "stream_options"
        )


def _stops(stop: _Stops) -> tuple[str, ...]:
    return tuple(text for text in ([stop] if isinstance(stop, str) else stop or []) if text)


def _raw(tool: msgspec.Struct) -> bytes:
    return msgspec.json.encode(tool)


def _openai_call(asked: _ChatBody, tools: list[_Tool]) -> ToolCall | None:
    choice = asked.tool_choice
    if not tools or choice == "none" or asked.messages[-1].role == "tool":
        return None
    named = (choice.get("function") or {}).get("name") if isinstance(choice, dict) else None
    return _call({tool.function.name: tool.function.parameters for tool in tools}, named)


def _anthropic_call(asked: _MessagesBody, tools: list[_AnthropicTool]) -> ToolCall | None:
    choice = asked.tool_choice or {}
    if not tools or choice.get("type") == "none" or _has_tool_result(asked.messages[-1]):
        return None
    return _call({tool.name: tool.input_schema for tool in tools}, choice.get("name"))


def _has_tool_result(message: _Message) -> bool:
    content = message.content
    return isinstance(content, list) and any(p.get("type") == "tool_result" for p in content)


def _call(schemas: dict[str, dict[str, Any] | None], named: Any) -> ToolCall:
    """The fixed call: the named tool or the first one, every required argument given."""
    if named is not None and named not in schemas:
        raise bad_request(f"tool_choice names {named!r}, which is not in tools.", "tool_choice")
    name = named if named is not None else next(iter(schemas))
    schema = schemas[name] or {}
    properties = schema.get("properties") or {}
    arguments = {}
    for field in schema.get("required") or ():
        known = properties.get(field) if isinstance(properties, dict) else None
        arguments[str(field)] = _example(known if isinstance(known, dict) else {})
    return ToolCall(name, msgspec.json.encode(arguments).decode())


def _example(schema: dict[str, Any]) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    examples = {"integer": 1, "number": 1, "boolean": True, "array": [], "object": {}, "null": None}
    return examples.get(kind, "alpha") if isinstance(kind, str) else "alpha"
