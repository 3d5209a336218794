"""Ways out of a request that are seldom gone: each ends it once, tells its client, and keeps nothing."""

from __future__ import annotations

import asyncio

import pytest

from router.circuit import CircuitState
from router.dispatch import Dispatch
from router.relay import Relay
from tests.router.conftest import chat, eventually
from tests.router.fake_engine import DONE, STREAM_HEAD, chat_answer, chat_event, json_answer
from tests.router.fake_exchange import FakeExchange


async def never(talk):
    await asyncio.sleep(3600)


async def begins(talk):
    await talk.write(STREAM_HEAD)
    await talk.chunk(chat_event("m", "Stock"))
    await asyncio.sleep(3600)


class TestStopping:
    """After the limit of a stop whoever is still there is told, and nobody is sent anywhere."""

    async def test_a_request_without_an_answer_is_told_to_come_again(self, path):
        engine = await path.engine(never)
        application = await path.start_with(engine)
        task = path.begin(exchange := FakeExchange(body=chat()))
        await engine.arrived.wait()
        await application.close(0.0)
        await task
        assert (exchange.status, exchange.error["code"]) == (503, "no_endpoint")
        assert "stopping" in exchange.error["message"]
        assert int(exchange.answer_headers["retry-after"]) >= 1
        assert (path.log.lines[-1].outcome, path.log.lines[-1].reason) == ("failed", "stopping")

    async def test_a_stream_gets_an_error_event_and_an_unclean_end(self, path):
        application = await path.start_with(await path.engine(begins))
        task = path.begin(exchange := FakeExchange(body=chat(stream=True)))
        await eventually(lambda: exchange.chunks)
        await application.close(0.0)
        await task
        assert exchange.ending == "cut"
        error = exchange.events()[-1]["error"]
        assert "stopping" in error["message"]
        assert (path.log.lines[-1].outcome, path.log.lines[-1].reason) == ("broken", "stopping")

    async def test_who_waits_is_not_sent_to_the_places_that_come_free(self, path):
        engine = await path.engine(never)
        application = await path.start_with(engine, endpoint={"slots": 1})
        exchanges = [FakeExchange(body=chat()) for _ in range(4)]
        tasks = [path.begin(exchange) for exchange in exchanges]
        await engine.arrived.wait()
        gate = application._engines.gates["m"]
        await eventually(lambda: len(gate.waiting) == 3)
        await application.close(0.0)
        await asyncio.gather(*tasks)
        assert {exchange.status for exchange in exchanges} == {503}
        assert (len(engine.requests), engine.connections) == (1, 1)

    async def test_who_has_its_turn_just_then_is_told_so(self, path):
        application = await path.start_with(await path.engine())
        gate = application._engines.gates["m"]
        place = gate.places[0]
        place.in_flight = place.cap
        exchange = FakeExchange(body=chat())
        task = path.begin(exchange)
        await eventually(lambda: gate.waiting)
        place.in_flight = 0
        gate.serve_waiting(0.0)
        closing = asyncio.ensure_future(application.close(0.0))
        application._dispatch.stop()
        await asyncio.gather(task, closing)
        assert exchange.status == 503
        assert place.in_flight == 0


class TestOurOwnMistakes:
    """An exception in any step ends its request once, with an answer where there is none."""

    @pytest.mark.parametrize("stream", [True, False])
    async def test_while_the_answer_is_made(self, path, monkeypatch, stream):
        def mistaken(*args):
            raise RuntimeError("a mistake")

        await path.start_with(await path.engine())
        name = "_end_stream" if stream else "usage_of_body"
        if stream:
            monkeypatch.setattr(Dispatch, name, mistaken)
        else:
            monkeypatch.setattr(f"router.dispatch.{name}", mistaken)
        exchange = await path.ask(chat(stream=stream))
        if stream:
            assert (exchange.status, exchange.ending) == (200, "cut")
        else:
            assert (exchange.status, exchange.error["code"]) == (502, "upstream_error")
        (line,) = path.log.lines
        assert (line.outcome, line.reason) == ("failed", "router_error")

    async def test_while_it_is_sent(self, path, monkeypatch):
        start = Relay.start

        def mistaken(relay):
            start(relay)
            raise RuntimeError("a mistake")

        engine = await path.engine()
        application = await path.start_with(engine)
        monkeypatch.setattr(Relay, "start", mistaken)
        exchange = await path.ask()
        assert (exchange.status, exchange.error["code"]) == (502, "upstream_error")
        monkeypatch.undo()
        assert (await path.ask()).status == 200
        await asyncio.sleep(0.05)
        assert len(path.log.lines) == 2
        assert not application._dispatch.relays

    async def test_the_one_that_tries_a_rested_endpoint_gives_its_turn_back(
        self, path, monkeypatch
    ):
        application = await path.start_with(await path.engine())
        circuit = application._engines.gates["m"].places[0].circuit
        circuit.failed(-100.0, "connect_refused", at_once=True)

        def mistaken(*args):
            raise RuntimeError("a mistake")

        monkeypatch.setattr("router.dispatch.rewrite", mistaken)
        assert (await path.ask()).status == 502
        assert circuit.state is CircuitState.OPEN
        monkeypatch.undo()
        assert (await path.ask()).status == 200
        assert circuit.state is CircuitState.CLOSED

    async def test_sweeps_go_on(self, path, monkeypatch):
        application = await path.start_with(await path.engine())
        calls = []

        def mistaken(lenient):
            calls.append(lenient)
            raise RuntimeError("a mistake")

        monkeypatch.setattr(application, "_sweep_limits", mistaken)
        reported = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        await eventually(lambda: len(calls) >= 2)
        loop.set_exception_handler(None)
        assert len(reported) >= 1


class TestAnswersThatAreNone:
    @pytest.mark.parametrize(
        "answer",
        [
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n",
            b'HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n{"model":"m","choices":[{"mess',
            b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{"model":"m"',
        ],
    )
    async def test_an_empty_or_shortened_200_is_asked_for_elsewhere(self, path, answer):
        async def behave(talk):
            await talk.write(answer)
            talk.close()

        broken, other = await path.engine(behave), await path.engine(behave)
        await path.start_with(broken, other)
        asked = await path.ask()
        assert (asked.status, asked.error["code"]) == (502, "upstream_error")
        assert (len(broken.requests), len(other.requests)) == (1, 1)

    @pytest.mark.parametrize("version", [b"1.0", b"1.1"])
    async def test_an_answer_that_ends_with_its_connection_is_whole(self, path, version):
        async def behave(talk):
            body = json_answer(200, chat_answer("m")).partition(b"\r\n\r\n")[2]
            head = b"HTTP/%b 200 OK\r\ncontent-type: application/json\r\n\r\n" % version
            await talk.write(head + body)
            talk.close()

        await path.start_with(await path.engine(behave))
        asked = await path.ask()
        assert (asked.status, asked.json["model"]) == (200, "m")

    async def test_a_part_of_an_event_is_no_first_byte(self, path):
        async def behave(talk):
            await talk.write(STREAM_HEAD)
            await talk.chunk(b'data: {"model":"m","choices":[{"del')
            await talk.write(b"0\r\n\r\n")

        broken, other = await path.engine(behave), await path.engine(behave)
        await path.start_with(broken, other)
        asked = await path.ask(chat(stream=True))
        assert (asked.status, asked.error["code"]) == (502, "upstream_error")
        assert (len(broken.requests), len(other.requests)) == (1, 1)

    async def test_another_protocol_is_no_answer(self, path):
        async def behave(talk):
            await talk.write(
                b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nhi"
            )
            await asyncio.sleep(3600)

        await path.start_with(await path.engine(behave))
        reported = []
        asyncio.get_running_loop().set_exception_handler(lambda _, said: reported.append(said))
        assert (await path.ask()).status == 502
        assert reported == []
        assert path.log.lines[-1].reason == "garbled"

    async def test_the_type_of_a_stream_in_capitals(self, path):
        async def behave(talk):
            await talk.write(STREAM_HEAD.replace(b"text/event-stream", b"Text/Event-Stream"))
            await talk.chunk(chat_event("other", "a"))
            await talk.chunk(DONE)
            await talk.write(b"0\r\n\r\n")

        await path.start_with(await path.engine(behave))
        asked = await path.ask(chat(stream=True))
        assert asked.ending == "clean"
        assert [event if event == "[DONE]" else event["model"] for event in asked.events()] == [
            "m",
            "[DONE]",
        ]


@pytest.mark.parametrize(
    ("method", "where", "status"),
    [("GET", "/v1/messages", 405), ("POST", "/v1/messages/nothing", 404)],
)
async def test_refusals_without_a_route_have_the_id_that_its_client_reads(
    path, method, where, status
):
    await path.start_with(await path.engine())
    asked = await path.ask(method=method, path=where)
    assert asked.status == status
    assert asked.json["request_id"] == asked.answer_headers["request-id"]


async def test_an_engines_refusal_in_our_words_is_no_failure(path):
    async def behave(talk):
        error = {"message": "too long", "n_prompt_tokens": 9000, "n_ctx": 4096}
        await talk.write(json_answer(400, {"error": error}))

    await path.start_with(await path.engine(behave))
    asked = await path.ask()
    assert (asked.status, asked.error["code"]) == (400, "context_length_exceeded")
    assert path.log.lines[-1].outcome == "refused"
