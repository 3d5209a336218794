"""Requests through the whole data path to fake engines."""

from __future__ import annotations

import asyncio
import hashlib
import json

import pytest

from router.body_errors import BodiesHeld, BodyCut, BodyTooLarge, BodyTooSlow
from tests.router.conftest import chat, eventually
from tests.router.fake_engine import (
    CHUNKS,
    DONE,
    STREAM_HEAD,
    answer_chat,
    chat_answer,
    chat_event,
    json_answer,
)
from tests.router.fake_exchange import FakeExchange


async def test_a_chat_is_answered(path):
    engine = await path.engine()
    await path.start_with(engine)
    answer = await path.ask(headers={"authorization": "Bearer sk-client"})
    assert answer.status == 200
    assert answer.json == chat_answer("m")
    assert answer.answer_headers["x-llmgw-served-by"] == "m"
    assert answer.answer_headers["content-type"] == "application/json"
    sent = engine.requests[0]
    assert sent.path == "/v1/chat/completions"
    assert sent.body == answer.body
    assert "authorization" not in sent.headers


async def test_only_listed_headers_pass_on(path):
    engine = await path.engine()
    await path.start_with(engine, endpoint={"engine_key": "replica-key"})
    await path.ask(
        headers={
            "authorization": "Bearer sk-client",
            "cookie": "a=b",
            "accept": "text/event-stream",
            "traceparent": "00-1-2-01",
            "x-request-id": "abc",
            "accept-encoding": "gzip",
            "anthropic-version": "2023-06-01",
        }
    )
    sent = engine.requests[0].headers
    assert sent["authorization"] == "Bearer replica-key"
    assert sent["accept"] == "text/event-stream"
    assert sent["traceparent"] == "00-1-2-01"
    assert sent["x-request-id"] == "abc"
    assert sent["host"] == engine.authority
    assert not {"cookie", "accept-encoding", "anthropic-version"} & set(sent)


async def test_only_listed_headers_pass_back(path):
    async def behave(talk):
        headers = "server: vllm\r\ndate: today\r\nset-cookie: a=b\r\nretry-after: 7\r\n"
        await talk.write(json_answer(400, {"error": {"message": "no"}}, headers))

    await path.start_with(await path.engine(behave))
    answer = await path.ask()
    assert set(answer.answer_headers) == {
        "content-type",
        "retry-after",
        "x-request-id",
        "x-llmgw-served-by",
    }


@pytest.mark.parametrize(
    ("sent", "kept"), [("req-7", True), ("a b", False), ("x" * 200, False), ("é", False)]
)
async def test_request_ids(path, sent, kept):
    engine = await path.engine()
    await path.start_with(engine)
    answer = await path.ask(headers={"x-request-id": sent})
    assert (answer.answer_headers["x-request-id"] == sent) is kept
    assert engine.requests[0].headers["x-request-id"] == answer.answer_headers["x-request-id"]


async def test_a_stream_passes_byte_for_byte(path):
    engine = await path.engine()
    await path.start_with(engine)
    answer = await path.ask(chat(stream=True))
    assert answer.status == 200
    assert answer.ending == "clean"
    expected = b"".join(chat_event("m", text) for text in CHUNKS)
    assert answer.answer == expected + chat_event("m", "", "stop") + DONE
    assert answer.answer_headers["content-type"] == "text/event-stream"
    assert answer.answer_headers["cache-control"] == "no-cache"
    assert "content-length" not in answer.answer_headers
    line = path.log.lines[-1]
    assert (line.outcome, line.status, line.stream) == ("ok", 200, True)
    assert line.first_token is not None


@pytest.mark.parametrize("blank", [b"\n\n", b"\r\n\r\n", b"\r\r"])
@pytest.mark.parametrize("step", [1, 7, 64])
async def test_a_stream_cut_anywhere_arrives_whole(path, blank, step):
    events = [
        b": hello" + blank,
        b'data: {"model":"m","choices":[{"delta":{"content":"data: [DONE] \xe4\xbd\xa0"}}]}',
        blank,
        b"data: [DONE]" + blank,
    ]
    whole = b"".join(events)

    async def behave(talk):
        await talk.write(STREAM_HEAD)
        for start in range(0, len(whole), step):
            await talk.chunk(whole[start : start + step])
            await asyncio.sleep(0)
        await talk.write(b"0\r\n\r\n")

    await path.start_with(await path.engine(behave))
    answer = await path.ask(chat(stream=True))
    assert answer.answer == whole
    assert answer.ending == "clean"


async def test_each_token_is_handed_over_when_it_comes(path):
    go_on = asyncio.Event()

    async def behave(talk):
        await talk.write(STREAM_HEAD)
        await talk.chunk(chat_event("m", "one"))
        await go_on.wait()
        await talk.chunk(DONE)
        await talk.write(b"0\r\n\r\n")

    await path.start_with(await path.engine(behave))
    exchange = FakeExchange(body=chat(stream=True))
    task = path.begin(exchange)
    await eventually(lambda: exchange.answer == chat_event("m", "one"))
    go_on.set()
    await task
    assert exchange.ending == "clean"


async def test_comments_hold_the_status_back(path):
    async def behave(talk):
        await talk.write(STREAM_HEAD)
        await talk.chunk(b": waiting\n\n")
        talk.reset()
        talk.writer.transport.abort()

    broken = await path.engine(behave)
    await path.start_with(broken)
    answer = await path.ask(chat(stream=True))
    assert answer.status == 502
    assert answer.error["code"] == "upstream_error"


class TestNames:
    """An answer names the model as the client did, in every chunk (FR30)."""

    FILE = staticmethod(
        lambda engine: {
            "models": [
                {
                    "name": "m",
                    "aliases": ["a"],
                    "endpoints": [{"url": engine.url, "served_name": "org/served"}],
                }
            ]
        }
    )

    @pytest.mark.parametrize("asked", ["m", "a"])
    async def test_whole_answer(self, path, asked):
        engine = await path.engine()
        await path.start(self.FILE(engine))
        answer = await path.ask(chat(asked))
        assert answer.json == chat_answer(asked)
        assert engine.requests[0].json == chat("org/served")
        assert answer.answer_headers["x-llmgw-served-by"] == "m"

    @pytest.mark.parametrize("asked", ["m", "a"])
    async def test_every_chunk(self, path, asked):
        engine = await path.engine()
        await path.start(self.FILE(engine))
        answer = await path.ask(chat(asked, stream=True))
        chunks = answer.events()
        assert [chunk["model"] for chunk in chunks[:-1]] == [asked] * (len(CHUNKS) + 1)
        assert "".join(c["choices"][0]["delta"]["content"] for c in chunks[:-1]) == "".join(CHUNKS)
        assert chunks[-1] == "[DONE]"

    async def test_an_engine_that_answers_under_a_name_nobody_configured(self, path):
        async def behave(talk):
            talk.request.body = json.dumps(
                talk.request.json | {"model": "/models/file.gguf"}
            ).encode()
            await answer_chat(talk)

        engine = await path.engine(behave)
        await path.start_with(engine)
        whole = await path.ask()
        assert whole.json["model"] == "m"
        stream = await path.ask(chat(stream=True))
        assert {chunk["model"] for chunk in stream.events()[:-1]} == {"m"}

    async def test_an_adapter_of_llama_cpp(self, path):
        engine = await path.engine()
        await path.start_with(engine, endpoint={"engine": "llamacpp", "adapters": {"ad": 3}})
        answer = await path.ask(chat("ad"))
        sent = engine.requests[0].json
        assert sent["lora"] == [{"id": 3, "scale": 1.0}]
        assert sent["model"] == "m"
        assert answer.json["model"] == "ad"
        assert answer.answer_headers["x-llmgw-served-by"] == "ad"


KEY = "sk-secret"
FILE_KEYS = [
    {
        "name": "team",
        "sha256": hashlib.sha256(KEY.encode()).hexdigest(),
        "models": ["m"],
    }
]


class TestRefusals:
    """The rows of the error table that the data path makes."""

    async def start(self, path, **model):
        engine = await path.engine()
        other = await path.engine()
        await path.start(
            {
                "models": [
                    {"name": "m", "endpoints": [{"url": engine.url}], **model},
                    {"name": "other", "endpoints": [{"url": other.url}]},
                ],
                "keys": FILE_KEYS,
            }
        )
        return engine

    async def ask(self, path, body=None, **headers):
        headers = {"authorization": f"Bearer {KEY}"} | headers
        return await path.ask(chat() if body is None else body, headers=headers)

    async def test_no_key_is_told_before_the_body_is_read(self, path):
        await self.start(path)
        answer = await path.ask()
        assert answer.status == 401
        assert not answer.body_read
        assert answer.error["code"] == "invalid_api_key"
        assert answer.answer_headers["www-authenticate"] == "Bearer"

    async def test_a_wrong_key(self, path):
        await self.start(path)
        answer = await self.ask(path, authorization="Bearer sk-wrong")
        assert answer.status == 401
        assert "sk-wrong" not in answer.answer.decode()

    @pytest.mark.parametrize("headers", [{"x-api-key": KEY}, {"authorization": f"bearer {KEY}"}])
    async def test_both_headers_carry_a_key(self, path, headers):
        await self.start(path)
        assert (await path.ask(headers=headers)).status == 200
        assert path.log.lines[-1].key == "team"

    @pytest.mark.parametrize("where", ["/v1/models", "/v1/models/m", "/v1/embeddings", "/tokenize"])
    async def test_no_route_forgets_the_key(self, path, where):
        await self.start(path)
        method = "GET" if "models" in where else "POST"
        assert (await path.ask(method=method, path=where)).status == 401

    async def test_unknown_and_not_allowed_are_one_answer(self, path):
        await self.start(path)
        unknown = await self.ask(path, chat("nobody"))
        denied = await self.ask(path, chat("other"))
        assert unknown.status == denied.status == 404
        assert unknown.error["code"] == denied.error["code"] == "model_not_found"
        assert unknown.error["param"] == "model"

        def text(answer, name):
            identity = answer.answer_headers["x-request-id"]
            return answer.error["message"].replace(name, "?").replace(identity, "!")

        assert text(unknown, "nobody") == text(denied, "other")

    @pytest.mark.parametrize(
        ("body", "param"),
        [
            (b"", None),
            (b"{", None),
            (b"[]", None),
            (b'{"model":"m","model":"other"}', "model"),
            (b'{"model":7}', "model"),
            (b'{"messages":[]}', "model"),
            (b'{"model":"m","max_tokens":-1}', "max_tokens"),
            (b'{"model":"m","stream":"yes"}', "stream"),
        ],
    )
    async def test_a_body_that_cannot_be(self, path, body, param):
        engine = await self.start(path)
        answer = await self.ask(path, body)
        assert answer.status == 400
        assert answer.error["type"] == "invalid_request_error"
        assert answer.error["param"] == param
        assert engine.requests == []

    async def test_a_member_that_does_not_pass(self, path):
        await self.start(path)
        answer = await self.ask(path, chat(n_predict=5))
        assert answer.status == 400
        assert answer.error["code"] == "unsupported_parameter"
        assert answer.error["param"] == "n_predict"
        assert "write max_tokens" in answer.error["message"]

    async def test_a_prompt_longer_than_the_window(self, path):
        engine = await self.start(path, context_length=20)
        body = chat()
        body["messages"][0]["content"] = "one word after another " * 100
        answer = await self.ask(path, body)
        assert answer.status == 400
        assert answer.error["code"] == "context_length_exceeded"
        assert answer.error["param"] == "messages"
        assert "maximum context length is 20 tokens" in answer.error["message"]
        assert engine.requests == []

    async def test_unknown_path_and_wrong_method(self, path):
        await self.start(path)
        answer = await path.ask(path="/slots")
        assert (answer.status, answer.error["code"]) == (404, None)
        twice = await path.ask(path="/v1/v1/chat/completions")
        assert "/v1/chat/completions" in twice.error["message"]
        wrong = await path.ask(method="GET")
        assert (wrong.status, wrong.answer_headers["allow"]) == (405, "POST")

    async def test_an_encoded_body(self, path):
        await self.start(path)
        answer = await self.ask(path, **{"content-encoding": "gzip"})
        assert answer.status == 415

    @pytest.mark.parametrize(
        ("error", "status", "words"),
        [
            (BodyTooLarge(32 * 1024 * 1024, None), 413, "32 MiB"),
            (BodyTooSlow(30.0), 408, "30 s"),
            (BodiesHeld(10, 20), 503, "other requests"),
        ],
    )
    async def test_a_body_that_could_not_be_read(self, path, error, status, words):
        await self.start(path)
        exchange = FakeExchange(body=chat(), headers={"x-api-key": KEY})
        exchange.body_error = error
        await path.application.handle(exchange)
        assert exchange.status == status
        assert words in exchange.error["message"]

    @pytest.mark.parametrize(
        ("left", "status", "outcome"), [(False, 400, "refused"), (True, 499, "client_gone")]
    )
    async def test_a_body_that_is_cut(self, path, left, status, outcome):
        """Whoever sends broken chunks is still there to be told."""
        await self.start(path)
        exchange = FakeExchange(body=chat(), headers={"x-api-key": KEY})
        exchange.body_error = BodyCut(left=left)
        await path.application.handle(exchange)
        assert (exchange.status, path.log.lines[-1].outcome) == (status, outcome)
        if not left:
            assert "chunks" in exchange.error["message"]

    async def test_the_anthropic_form(self, path):
        await self.start(path)
        answer = await path.ask(chat("nobody"), path="/v1/messages", headers={"x-api-key": KEY})
        assert answer.status == 404
        assert answer.json["type"] == "error"
        assert answer.error["type"] == "not_found_error"
        assert answer.json["request_id"] == answer.answer_headers["request-id"]

    async def test_an_unknown_model_is_no_label(self, path):
        await self.start(path)
        await self.ask(path, chat("a secret that is no model"))
        assert path.log.lines[-1].model is None
        labels = {label for row in path.metrics.snapshot().counters for label in row.labels}
        assert "unknown" in labels
        assert "a secret that is no model" not in labels


class TestEngineErrors:
    async def test_a_4xx_passes_as_it_came(self, path):
        async def behave(talk):
            await talk.write(json_answer(422, {"error": {"message": "no such field", "code": 422}}))

        first, second = await path.engine(behave), await path.engine(behave)
        await path.start_with(first, second)
        answer = await path.ask()
        assert answer.status == 422
        assert answer.json == {"error": {"message": "no such field", "code": 422}}
        assert len(first.requests) + len(second.requests) == 1

    async def test_an_overflow_is_worded_anew(self, path):
        async def behave(talk):
            error = {
                "code": 400,
                "message": "the request exceeds the available context size",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 9000,
                "n_ctx": 4096,
            }
            await talk.write(json_answer(400, {"error": error}))

        await path.start_with(await path.engine(behave))
        answer = await path.ask()
        assert answer.error["code"] == "context_length_exceeded"
        assert "maximum context length is 4096 tokens" in answer.error["message"]

    async def test_an_error_body_is_cut(self, path):
        async def behave(talk):
            body = b"x" * 1_000_000
            head = b"HTTP/1.1 500 X\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n"
            await talk.write(head % len(body) + body)

        await path.start_with(await path.engine(behave))
        answer = await path.ask()
        assert answer.status == 500
        assert answer.answer == b"x" * 65536

    @pytest.mark.parametrize("status", [502, 503, 504, 429])
    async def test_a_busy_or_ill_engine_is_passed_over(self, path, status):
        async def ill(talk):
            await talk.write(json_answer(status, {}))

        sick, well = await path.engine(ill), await path.engine()
        await path.start_with(sick, well)
        answers = [await path.ask(chat(user=str(n))) for n in range(6)]
        assert [answer.status for answer in answers] == [200] * 6

    async def test_after_two_retries_it_is_given_up(self, path):
        async def ill(talk):
            await talk.write(json_answer(503, {}))

        sick = [await path.engine(ill) for _ in range(5)]
        await path.start_with(*sick)
        answer = await path.ask()
        assert answer.status == 502
        assert answer.error["code"] == "upstream_error"
        assert answer.answer_headers["retry-after"] == "1"
        assert sum(len(engine.requests) for engine in sick) == 3

    async def test_all_busy_is_told_as_overload(self, path):
        async def busy(talk):
            await talk.write(json_answer(429, {}))

        await path.start_with(await path.engine(busy))
        answer = await path.ask()
        assert (answer.status, answer.error["code"]) == (503, "server_is_overloaded")
        assert 1 <= int(answer.answer_headers["retry-after"]) <= 60

    async def test_a_dead_engine_is_passed_over_and_rests(self, path):
        dead, alive = await path.engine(), await path.engine()
        dead.stop_listening()
        await path.start_with(dead, alive)
        answers = [await path.ask(chat(user=str(n))) for n in range(10)]
        assert [answer.status for answer in answers] == [200] * 10
        assert sum(line.tries - 1 for line in path.log.lines) <= 1

    async def test_nothing_reachable_is_503(self, path):
        dead = await path.engine()
        dead.stop_listening()
        await path.start_with(dead)
        for _ in range(3):
            answer = await path.ask()
            assert (answer.status, answer.error["code"]) == (503, "no_endpoint")
            assert 1 <= int(answer.answer_headers["retry-after"]) <= 60

    async def test_a_short_body_is_no_200(self, path):
        async def short(talk):
            await talk.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
            await talk.write(b'content-length: 500\r\n\r\n{"id":"c1"')
            talk.close()

        await path.start_with(await path.engine(short))
        answer = await path.ask()
        assert (answer.status, answer.error["code"]) == (502, "upstream_error")

    async def test_garbage_is_502(self, path):
        async def garbage(talk):
            await talk.write(b"SSH-2.0-OpenSSH\r\n\r\n")

        await path.start_with(await path.engine(garbage))
        assert (await path.ask()).status == 502

    async def test_a_silent_engine_is_504(self, path):
        async def silent(talk):
            await asyncio.sleep(3600)

        engine = await path.engine(silent)
        await path.start_with(engine, timeouts={"first_byte": "300ms"})
        answer = await path.ask()
        assert (answer.status, answer.error["code"]) == (504, "timeout")
        assert answer.answer_headers["x-should-retry"] == "false"
        assert "retry-after" not in answer.answer_headers
        assert "x-llmgw-served-by" not in answer.answer_headers
        await eventually(lambda: engine.open == 0)


def anthropic_event(kind, **members):
    value = {"type": kind, **members}
    return f"event: {kind}\ndata: {json.dumps(value)}\n\n".encode()


class TestOtherProtocols:
    """Messages and responses pass to engines that speak them, each with its own end and error event."""

    START = anthropic_event(
        "message_start", message={"model": "m", "usage": {"input_tokens": 7, "output_tokens": 1}}
    )

    @pytest.mark.parametrize("whole", [True, False])
    async def test_messages(self, path, whole):
        async def behave(talk):
            await talk.write(STREAM_HEAD)
            await talk.chunk(self.START)
            if whole:
                await talk.chunk(anthropic_event("message_stop"))
            await talk.write(b"0\r\n\r\n")

        engine = await path.engine(behave)
        await path.start_with(engine)
        headers = {"anthropic-version": "2023-06-01", "x-api-key": "any"}
        answer = await path.ask(chat(stream=True), path="/v1/messages", headers=headers)
        assert engine.requests[0].headers["anthropic-version"] == "2023-06-01"
        assert "x-api-key" not in engine.requests[0].headers
        assert answer.answer_headers["request-id"] == answer.answer_headers["x-request-id"]
        assert path.log.lines[-1].tokens_in == 7
        if whole:
            assert answer.ending == "clean"
            assert answer.answer == self.START + anthropic_event("message_stop")
        else:
            assert answer.ending == "cut"
            assert b"event: error\n" in answer.answer
            assert answer.events()[-1]["error"]["type"] == "api_error"

    async def test_a_broken_responses_stream(self, path):
        async def behave(talk):
            await talk.write(STREAM_HEAD)
            await talk.chunk(anthropic_event("response.created", sequence_number=0))
            await talk.write(b"0\r\n\r\n")

        await path.start_with(await path.engine(behave))
        body = {"model": "m", "input": "hello", "stream": True}
        answer = await path.ask(body, path="/v1/responses")
        assert answer.ending == "cut"
        error = answer.events()[-1]
        assert (error["type"], error["sequence_number"]) == ("error", 1)
        assert error["error"]["code"] == error["code"] == "upstream_error"

    @pytest.mark.parametrize("where", ["/v1/embeddings", "/tokenize", "/v1/messages/count_tokens"])
    async def test_what_is_no_stream_passes(self, path, where):
        async def behave(talk):
            await talk.write(json_answer(200, {"model": "m", "data": [1, 2]}))

        engine = await path.engine(behave)
        await path.start_with(engine)
        answer = await path.ask({"model": "m", "input": "x"}, path=where)
        assert answer.json == {"model": "m", "data": [1, 2]}
        assert engine.requests[0].path == where


class TestIllEngines:
    async def test_one_hung_engine_blocks_nobody_else(self, path):
        """FR15."""

        async def silent(talk):
            await asyncio.sleep(3600)

        hung, well = await path.engine(silent), await path.engine()
        await path.start(
            {
                "models": [
                    {"name": "a", "endpoints": [{"url": hung.url, "slots": 8}]},
                    {"name": "b", "endpoints": [{"url": well.url, "slots": 8}]},
                ]
            }
        )
        stuck = [FakeExchange(body=chat("a")) for _ in range(300)]
        for exchange in stuck:
            path.begin(exchange)
        await eventually(lambda: len(hung.requests) == 10)
        answers = await asyncio.gather(*(path.ask(chat("b")) for _ in range(50)))
        assert {answer.status for answer in answers} == {200}
        assert (await path.ask(method="GET", path="/v1/models")).status == 200
        assert hung.connections == 10

    async def test_a_refusing_engine_wastes_few_tries(self, path):
        """FR12: nobody is refused, and one failure is enough to rest."""
        engines = [await path.engine() for _ in range(3)]
        engines[0].stop_listening()
        await path.start_with(*engines)
        answers = await asyncio.gather(*(path.ask(chat(user=str(n))) for n in range(20)))
        answers += [await path.ask(chat(user=str(n))) for n in range(40)]
        assert {answer.status for answer in answers} == {200}
        # Those that were on their way when the first one failed, and none after.
        assert max(line.tries for line in path.log.lines[20:]) == 1


async def test_a_streams_request_is_not_kept(path):
    go_on = asyncio.Event()

    async def behave(talk):
        await talk.write(STREAM_HEAD)
        await talk.chunk(chat_event("m", "one"))
        await go_on.wait()
        await talk.chunk(DONE)
        await talk.write(b"0\r\n\r\n")

    await path.start_with(await path.engine(behave))
    task = path.begin(exchange := FakeExchange(body=chat(stream=True)))
    await exchange.begun.wait()
    (call,) = path.application._running
    assert (call.body, call.relay._sending.body) == (b"", b"")
    assert call.body_size == len(exchange.body)
    go_on.set()
    await task


class TestBrokenStreams:
    """What the client has is kept, and it never looks like a success (FR13)."""

    @pytest.mark.parametrize("how", ["fin", "rst", "no_last_chunk", "no_terminator", "mid_event"])
    async def test_broken_after_the_first_byte(self, path, how):
        async def behave(talk):
            await talk.write(STREAM_HEAD)
            await talk.chunk(chat_event("m", "Stock"))
            await asyncio.sleep(0.05)
            if how == "no_terminator":
                await talk.write(b"0\r\n\r\n")
            elif how == "mid_event":
                await talk.chunk(b'data: {"model":"m","choices":[{"del')
                talk.close()
            elif how == "rst":
                talk.reset()
            else:
                talk.close()

        broken, other = await path.engine(behave), await path.engine(behave)
        await path.start_with(broken, other)
        answer = await path.ask(chat(stream=True))
        assert answer.status == 200
        assert answer.ending == "cut"
        first, error = answer.events()
        assert first["choices"][0]["delta"]["content"] == "Stock"
        assert error["error"]["code"] == "upstream_error"
        assert set(error["error"]) == {"message", "type", "param", "code"}
        assert b"[DONE]" not in answer.answer
        assert len(broken.requests) + len(other.requests) == 1
        assert path.log.lines[-1].outcome == "broken"

    async def test_an_engines_own_error_event_is_not_doubled(self, path):
        async def behave(talk):
            await talk.write(STREAM_HEAD)
            await talk.chunk(chat_event("m", "Stock"))
            await talk.chunk(b'data: {"error":{"message":"out of memory","code":500}}\n\n')
            await talk.write(b"0\r\n\r\n")

        await path.start_with(await path.engine(behave))
        answer = await path.ask(chat(stream=True))
        assert answer.ending == "cut"
        assert len(answer.events()) == 2

    async def test_a_stream_that_stands_still(self, path):
        async def behave(talk):
            await talk.write(STREAM_HEAD)
            await talk.chunk(chat_event("m", "Stock"))
            await asyncio.sleep(3600)

        engine = await path.engine(behave)
        await path.start_with(engine, timeouts={"idle": "300ms"})
        answer = await path.ask(chat(stream=True))
        assert answer.ending == "cut"
        assert answer.events()[-1]["error"]["code"] == "timeout"
        await eventually(lambda: engine.open == 0)


class TestClientLeaves:
    """The engine's connection is closed at once, in every phase (FR16, FR17)."""

    @pytest.mark.parametrize("stream", [False, True])
    async def test_before_the_first_token(self, path, stream):
        async def behave(talk):
            await asyncio.sleep(3600)

        engine = await path.engine(behave)
        await path.start_with(engine)
        exchange = FakeExchange(body=chat(stream=stream))
        task = path.begin(exchange)
        await engine.arrived.wait()
        exchange.leave()
        await engine.closed.wait()
        await task
        assert path.log.lines[-1].outcome == "client_gone"

    async def test_in_the_stream(self, path):
        async def behave(talk):
            await talk.write(STREAM_HEAD)
            while True:
                await talk.chunk(chat_event("m", "on "))
                await asyncio.sleep(0.01)

        engine = await path.engine(behave)
        await path.start_with(engine)
        exchange = FakeExchange(body=chat(stream=True))
        task = path.begin(exchange)
        await exchange.begun.wait()
        exchange.leave()
        await engine.closed.wait()
        await task
        assert path.log.lines[-1].outcome == "client_gone"

    async def test_in_the_queue(self, path):
        go_on = asyncio.Event()

        async def behave(talk):
            await go_on.wait()
            await answer_chat(talk)

        engine = await path.engine(behave)
        await path.start_with(engine, endpoint={"slots": 1})
        first = path.begin(FakeExchange(body=chat()))
        await engine.arrived.wait()
        waiting = [FakeExchange(body=chat(user=str(n))) for n in range(20)]
        tasks = [path.begin(exchange) for exchange in waiting]
        gate = path.application._engines.gates["m"]
        await eventually(lambda: len(gate.waiting) == 20)
        for exchange in waiting[:18]:
            exchange.leave()
        assert len(gate.waiting) == 2
        go_on.set()
        await asyncio.gather(first, *tasks)
        assert [exchange.status for exchange in waiting[18:]] == [200, 200]
        assert [r.json.get("user") for r in engine.requests] == [None, "18", "19"]

    async def test_cancelled_from_outside(self, path):
        async def behave(talk):
            await asyncio.sleep(3600)

        engine = await path.engine(behave)
        await path.start_with(engine)
        task = path.begin(FakeExchange(body=chat()))
        await engine.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await engine.closed.wait()


class TestConnections:
    async def test_a_connection_is_used_again(self, path):
        engine = await path.engine()
        await path.start_with(engine)
        for _ in range(5):
            assert (await path.ask()).status == 200
            assert (await path.ask(chat(stream=True))).ending == "clean"
        assert engine.connections == 1

    async def test_a_reused_connection_that_dies_is_replayed_silently(self, path):
        async def behave(talk):
            if len(engine.requests) == 2:
                talk.reset()
                return
            await answer_chat(talk)

        engine = await path.engine(behave)
        await path.start_with(engine)
        assert (await path.ask()).status == 200
        assert (await path.ask()).status == 200
        assert len(engine.requests) == 3
        assert path.log.lines[-1].tries == 1

    async def test_a_fresh_connection_that_dies_is_not_replayed(self, path):
        async def behave(talk):
            talk.reset()

        engine = await path.engine(behave)
        await path.start_with(engine)
        assert (await path.ask()).status == 502
        assert len(engine.requests) == 1

    async def test_an_engine_that_keeps_no_connection(self, path):
        async def behave(talk):
            await talk.write(json_answer(200, chat_answer("m"), "keep-alive: timeout=1\r\n"))

        engine = await path.engine(behave)
        await path.start_with(engine)
        await path.ask()
        await path.ask()
        assert engine.connections == 2

    async def test_a_body_without_length_ends_with_its_connection(self, path):
        async def behave(talk):
            body = json.dumps(chat_answer("m")).encode()
            await talk.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + body)
            talk.close()

        await path.start_with(await path.engine(behave))
        assert (await path.ask()).json == chat_answer("m")

    async def test_a_slow_reader_stops_the_engine(self, path):
        event = chat_event("m", "x" * 60_000)

        async def behave(talk):
            await talk.write(STREAM_HEAD)
            for _ in range(100):
                await talk.chunk(event)
            await talk.chunk(DONE)
            await talk.write(b"0\r\n\r\n")

        engine = await path.engine(behave)
        await path.start_with(engine)
        exchange = FakeExchange(body=chat(stream=True))
        exchange.slow = True
        task = path.begin(exchange)
        await eventually(lambda: exchange.sent >= 1024 * 1024)
        await asyncio.sleep(0.1)
        assert exchange.sent < 2 * 1024 * 1024
        exchange.slow = False
        await task
        assert exchange.answer == event * 100 + DONE


class TestRoom:
    async def test_no_more_than_the_cap_and_in_order(self, path):
        at_once = []
        running = 0

        async def behave(talk):
            nonlocal running
            running += 1
            at_once.append(running)
            await asyncio.sleep(0.01)
            running -= 1
            await answer_chat(talk)

        engine = await path.engine(behave)
        await path.start_with(engine, endpoint={"slots": 4})
        exchanges = [FakeExchange(body=chat(user=str(n))) for n in range(30)]
        await asyncio.gather(*(path.begin(exchange) for exchange in exchanges))
        assert {exchange.status for exchange in exchanges} == {200}
        assert max(at_once) == 5
        assert path.application._engines.gates["m"].begun == 30

    async def test_distinct_prompts_spread(self, path):
        engines = [await path.engine() for _ in range(4)]
        release = asyncio.Event()

        async def behave(talk):
            await release.wait()
            await answer_chat(talk)

        for engine in engines:
            engine.behave = behave
        await path.start_with(*engines, endpoint={"slots": 100})
        exchanges = []
        for number in range(40):
            body = chat(max_tokens=1)
            body["messages"][0]["content"] = f"{number} " + "word " * 2000
            exchanges.append(FakeExchange(body=body))
        tasks = [path.begin(exchange) for exchange in exchanges]
        await eventually(lambda: sum(len(engine.requests) for engine in engines) == 40)
        assert all(8 <= len(engine.requests) <= 12 for engine in engines)
        release.set()
        await asyncio.gather(*tasks)


async def test_every_ending_gives_everything_back(path):
    """FR03: nine endings, and no booking stays."""
    endings = ["ok", "reset", "late_reset", "500", "503", "429", "garbled", "slow", "left"]

    async def behave(talk):
        how = talk.request.json["user"]
        if how == "reset":
            talk.reset()
        elif how == "late_reset" and talk.request.json["stream"]:
            await talk.write(STREAM_HEAD)
            await talk.chunk(chat_event("m", "x"))
            await asyncio.sleep(0.01)
            talk.reset()
        elif how in ("500", "503", "429"):
            await talk.write(json_answer(int(how), {}))
        elif how == "garbled":
            await talk.write(STREAM_HEAD + b"zz\r\nwhat\r\n")
        elif how in ("slow", "left"):
            await asyncio.sleep(3600)
        else:
            await answer_chat(talk)

    engine = await path.engine(behave)
    await path.start_with(engine, timeouts={"first_byte": "300ms"}, endpoint={"slots": 100})
    exchanges = []
    for number in range(90):
        how = endings[number % len(endings)]
        exchange = FakeExchange(body=chat(stream=number % 2 == 0, user=how))
        path.begin(exchange)
        exchanges.append((how, exchange))
    await asyncio.sleep(0.1)
    for how, exchange in exchanges:
        if how == "left":
            exchange.leave()
    await eventually(lambda: all(exchange.ending for _, exchange in exchanges))
    places = list(path.application._engines.places())
    assert [(place.in_flight, place.uncached) for place in places] == [(0, 0)]


@pytest.mark.parametrize("operator", [True, False])
@pytest.mark.parametrize("stream", [True, False])
async def test_only_an_operator_sees_where_it_went(path, operator, stream):
    engine = await path.engine()
    await path.start(
        {
            "models": [{"name": "m", "endpoints": [{"url": engine.url, "id": "e1"}]}],
            "keys": [{**FILE_KEYS[0], "operator": operator}],
        }
    )
    headers = (await path.ask(chat(stream=stream), headers={"x-api-key": KEY})).answer_headers
    assert headers.get("x-llmgw-endpoint") == ("e1" if operator else None)
    assert headers.get("x-llmgw-queue-ms") == ("0" if operator else None)


async def test_models_are_listed_by_key(path):
    engine = await path.engine()
    await path.start(
        {
            "models": [
                {
                    "name": "m",
                    "aliases": ["claude-m"],
                    "description": "A small one.",
                    "context_length": 4096,
                    "capabilities": ["tools"],
                    "endpoints": [{"url": engine.url}],
                },
                {"name": "s", "simulated": True, "endpoints": [{"url": engine.url}]},
            ],
            "keys": FILE_KEYS,
        }
    )
    headers = {"x-api-key": KEY}
    listed = (await path.ask(method="GET", path="/v1/models", headers=headers)).json
    assert [entry["id"] for entry in listed["data"]] == ["m"]
    entry = listed["data"][0]
    assert entry["context_length"] == entry["max_model_len"] == entry["max_input_tokens"] == 4096
    assert entry["capabilities"]["function_calling"] is True
    assert entry["status"] == {"value": "loaded"}
    one = await path.ask(method="GET", path="/v1/models/m", headers=headers)
    assert one.json == entry
    hidden = await path.ask(method="GET", path="/v1/models/s", headers=headers)
    assert hidden.status == 404


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_the_chat_page_needs_no_key(path, method):
    engine = await path.engine()
    await path.start(
        {"models": [{"name": "m", "endpoints": [{"url": engine.url}]}], "keys": FILE_KEYS}
    )
    page = await path.ask(method=method, path="/")
    assert page.status == 200
    assert page.answer_headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src 'self'" in page.answer_headers["content-security-policy"]
    assert (await path.ask(method=method, path="/chat/../errors.py")).status == 404
    script = await path.ask(method=method, path="/chat/chat.js")
    assert script.answer_headers["content-type"] == "text/javascript; charset=utf-8"


async def test_closing_lets_what_runs_run_out(path):
    go_on = asyncio.Event()

    async def behave(talk):
        await go_on.wait()
        await answer_chat(talk)

    engine = await path.engine(behave)
    application = await path.start_with(engine)
    assert application.ready() is None
    exchange = FakeExchange(body=chat())
    task = path.begin(exchange)
    await engine.arrived.wait()
    application.begin_drain()
    assert application.ready() == "draining"
    closing = asyncio.ensure_future(application.close(30.0))
    await asyncio.sleep(0.01)
    go_on.set()
    await task
    await closing
    assert exchange.status == 200


async def test_closing_breaks_off_what_does_not_end(path):
    async def behave(talk):
        await asyncio.sleep(3600)

    engine = await path.engine(behave)
    application = await path.start_with(engine)
    task = path.begin(FakeExchange(body=chat()))
    await engine.arrived.wait()
    await application.close(0.0)
    await engine.closed.wait()
    await task
