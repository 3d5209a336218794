"""The router as a real process, asked by the official client."""

from __future__ import annotations

import asyncio
import hashlib
import json

import openai
import pytest

from tests.router.conftest import chat, eventually
from tests.router.fake_engine import (
    CHUNKS,
    STREAM_HEAD,
    FakeEngine,
    answer_chat,
    chat_event,
    json_answer,
)
from tests.router.front.running_router import RunningRouter
from tests.router.front.running_router import eventually as until

KEY = "sk-test"
MESSAGES = chat()["messages"]
TEXT = "".join(CHUNKS)


@pytest.fixture
async def engine():
    started = await FakeEngine().start()
    try:
        yield started
    finally:
        await started.stop()


@pytest.fixture
async def router(tmp_path, engine):
    file = {
        "models": [
            {
                "name": "m",
                "aliases": ["a"],
                "context_length": 2000,
                "endpoints": [{"url": engine.url, "slots": 4}],
            }
        ],
        "keys": [
            {
                "name": "team",
                "sha256": hashlib.sha256(KEY.encode()).hexdigest(),
                "models": ["m", "a"],
            }
        ],
    }
    (tmp_path / "router.yaml").write_text(json.dumps(file))
    options = ("--application", "router.application:Application")
    log = ("--access-log", str(tmp_path / "access.log"))
    running = await asyncio.to_thread(RunningRouter, tmp_path, *options, *log)
    try:
        yield running
    finally:
        await asyncio.to_thread(running.stop)


@pytest.fixture
async def client(router):
    url = f"http://127.0.0.1:{router.port}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=20) as made:
        yield made


async def lines(router, count):
    path = router.folder / "access.log"

    def read():
        found = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in found] if len(found) >= count else None

    return await eventually(read)


async def text_of(stream):
    parts = [chunk async for chunk in stream]
    return parts, "".join(part.choices[0].delta.content or "" for part in parts)


@pytest.mark.parametrize("model", ["m", "a"])
async def test_whole_and_streamed(client, router, model):
    whole = await client.chat.completions.create(model=model, messages=MESSAGES)
    assert whole.choices[0].message.content == TEXT
    assert whole.model == model
    assert whole._request_id
    stream = await client.chat.completions.create(model=model, messages=MESSAGES, stream=True)
    parts, text = await text_of(stream)
    assert text == TEXT
    assert {part.model for part in parts} == {model}
    first, second = await lines(router, 2)
    assert (first["outcome"], first["tokens_in"], first["tokens_out"]) == ("ok", 9, 5)
    assert (second["outcome"], second["stream"], second["key"]) == ("ok", True, "team")


async def test_models(client):
    assert [model.id async for model in client.models.list()] == ["m", "a"]
    assert (await client.models.retrieve("a")).context_length == 2000
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("other")


async def test_many_at_once(client, engine):
    answers = await asyncio.gather(
        *(client.chat.completions.create(model="m", messages=MESSAGES) for _ in range(40))
    )
    assert {answer.choices[0].message.content for answer in answers} == {TEXT}
    assert engine.connections <= 5


@pytest.mark.parametrize(
    ("model", "content", "extra", "kind", "code"),
    [
        ("none", "x", {}, openai.NotFoundError, "model_not_found"),
        ("m", "one word after another " * 2000, {}, openai.BadRequestError, "context_length_exceeded"),
        ("m", "x", {"n_predict": 3}, openai.BadRequestError, "unsupported_parameter"),
        ("m", "x", {"max_tokens": -3}, openai.BadRequestError, None),
    ],
)  # fmt: skip
async def test_refusals(client, engine, model, content, extra, kind, code):
    messages = [{"role": "user", "content": content}]
    with pytest.raises(kind) as refused:
        await client.chat.completions.create(model=model, messages=messages, extra_body=extra)
    assert refused.value.code == code
    assert refused.value.request_id in str(refused.value)
    assert engine.requests == []


async def test_a_wrong_key(client):
    with pytest.raises(openai.AuthenticationError):
        await client.with_options(api_key="sk-wrong").models.list()


async def test_an_engine_error_passes(client, engine):
    async def behave(talk):
        await talk.write(json_answer(422, {"error": {"message": "no", "code": "engines_own"}}))

    engine.behave = behave
    with pytest.raises(openai.UnprocessableEntityError) as refused:
        await client.chat.completions.create(model="m", messages=MESSAGES)
    assert refused.value.code == "engines_own"


@pytest.mark.parametrize("clean", [True, False])
async def test_a_broken_stream_is_no_success(client, engine, router, clean):
    async def behave(talk):
        await talk.write(STREAM_HEAD)
        for text in CHUNKS[:3]:
            await talk.chunk(chat_event("m", text))
        if clean:
            await talk.write(b"0\r\n\r\n")
        else:
            talk.close()

    engine.behave = behave
    stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    seen = []

    async def read():
        async for chunk in stream:
            seen.append(chunk.choices[0].delta.content)

    with pytest.raises(openai.APIError) as broken:
        await read()
    assert seen == list(CHUNKS[:3])
    assert broken.value.code == "upstream_error"
    assert (await lines(router, 1))[0]["outcome"] == "broken"


@pytest.mark.parametrize("streaming", [True, False])
async def test_the_client_leaves_before_the_first_token(client, engine, router, streaming):
    async def behave(talk):
        await asyncio.sleep(3600)

    engine.behave = behave
    asking = asyncio.ensure_future(
        client.chat.completions.create(model="m", messages=MESSAGES, stream=streaming)
    )
    await engine.arrived.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await client.close()
    await asyncio.wait_for(engine.closed.wait(), 10)
    assert (await lines(router, 1))[0]["outcome"] == "client_gone"


async def test_the_client_leaves_in_the_stream(client, engine, router):
    async def behave(talk):
        await talk.write(STREAM_HEAD)
        while True:
            await talk.chunk(chat_event("m", "on "))
            await asyncio.sleep(0.01)

    engine.behave = behave
    stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    async for _ in stream:
        break
    await stream.close()
    await asyncio.wait_for(engine.closed.wait(), 10)
    assert (await lines(router, 1))[0]["outcome"] == "client_gone"


async def test_streams_run_out_while_it_stops(client, engine, router):
    go_on = asyncio.Event()

    async def behave(talk):
        await talk.write(STREAM_HEAD)
        await talk.chunk(chat_event("m", "one "))
        await go_on.wait()
        await talk.chunk(chat_event("m", "two") + b"data: [DONE]\n\n")
        await talk.write(b"0\r\n\r\n")

    engine.behave = behave
    stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    first = await anext(aiter(stream))
    router.process.terminate()
    await asyncio.sleep(0.3)
    go_on.set()
    _, rest = await text_of(stream)
    assert first.choices[0].delta.content + rest == "one two"
    assert await asyncio.to_thread(router.process.wait, 20) == 0


async def test_metrics_count_it(client, engine, router):
    engine.behave = answer_chat
    for _ in range(3):
        await client.chat.completions.create(model="m", messages=MESSAGES)

    def counted():
        page = router.metrics()
        return sum(
            value
            for name, value in page.items()
            if name.startswith("llmgw_router_requests_total") and 'model="m"' in name
        )

    # Written once a second; the page is another process's.
    await asyncio.to_thread(until, lambda: counted() == 3)
