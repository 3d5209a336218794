"""The instant engine over real sockets."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest

from bench.chat_bodies import MODEL, PATH, chat_body
from bench.instant_engine import EngineSettings, serve

JSON = {"content-type": "application/json"}


@asynccontextmanager
async def engine(**settings):
    server = await serve(EngineSettings(**settings))
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with aiohttp.ClientSession(url) as session:
        yield session
    server.close()
    await server.wait_closed()


def events_of(text):
    return [line.removeprefix("data: ") for line in text.splitlines() if line]


def test_body_is_1700_bytes():
    assert 1650 < len(chat_body(stream=False)) < 1750
    assert msgspec.json.decode(chat_body(stream=True))["stream"] is True


async def test_plain_answer_keeps_the_connection():
    async with engine(chunks=3) as session:
        for _ in range(2):
            async with session.post(PATH, data=chat_body(stream=False), headers=JSON) as reply:
                answer = await reply.json()
        assert answer["choices"][0]["message"]["content"] == "word0 word1 word2 "
        assert answer["usage"]["completion_tokens"] == 3
        async with session.get("/counts") as reply:
            assert await reply.json() == {"requests": 2, "chunks": 0, "open_streams": 0}


@pytest.mark.parametrize("gap_s", [0.0, 0.001])
async def test_stream_has_every_numbered_event_and_the_end(gap_s):
    async with engine(chunks=5, gap_s=gap_s) as session:
        async with session.post(PATH, data=chat_body(stream=True), headers=JSON) as reply:
            assert reply.content_type == "text/event-stream"
            *events, end = events_of(await reply.text())
        deltas = [msgspec.json.decode(event)["choices"][0] for event in events]
        assert [one["delta"]["content"] for one in deltas] == [f"word{n} " for n in range(5)]
        assert [one["finish_reason"] for one in deltas] == [None] * 4 + ["stop"]
        assert end == "[DONE]"
        async with session.get("/counts") as reply:
            assert await reply.json() == {"requests": 1, "chunks": 5, "open_streams": 0}


async def test_usage_event_only_when_asked_for():
    body = msgspec.json.decode(chat_body(stream=True))
    body["stream_options"] = {"include_usage": True}
    async with engine(chunks=2, gap_s=0) as session, session.post(PATH, json=body) as reply:
        events = events_of(await reply.text())
    assert len(events) == 4
    last = msgspec.json.decode(events[2])
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 2


async def test_health_models_and_what_it_does_not_serve():
    async with engine() as session:
        async with session.get("/health") as reply:
            assert reply.status == 200
        async with session.get("/v1/models") as reply:
            assert [one["id"] for one in (await reply.json())["data"]] == [MODEL]
        async with session.get("/v1/embeddings") as reply:
            assert reply.status == 404
            assert "GET /v1/embeddings" in (await reply.json())["error"]["message"]
        async with session.post(PATH, data=b"{", headers=JSON) as reply:
            assert reply.status == 400


async def test_a_client_that_leaves_stops_its_stream():
    async with engine(chunks=10_000, gap_s=0.001) as session:
        async with session.post(PATH, data=chat_body(stream=True), headers=JSON) as reply:
            await reply.content.readline()
            async with session.get("/counts") as counts:
                assert (await counts.json())["open_streams"] == 1
            reply.close()

        for _ in range(100):
            async with session.get("/counts") as reply:
                counts = await reply.json()
            if not counts["open_streams"]:
                break
            await asyncio.sleep(0.05)
        assert counts["open_streams"] == 0
        assert 0 < counts["chunks"] < 10_000


async def test_split_request_and_bad_bytes():
    async with engine(chunks=1) as session:
        base = session._base_url
        assert base is not None
        reader, writer = await asyncio.open_connection(base.host, base.port)
        body = chat_body(stream=False)
        head = b"POST %b HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        request = head % (PATH.encode(), len(body)) + body
        for at in range(0, len(request), 700):
            writer.write(request[at : at + 700])
            await asyncio.sleep(0)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()
        await writer.wait_closed()

        reader, writer = await asyncio.open_connection(base.host, base.port)
        writer.write(b"\x00nonsense\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        await writer.wait_closed()
