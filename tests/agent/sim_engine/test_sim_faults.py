"""Each fault, as a client sees it."""

from __future__ import annotations

import json
import signal

import pytest

from .conftest import PATIENCE, fall_silent, read_all, read_until

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 6}


def test_broken_stream(start_sim):
    sim = start_sim("--fault", "break-stream:3", "--decode-rate", "200")
    with sim.begin(CHAT, BODY | {"stream": True}) as dialled:
        raw = read_all(dialled)
    assert b"gamma" in raw
    assert b" delta" not in raw
    assert not raw.endswith(b"0\r\n\r\n")
    with sim.begin(CHAT, BODY) as dialled:
        assert dialled.recv(1) == b""
    assert sim.post(CHAT, BODY | {"max_tokens": 2})[0] == 200


def test_broken_stream_when_all_tokens_come_at_once(start_sim):
    sim = start_sim("--fault", "break-stream:3", "--decode-rate", "0", "--prefill-rate", "0")
    with sim.begin(CHAT, BODY | {"stream": True}) as dialled:
        raw = read_all(dialled)
    assert raw.count(b'"content":"') == 1 + 3
    assert sim.metrics()["num_requests_running"] == 0


def test_hang_answers_nothing_and_can_be_mended(start_sim):
    sim = start_sim("--fault", "hang")
    with sim.begin(CHAT, BODY) as chat, sim.dial() as health:
        health.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert fall_silent(chat) == fall_silent(health) == b""
    assert sim.call("PUT", "/sim/faults", {"faults": []})[0] == 200
    assert sim.call("GET", "/health")[0] == 200
    assert sim.post(CHAT, BODY)[0] == 200


def test_health_lies(start_sim, wait_until):
    sim = start_sim("--fault", "health-lies")
    with sim.begin(CHAT, BODY) as whole, sim.begin(CHAT, BODY | {"stream": True}) as stream:
        head = read_until(stream, b"\r\n\r\n")  # the head comes all the same, as with vLLM
        assert b"200 OK" in head
        assert fall_silent(whole) == fall_silent(stream) == b""
        assert sim.call("GET", "/health")[0] == 200
        assert sim.metrics()["num_requests_running"] == 2
        assert sim.metrics()["generation_tokens_total"] == 0
    wait_until(lambda: sim.metrics()["num_requests_running"] == 0)


def test_faults_come_and_go_while_it_runs(start_sim):
    sim = start_sim("--decode-rate", "100")
    with sim.begin(CHAT, BODY | {"stream": True, "max_tokens": 300}) as dialled:
        read_until(dialled, b"alpha")
        assert sim.call("PUT", "/sim/faults", {"faults": ["health-lies"]})[0] == 200
        produced = sim.metrics()["generation_tokens_total"]
        fall_silent(dialled)
        assert sim.metrics()["generation_tokens_total"] == produced
        sim.call("PUT", "/sim/faults", {"faults": []})
        assert dialled.recv(65536)
    status, raw = sim.call("PUT", "/sim/faults", {"faults": ["boom"]})
    assert status == 400
    assert "fault 'boom' is unknown" in json.loads(raw)["error"]["message"]


@pytest.mark.parametrize("code", [0, 3])
def test_exit_after(start_process, code):
    one = start_process("--fault", f"exit-after:0.05:{code}")
    assert one.process.wait(PATIENCE) == code


def test_ignore_sigterm(start_sim):
    sim = start_sim("--fault", "ignore-sigterm")
    sim.wait_ready()
    sim.process.send_signal(signal.SIGTERM)
    sim.process.send_signal(signal.SIGTERM)
    assert sim.post(CHAT, BODY | {"max_tokens": 1})[0] == 200
    assert sim.process.poll() is None
    sim.call("PUT", "/sim/faults", {"faults": []})
    sim.process.send_signal(signal.SIGTERM)
    assert sim.process.wait(PATIENCE) == 0
