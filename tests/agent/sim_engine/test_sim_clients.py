"""The openai and anthropic client libraries against the engine."""

from __future__ import annotations

import anthropic
import openai
import pytest

HELLO = [{"role": "user", "content": "hello"}]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}


@pytest.fixture
async def client(sim):
    async with openai.AsyncOpenAI(base_url=f"{sim.url}/v1", api_key="any", max_retries=0) as one:
        yield one


@pytest.fixture
async def claude(sim):
    async with anthropic.AsyncAnthropic(base_url=sim.url, api_key="any", max_retries=0) as one:
        yield one


async def test_chat(client):
    answer = await client.chat.completions.create(
        model="greek", messages=HELLO, max_tokens=10, stop=["delta"]
    )
    assert answer.choices[0].message.content == "alpha beta gamma "
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == 4


async def test_streamed_chat_with_usage(client):
    stream = await client.chat.completions.create(
        model="greek",
        messages=HELLO,
        max_tokens=30,
        stream=True,
        stream_options={"include_usage": True},
    )
    text, usage = "", None
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
    assert text.split()[:3] == ["alpha", "beta", "gamma"]
    assert len(text.split()) == usage.completion_tokens == 30


async def test_completions_and_models(client):
    answer = await client.completions.create(model="greek", prompt="x", max_tokens=2)
    assert answer.choices[0].text == "alpha beta"
    models = [model async for model in client.models.list()]
    assert {model.owned_by for model in models} == {"llmgw-sim"}


async def test_embeddings(client):
    """The library asks for base64 unless told otherwise."""
    packed = await client.embeddings.create(model="greek", input="one")
    plain = await client.embeddings.create(model="greek", input="one", encoding_format="float")
    assert packed.data[0].embedding == pytest.approx(plain.data[0].embedding, abs=1e-6)
    assert len(plain.data[0].embedding) == 64


@pytest.mark.parametrize("stream", [False, True])
async def test_tool_calls(client, stream):
    tool = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
    asked = {"model": "greek", "messages": HELLO, "tools": [tool]}
    if stream:
        async with client.chat.completions.stream(**asked) as events:
            answer = await events.get_final_completion()
    else:
        answer = await client.chat.completions.create(**asked)
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("weather", '{"city":"alpha"}')
    assert call.id.startswith("call_")


async def test_errors_are_the_librarys(client):
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        await client.chat.completions.create(model="latin", messages=HELLO)
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        await client.chat.completions.create(model="greek", messages=HELLO, max_tokens=99_999)


async def test_messages(claude):
    answer = await claude.messages.create(model="greek", max_tokens=3, messages=HELLO)
    assert answer.content[0].text == "alpha beta gamma"
    assert answer.stop_reason == "max_tokens"
    assert answer.usage.output_tokens == 3
    counted = await claude.messages.count_tokens(model="greek", messages=HELLO)
    usage = answer.usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


async def test_streamed_messages(claude):
    kinds = []
    async with claude.messages.stream(
        model="greek", max_tokens=9, messages=HELLO, stop_sequences=["gamma"]
    ) as stream:
        async for event in stream:
            kinds.append(event.type)
        answer = await stream.get_final_message()
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    assert answer.content[0].text == "alpha beta "
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "gamma")
    assert answer.usage.output_tokens == 3


@pytest.mark.parametrize("stream", [False, True])
async def test_tool_use(claude, stream):
    tool = {"name": "weather", "input_schema": PARAMETERS}
    asked = {"model": "greek", "max_tokens": 50, "messages": HELLO, "tools": [tool]}
    if stream:
        async with claude.messages.stream(**asked) as events:
            answer = await events.get_final_message()
    else:
        answer = await claude.messages.create(**asked)
    assert answer.stop_reason == "tool_use"
    assert (answer.content[0].name, answer.content[0].input) == ("weather", {"city": "alpha"})


async def test_anthropic_errors(claude):
    with pytest.raises(anthropic.NotFoundError):
        await claude.messages.create(model="latin", max_tokens=3, messages=HELLO)
