"""The life of the processes: respawn, heartbeat, drain, stop, and the end of the parent."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from router.workers import BackOff, Heartbeat
from tests.router.front.running_router import (
    APPLICATION,
    ROOT,
    answer_on,
    connect,
    eventually,
    head,
    request,
    until,
    until_closed,
)


def test_back_off_doubles_to_its_bound_and_forgets():
    back_off = BackOff()
    assert [back_off.after(0.5) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert back_off.after(61) == 1
    assert back_off.after(0) == 2


def test_heartbeat_that_stands_still():
    heartbeat = Heartbeat(0.0)
    assert not any(heartbeat.hangs(None, now) for now in range(1, 60))
    assert heartbeat.hangs(None, 61)
    heartbeat = Heartbeat(0.0)
    assert not any(heartbeat.hangs(now, now) for now in range(1, 100))
    assert not any(heartbeat.hangs(99, now) for now in range(100, 115))
    assert heartbeat.hangs(99, 116)


def test_a_parent_that_slept_does_not_blame_its_workers():
    heartbeat = Heartbeat(0.0)
    assert not heartbeat.hangs(7, 1)
    assert not heartbeat.hangs(7, 500)
    assert not heartbeat.hangs(8, 501)


def test_stop_without_work_ends_with_0_and_leaves_nobody(start_router):
    router = start_router(workers=2)
    assert len(router.family()) == 3
    assert router.stop() == 0
    assert router.family() == []


def test_drain_with_an_open_stream(start_router):
    router = start_router("--grace", "60", "--stop-limit", "60")
    stream = http.client.HTTPConnection("127.0.0.1", router.port, timeout=20)
    stream.request("GET", "/stream")
    answer = stream.getresponse()
    assert answer.read(8) == b"one two "
    router.process.send_signal(signal.SIGTERM)
    eventually(lambda: request(router.port, "/readyz")[0] == 503)
    assert router.get("/readyz") == (503, b"not ready: draining\n")
    assert router.get("/healthz")[0] == 200
    # Still served, and asked to go elsewhere.
    other = http.client.HTTPConnection("127.0.0.1", router.port, timeout=20)
    other.request("GET", "/seen")
    served = other.getresponse()
    assert (served.status, served.headers["connection"]) == (200, "close")
    assert served.read() == b'["drain"]'
    eventually(lambda: request(router.metrics_port, "/readyz")[0] == 503)
    assert router.metrics()['llmgw_router_workers{state="draining"}'] == 1
    assert router.get("/let")[0] == 200
    assert answer.read().endswith(b" three")
    stream.close()
    other.close()
    router.process.send_signal(signal.SIGINT)
    assert router.process.wait(20) == 130


def test_after_the_grace_the_listener_closes_and_what_runs_runs_out(start_router):
    router = start_router()
    with connect(router.port) as begun:
        begun.sendall(head("POST", "/echo", "content-length: 5") + b"he")
        eventually(lambda: b"bodies_held_bytes 5" in request(router.metrics_port, "/metrics")[1])
        router.process.send_signal(signal.SIGTERM)

        def refused() -> bool:
            try:
                connect(router.port).close()
            except ConnectionRefusedError:
                return True
            return False

        eventually(refused)
        assert router.process.poll() is None
        begun.sendall(b"llo")
        assert until_closed(begun).endswith(b"\r\n\r\nhello")
    assert router.process.wait(20) == 0
    assert router.family() == []


def test_a_stream_longer_than_the_limit_is_ended(start_router):
    router = start_router("--stop-limit", "0.3")
    with connect(router.port) as connection:
        connection.sendall(head("GET", "/stream"))
        until(connection, b"one")
        router.process.send_signal(signal.SIGTERM)
        assert not until_closed(connection).endswith(b"0\r\n\r\n")
    assert router.process.wait(20) == 0


def test_a_killed_worker_is_replaced_and_the_others_go_on(start_router):
    router = start_router(workers=2)
    before = router.workers()
    with connect(router.port) as kept:
        kept.sendall(head("GET", "/pid"))
        survivor = int(answer_on(kept)[1])
        (victim,) = set(before.values()) - {survivor}
        os.kill(victim, signal.SIGKILL)
        for _ in range(20):
            kept.sendall(head("GET", "/pid"))
            assert answer_on(kept) == (200, b"%d" % survivor)
        eventually(lambda: len(router.workers()) == 2)
    after = router.workers()
    assert survivor in after.values()
    assert set(after) == set(before)
    assert victim not in after.values()
    assert "ended (by SIGKILL)" in router.stderr.read_text()
    assert router.stop() == 0


def test_a_worker_that_hangs_is_killed_and_replaced(start_router):
    router = start_router(patch="HEARTBEAT_LIMIT_S = 2.5")
    hanging = router.workers()[0]
    os.kill(hanging, signal.SIGSTOP)
    eventually(lambda: router.workers().get(0, hanging) != hanging)
    assert "hangs: no heartbeat; killing it" in router.stderr.read_text()
    assert int(router.get("/pid")[1]) == router.workers()[0]


def test_metrics_are_summed_over_live_and_dead_workers(start_router):
    router = start_router(workers=2)
    counts: dict[int, int] = {}
    for _ in range(60):
        pid = int(router.get("/pid")[1])
        counts[pid] = counts.get(pid, 0) + 1
    assert len(counts) == 2
    ended = 'llmgw_router_requests_total{code="2xx",model="greek",outcome="ok",route="/fake"}'
    eventually(lambda: router.metrics().get(ended) == 60)
    os.kill(next(iter(counts)), signal.SIGKILL)
    eventually(lambda: len(router.workers()) == 2)
    metrics = router.metrics()
    assert metrics[ended] == 60
    assert metrics['llmgw_router_output_tokens_total{model="greek"}'] == 180
    bucket = 'llmgw_router_request_duration_seconds_bucket{le="%s",model="greek",route="/fake"}'
    assert metrics[bucket % "0.01"] == 0
    assert metrics[bucket % "0.02"] == metrics[bucket % "+Inf"] == 60


def test_nobody_is_left_when_the_parent_is_killed(start_router):
    router = start_router(workers=2)
    assert len(router.family()) == 3
    router.process.kill()
    router.process.wait()
    eventually(lambda: not router.family())


def test_a_router_that_cannot_start_says_why_and_ends(tmp_path):
    config = tmp_path / "broken.yaml"
    ended = _run(tmp_path, "--config", str(config), "--application", APPLICATION)
    assert ended.returncode == 1
    assert "broken.yaml: line 1: no endpoints" in ended.stderr
    assert "giving up" in ended.stderr


def test_an_address_in_use_is_refused(start_router, tmp_path):
    router = start_router()
    address = f"127.0.0.1:{router.port}"
    ended = _run(tmp_path, "--config", "x", "--bind", address, "--application", APPLICATION)
    assert ended.returncode == 1
    assert f"--bind: cannot listen on {address}: Address already in use" in ended.stderr


def test_a_run_folder_in_use_is_refused(start_router, tmp_path):
    router = start_router()
    ended = _run(tmp_path, "--config", "x", "--run", str(router.run_dir))
    assert ended.returncode == 1
    assert "another router runs with" in ended.stderr
    assert router.workers()


@pytest.mark.parametrize("page", ["/metrics", "/readyz"])
def test_the_page_is_guarded(start_router, page):
    router = start_router()
    connection = http.client.HTTPConnection("127.0.0.1", router.metrics_port, timeout=20)
    connection.request("GET", page, headers={"host": "rebound.example"})
    with connection.getresponse() as answer:
        assert answer.status == 421
    connection.close()


def _run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "router", "--bind", "127.0.0.1:0"]
    command += ["--metrics-bind", "127.0.0.1:0", "--workers", "1", *options]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=30
    )
