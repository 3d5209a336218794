"""A real engine process over loopback: paths, refusals, connections, streams."""

from __future__ import annotations

import http.client
import json
import math
import signal
import socket
import struct

import pytest

from .conftest import PATIENCE, read_all, read_until

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]


def chat(**fields) -> dict:
    return {"model": "greek", "messages": HELLO} | fields


def events(raw: bytes) -> list[dict]:
    """The JSON of an OpenAI stream's events; the stream has to end with [DONE]."""
    lines = [line.removeprefix(b"data: ") for line in raw.split(b"\n\n") if line]
    assert lines.pop() == b"[DONE]"
    return [json.loads(line) for line in lines]


def test_models_say_that_they_are_simulated(sim):
    status, raw = sim.call("GET", "/v1/models")
    models = json.loads(raw)["data"]
    assert status == 200
    assert [model["id"] for model in models] == ["greek", "koine"]
    assert {model["owned_by"] for model in models} == {"llmgw-sim"}
    assert {model["max_model_len"] for model in models} == {32768}


def test_a_chat(sim):
    status, answer = sim.post(CHAT, chat(model="koine", max_tokens=3))
    assert status == 200
    (choice,) = answer["choices"]
    assert choice["message"]["content"] == "alpha beta gamma"
    assert (choice["finish_reason"], answer["model"]) == ("length", "koine")
    assert answer["usage"]["completion_tokens"] == 3
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] + 3


def test_a_streamed_chat_event_by_event(sim):
    body = chat(max_tokens=2, stream=True, stream_options={"include_usage": True})
    status, raw = sim.call("POST", CHAT, body)
    role, first, last, usage = events(raw)
    assert status == 200
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert first["choices"][0]["delta"] == {"content": "alpha"}
    assert first["choices"][0]["finish_reason"] is None
    assert last["choices"][0]["delta"] == {"content": " beta"}
    assert last["choices"][0]["finish_reason"] == "length"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 2
    assert {event["object"] for event in (role, first, last, usage)} == {"chat.completion.chunk"}


def test_usage_is_not_streamed_unasked(sim):
    _, raw = sim.call("POST", CHAT, chat(max_tokens=2, stream=True))
    assert not any("usage" in event for event in events(raw))


def test_several_choices_streamed(sim):
    _, raw = sim.call("POST", CHAT, chat(max_tokens=3, n=2, stream=True))
    said = {0: "", 1: ""}
    for event in events(raw):
        (choice,) = event["choices"]
        said[choice["index"]] += choice["delta"]["content"]
    assert said == {0: "alpha beta gamma", 1: "alpha beta gamma"}


def test_completions_of_several_prompts(sim):
    body = {"model": "greek", "prompt": ["a", "b"], "max_tokens": 2, "n": 2}
    _, answer = sim.post("/v1/completions", body)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert {choice["text"] for choice in answer["choices"]} == {"alpha beta"}
    assert answer["usage"]["prompt_tokens"] == 2
    assert answer["usage"]["completion_tokens"] == 8
    _, raw = sim.call("POST", "/v1/completions", body | {"prompt": "a", "n": 1, "stream": True})
    assert "".join(event["choices"][0]["text"] for event in events(raw)) == "alpha beta"


def test_embeddings_are_unit_vectors_fixed_by_the_text(sim):
    body = {"model": "greek", "input": ["one", "two", "one"]}
    _, answer = sim.post("/v1/embeddings", body)
    one, two, again = (item["embedding"] for item in answer["data"])
    assert one == again != two
    assert len(one) == 64
    assert math.hypot(*one) == pytest.approx(1.0)
    assert answer["usage"]["prompt_tokens"] == 3
    _, short = sim.post("/v1/embeddings", body | {"dimensions": 8})
    assert len(short["data"][0]["embedding"]) == 8
    assert math.hypot(*short["data"][0]["embedding"]) == pytest.approx(1.0)


def test_tokenize_gives_numbers_that_are_the_same_prompt(sim):
    text = "the same prompt, as text and as numbers " * 8
    _, counted = sim.post("/tokenize", {"model": "greek", "prompt": text})
    assert counted["count"] == len(counted["tokens"]) == 80
    ask = {"model": "greek", "max_tokens": 1}
    sim.post("/v1/completions", ask | {"prompt": text})
    _, answer = sim.post("/v1/completions", ask | {"prompt": counted["tokens"]})
    assert answer["usage"]["prompt_tokens"] == 80
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 64


def test_the_next_turn_finds_question_and_answer_in_the_cache(sim):
    turns = [{"role": "user", "content": "what comes after this? " * 40}]
    _, first = sim.post(CHAT, chat(messages=turns, max_tokens=100))
    assert first["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    turns += [first["choices"][0]["message"] | {"tool_calls": None}, *HELLO]
    before = sim.metrics()
    _, second = sim.post(CHAT, chat(messages=turns, max_tokens=1))
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached > first["usage"]["prompt_tokens"]
    after = sim.metrics()
    assert after["prefix_cache_hits_total"] - before["prefix_cache_hits_total"] == cached
    queries = after["prefix_cache_queries_total"] - before["prefix_cache_queries_total"]
    assert queries == second["usage"]["prompt_tokens"]


def test_metrics_under_vllms_names(sim):
    before = sim.metrics()
    sim.post(CHAT, chat(max_tokens=5))
    status, raw = sim.call("GET", "/metrics")
    after = sim.metrics()
    assert status == 200
    assert b'vllm:num_requests_running{engine="0",model_name="greek"} 0.0\n' in raw
    assert b'finished_reason="length"}' in raw
    assert after["num_requests_waiting"] == after["kv_cache_usage_perc"] == 0
    assert after["generation_tokens_total"] - before["generation_tokens_total"] == 5
    assert after["prompt_tokens_total"] > before["prompt_tokens_total"]
    assert after["request_success_total"] - before["request_success_total"] == 1


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("POST", CHAT, b"{", 400, "not valid JSON"),
        ("POST", CHAT, chat(model="latin"), 404, "The model `latin` does not exist."),
        ("POST", CHAT, chat(max_tokens=40_000), 400, "maximum context length is 32768 tokens"),
        ("GET", CHAT, None, 405, "takes POST, not GET"),
        ("POST", "/v1/nothing", b"{}", 404, "There is no /v1/nothing here."),
    ],
)
def test_refusals_in_vllms_form(sim, method, path, body, status, says):
    got, raw = sim.call(method, path, body)
    error = json.loads(raw)["error"]
    assert got == error["code"] == status
    assert says in error["message"]


def test_refusals_in_anthropics_form(sim):
    status, answer = sim.post(
        "/v1/messages", {"model": "latin", "max_tokens": 1, "messages": HELLO}
    )
    assert status == 404
    assert answer["type"] == "error"
    assert answer["error"]["type"] == "not_found_error"


def test_a_connection_is_kept_and_takes_chunked_bodies(sim):
    connection = http.client.HTTPConnection(sim.host, sim.port, timeout=PATIENCE)
    raw = json.dumps(chat(max_tokens=1)).encode()
    for body in (raw, iter([raw[:10], raw[10:]]), raw):
        chunked = not isinstance(body, bytes)
        connection.request("POST", CHAT, body, encode_chunked=chunked)
        socket_used = connection.sock
        answer = connection.getresponse()
        assert json.loads(answer.read())["choices"][0]["message"]["content"] == "alpha"
        assert connection.sock is socket_used is not None
    connection.close()


def test_requests_sent_ahead_are_answered_in_order(sim):
    with sim.dial() as dialled:
        dialled.sendall(
            b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
            b"GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n"
            b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        )
        raw = read_all(dialled)
    assert [raw.count(b"HTTP/1.1 200 OK"), raw.count(b"HTTP/1.1 404 ")] == [2, 1]
    assert raw.index(b"404") < raw.rindex(b"200 OK")


def test_http_1_0_and_expect_and_nonsense(sim):
    with sim.dial() as dialled:
        dialled.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert read_all(dialled).endswith(b'{"status":"ok"}')
    raw = json.dumps(chat(max_tokens=1)).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: {len(raw)}\r\n\r\n"
    with sim.dial() as dialled:
        dialled.sendall(head.encode())
        assert read_until(dialled, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        dialled.sendall(raw)
        assert b"200 OK" in read_until(dialled, b"alpha")
    with sim.dial() as dialled:
        dialled.sendall(b"what is this?\r\n\r\n")
        answer = read_all(dialled)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"This is not HTTP/1.1" in answer


def test_idle_connections_are_closed(start_sim):
    sim = start_sim("--keep-alive", "0.05", "--decode-rate", "20")
    with sim.dial() as idle:
        assert idle.recv(1) == b""
    # One that is busy for longer than that is not idle.
    status, _ = sim.post(CHAT, chat(max_tokens=5))
    assert status == 200


def test_keys(start_sim, tmp_path):
    file = tmp_path / "key"
    file.write_text("s3cret\n")
    sim = start_sim("--api-key-file", str(file), "--decode-rate", "0")
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Basic s3cret"},
        {"x-api-key": "s3cret "[:3]},
    ):
        for method, path in (("GET", "/v1/models"), ("POST", CHAT), ("POST", "/tokenize")):
            status, raw = sim.call(method, path, None if method == "GET" else chat(), headers)
            assert status == 401
            assert json.loads(raw)["error"]["type"] == "AuthenticationError"
    for headers in ({"authorization": "Bearer s3cret"}, {"x-api-key": "s3cret"}):
        assert sim.call("POST", CHAT, chat(), headers)[0] == 200
    assert sim.call("GET", "/health")[0] == sim.call("GET", "/metrics")[0] == 200


def test_while_it_loads(start_sim):
    sim = start_sim("--start-delay", "1000")
    status, raw = sim.call("GET", "/health")
    assert status == 503
    assert json.loads(raw)["error"]["message"] == "Loading model"
    assert sim.call("POST", CHAT, chat())[0] == 503
    assert sim.call("GET", "/v1/models")[0] == 200


def test_slots_and_the_queue_behind_them(start_sim, wait_until):
    sim = start_sim("--slots", "2", "--decode-rate", "1", "--prefill-rate", "0")
    held = [sim.begin(CHAT, chat(max_tokens=1000)) for _ in range(5)]
    wait_until(lambda: sim.metrics()["num_requests_waiting"] == 3)
    assert sim.metrics()["num_requests_running"] == 2
    assert sim.metrics()["kv_cache_usage_perc"] > 0
    for one in held:
        one.close()
    wait_until(lambda: sim.metrics()["num_requests_running"] == 0)
    assert sim.metrics()["num_requests_waiting"] == 0
    assert sim.metrics()["request_success_total"] == 5  # all of them as "abort"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("reset", [True, False])
def test_a_client_that_leaves_frees_its_slot(start_sim, wait_until, stream, reset):
    sim = start_sim("--slots", "1", "--decode-rate", "10", "--prefill-rate", "0")
    gone = sim.begin(CHAT, chat(max_tokens=10_000, stream=stream))
    if stream:
        read_until(gone, b"alpha")
    wait_until(lambda: sim.metrics()["num_requests_running"] == 1)
    if reset:
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    gone.close()
    wait_until(lambda: sim.metrics()["num_requests_running"] == 0)
    assert sim.post(CHAT, chat(max_tokens=1))[0] == 200


def test_sigterm_lets_running_answers_end(start_sim):
    sim = start_sim("--decode-rate", "20")
    with sim.dial() as idle, sim.begin(CHAT, chat(max_tokens=12, stream=True)) as dialled:
        begun = read_until(dialled, b"alpha")
        sim.process.send_signal(signal.SIGTERM)
        assert idle.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            sim.dial().close()
        raw = begun + read_all(dialled)
    assert raw.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert raw.count(b'"content":') == 13
    assert sim.process.wait(PATIENCE) == 0


def test_sigterm_waits_no_longer_than_the_grace(start_sim):
    sim = start_sim("--decode-rate", "1", "--grace", "0.1")
    with sim.begin(CHAT, chat(max_tokens=10_000, stream=True)) as dialled:
        read_until(dialled, b"alpha")
        sim.process.send_signal(signal.SIGTERM)
        assert sim.process.wait(PATIENCE) == 0


def test_requests_are_logged_when_asked(start_sim):
    sim = start_sim("--log-requests", "--decode-rate", "0")
    sim.post(CHAT, chat())
    sim.process.send_signal(signal.SIGTERM)
    assert sim.process.wait(PATIENCE) == 0
    assert sim.process.stderr.read().startswith("POST /v1/chat/completions 200 ")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--slots", "0"], "--slots 0: write a number of at least 1"),
        (["--fault", "boom"], "fault 'boom' is unknown"),
        (["--world-size", "2"], "give --rank and --master"),
        (["--world-size", "2", "--rank", "1", "--master", "x"], "write HOST:PORT"),
        (["--api-key-file", "/nowhere/key"], "--api-key-file: "),
        (["--api-key", ""], "the API key is empty"),
    ],
)
def test_bad_flags_are_refused_with_what_to_write(start_process, flags, says):
    one = start_process(*flags)
    _, complaint = one.process.communicate(timeout=PATIENCE)
    assert one.process.returncode == 2
    assert says in complaint


def test_an_address_in_use(start_process, sim):
    one = start_process("--port", str(sim.port))
    _, complaint = one.process.communicate(timeout=PATIENCE)
    assert one.process.returncode == 1
    assert "cannot listen" in complaint
