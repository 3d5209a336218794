"""Request bodies: what is read from them and what is refused."""

from __future__ import annotations

import json

import pytest

from agent.sim_engine.errors import Rejected
from agent.sim_engine.prefix_cache import count_tokens
from agent.sim_engine.request_forms import (
    Limits,
    ToolCall,
    read_chat,
    read_completion,
    read_count,
    read_embeddings,
    read_messages,
    read_tokenize,
)

LIMITS = Limits(("greek", "koine"), 100, True)
HELLO = [{"role": "user", "content": "hello"}]


def chat(limits=LIMITS, **fields):
    return read_chat(json.dumps({"model": "greek", "messages": HELLO} | fields).encode(), limits)


def test_defaults():
    asked = chat(limits=Limits(("greek",), 10_000, True))
    assert (asked.max_tokens, asked.n, asked.stream, asked.stops) == (128, 1, False, ())
    assert read_completion(b'{"prompt":"hi"}', LIMITS).max_tokens == 16
    assert read_completion(b'{"prompt":"hi"}', LIMITS).model == "greek"


def test_the_default_is_cut_to_what_fits():
    tokens = count_tokens(chat().prompts[0])
    assert chat().max_tokens == 100 - tokens
    assert chat(max_tokens=100 - tokens).max_tokens == 100 - tokens


def test_max_completion_tokens_is_the_newer_name():
    assert chat(max_tokens=5, max_completion_tokens=7).max_tokens == 7


def test_too_much_for_the_context():
    tokens = count_tokens(chat().prompts[0])
    with pytest.raises(Rejected) as no:
        chat(max_tokens=99)
    assert (no.value.status, no.value.kind) == (400, "BadRequestError")
    assert no.value.message == (
        "'max_tokens' or 'max_completion_tokens' is too large: 99. This model's maximum context "
        f"length is 100 tokens and your request has {tokens} input tokens (99 > 100 - {tokens})."
    )
    with pytest.raises(Rejected) as no:
        chat(messages=[{"role": "user", "content": "x" * 500}])
    assert no.value.message.startswith("This model's maximum context length is 100 tokens. However")


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"{", 400, "not valid JSON"),
        (b"\xff", 400, "not valid JSON"),
        (b'{"messages":[{"role":"user"}],"stream_options":{}}', 400, "when `stream=True`"),
        (b"[]", 400, "Expected `object`"),
        (b'{"model":"greek"}', 400, "messages"),
        (b'{"model":"greek","messages":[]}', 400, "messages"),
        (b'{"messages":[{"role":"user","content":7}]}', 400, "messages"),
        (b'{"messages":[{"role":"user"}],"max_tokens":0}', 400, "max_tokens"),
        (b'{"messages":[{"role":"user"}],"max_tokens":"9"}', 400, "max_tokens"),
        (b'{"messages":[{"role":"user"}],"n":0}', 400, "n"),
        (b'{"messages":[{"role":"user"}],"n":129}', 400, "n"),
        (
            b'{"model":"latin","messages":[{"role":"user"}]}',
            404,
            "The model `latin` does not exist.",
        ),
    ],
)
def test_refused_chats(body, status, says):
    with pytest.raises(Rejected, match=says) as no:
        read_chat(body, LIMITS)
    assert no.value.status == status


def test_a_longer_conversation_begins_with_the_shorter_one_and_its_answer():
    first = chat(max_tokens=2).prompts[0]
    answered = [*HELLO, {"role": "assistant", "content": "alpha beta"}, *HELLO]
    assert chat(messages=answered).prompts[0].startswith(first + b"alpha beta")


def test_content_parts_read_like_text():
    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    assert chat(messages=[{"role": "user", "content": parts}]).prompts == chat().prompts
    image = [{"type": "image_url", "image_url": {"url": "data:,"}}]
    assert b"data:," in chat(messages=[{"role": "user", "content": image}]).prompts[0]


@pytest.mark.parametrize(
    ("stop", "stops"), [(None, ()), ("x", ("x",)), (["x", "", "y"], ("x", "y")), ("", ())]
)
def test_stops(stop, stops):
    assert chat(stop=stop).stops == stops


@pytest.mark.parametrize(
    ("prompt", "count"),
    [("hi", 1), (["a", "b", "c"], 3), ([1, 2, 3], 1), ([[1, 2], [3]], 2)],
)
def test_prompts_of_completions(prompt, count):
    asked = read_completion(json.dumps({"prompt": prompt}).encode(), LIMITS)
    assert len(asked.prompts) == count


def test_token_ids_are_one_token_each():
    (prompt,) = read_completion(b'{"prompt":[5,6,7]}', LIMITS).prompts
    assert count_tokens(prompt) == 3


@pytest.mark.parametrize("prompt", ["", [], [[]], ["a", 1], [1.5], [-1], ["", "a"]])
def test_refused_prompts(prompt):
    with pytest.raises(Rejected, match="must be a non-empty text"):
        read_completion(json.dumps({"prompt": prompt}).encode(), LIMITS)
    with pytest.raises(Rejected, match="`input` must be"):
        read_embeddings(json.dumps({"input": prompt}).encode(), LIMITS)


def tool(name, **properties):
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


BIG = Limits(("greek",), 10_000, True)


def test_the_fixed_call_gives_every_required_argument():
    tools = [
        tool("look", city={"type": "string"}, days={"type": "integer"}, unit={"enum": ["C", "F"]}),
        tool("other"),
    ]
    asked = chat(limits=BIG, tools=tools)
    assert asked.call == ToolCall("look", '{"city":"alpha","days":1,"unit":"C"}')
    named = {"type": "function", "function": {"name": "other"}}
    assert chat(limits=BIG, tools=tools, tool_choice=named).call == ToolCall("other", "{}")
    assert b"look" in asked.prompts[0]


def test_when_no_tool_is_called():
    tools = [tool("look")]
    result = [*HELLO, {"role": "tool", "content": "rain"}]
    assert chat(limits=BIG, tools=tools, tool_choice="none").call is None
    assert chat(limits=BIG, tools=tools, messages=result).call is None
    assert chat(limits=BIG, tools=[]).call is None
    assert chat(limits=Limits(("greek",), 10_000, False), tools=tools).call is None
    with pytest.raises(Rejected, match="tool_choice names 'x', which is not in tools"):
        chat(limits=BIG, tools=tools, tool_choice={"type": "function", "function": {"name": "x"}})


def test_anthropic_bodies():
    body = {
        "model": "greek",
        "max_tokens": 9,
        "system": "be Greek",
        "messages": HELLO,
        "stop_sequences": ["beta"],
        "tools": [{"name": "look", "input_schema": {"required": ["city"]}}],
    }
    asked = read_messages(json.dumps(body).encode(), BIG)
    assert (asked.max_tokens, asked.stops) == (9, ("beta",))
    assert asked.call == ToolCall("look", '{"city":"alpha"}')
    assert b"be Greek" in asked.prompts[0]
    result = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1"}]}]
    assert read_messages(json.dumps(body | {"messages": result}).encode(), BIG).call is None
    del body["max_tokens"], body["stop_sequences"]
    assert read_count(json.dumps(body).encode(), BIG) == count_tokens(asked.prompts[0])
    with pytest.raises(Rejected, match="max_tokens"):
        read_messages(json.dumps(body).encode(), BIG)


def test_tokenize_takes_a_prompt_or_messages():
    assert read_tokenize(b'{"prompt":"hello"}', LIMITS) == b"hello"
    body = json.dumps({"messages": HELLO}).encode()
    assert read_tokenize(body, LIMITS) == chat().prompts[0]
    with pytest.raises(Rejected, match="Give either prompt"):
        read_tokenize(b"{}", LIMITS)
