"""Ranks as processes: they meet, one is killed, the others hang or end."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Callable

import pytest

from .conftest import PATIENCE, fall_silent, read_until

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1000}


@pytest.fixture
def group(start_sim, start_process) -> Callable:
    """group(size, *flags): rank 0 with its master port chosen, and a starter of the others."""

    def form(size: int, *flags: str):
        world = ("--world-size", str(size), *flags)
        head = start_sim(*world, "--rank", "0", "--master", "127.0.0.1:0", "--decode-rate", "100")

        def start_rank(rank: int, *more: str):
            place = ("--rank", str(rank), "--master", head.said["master"])
            return start_process(*world, *place, *more)

        return head, start_rank

    return form


def test_ready_only_when_all_ranks_have_met(group):
    head, start_rank = group(3)
    status, raw = head.call("GET", "/health")
    assert status == 503
    assert json.loads(raw)["error"]["message"] == "Loading model: waiting for rank 1, 2"
    assert head.call("POST", CHAT, BODY)[0] == 503
    workers = [start_rank(2), start_rank(1)]
    for worker in workers:
        assert worker.hear()["met"] == head.said["master"]
    head.wait_ready()
    assert head.post(CHAT, BODY | {"max_tokens": 1})[0] == 200


def test_workers_may_come_first(start_sim, start_process):
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        master = f"127.0.0.1:{chosen.getsockname()[1]}"
        world = ("--world-size", "2", "--master", master)
        worker = start_process(*world, "--rank", "1")
        assert worker.process.poll() is None
    head = start_sim(*world, "--rank", "0")
    assert worker.hear() == {"met": master, "rank": 1}
    head.wait_ready()


def test_a_rank_lost_before_the_meeting_may_come_again(group):
    head, start_rank = group(3)
    first = start_rank(1)
    with head.dial():  # strangers on the HTTP port do not matter
        first.kill()
    again, other = start_rank(1), start_rank(2)
    assert again.hear()["rank"] == 1
    assert other.hear()["rank"] == 2


def test_a_killed_rank_hangs_the_engine_and_health_stays_green(group, wait_until):
    head, start_rank = group(2)
    worker = start_rank(1)
    head.wait_ready()
    with head.begin(CHAT, BODY | {"stream": True}) as dialled:
        read_until(dialled, b"alpha")
        worker.kill()
        fall_silent(dialled)
        seen = head.metrics()
        assert head.call("GET", "/health")[0] == 200
        assert seen["num_requests_running"] == 1
        assert head.metrics()["generation_tokens_total"] == seen["generation_tokens_total"]
        with head.begin(CHAT, BODY):
            wait_until(lambda: head.metrics()["num_requests_running"] == 2)
    head.process.send_signal(signal.SIGTERM)
    assert head.process.wait(PATIENCE) == 0


def test_a_killed_rank_0_leaves_the_workers_hanging(group):
    head, start_rank = group(2)
    worker = start_rank(1)
    worker.hear()
    head.kill()
    with pytest.raises(subprocess.TimeoutExpired):
        worker.process.wait(0.5)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(PATIENCE) == 0


def test_exit_on_rank_loss(group):
    head, start_rank = group(3, "--on-rank-loss", "exit")
    first, second = start_rank(1), start_rank(2)
    first.hear(), second.hear()
    first.kill()
    assert head.process.wait(PATIENCE) == 1
    assert second.process.wait(PATIENCE) == 1


def test_refused_ranks_say_why(group):
    head, start_rank = group(2)
    stranger = start_rank(1, "--served-model-name", "latin")
    _, complaint = stranger.process.communicate(timeout=PATIENCE)
    assert stranger.process.returncode == 1
    assert "rank 0 refused this rank: model 'latin', but rank 0 has 'greek'" in complaint
    good = start_rank(1)
    good.hear()
    late = start_rank(1)
    _, complaint = late.process.communicate(timeout=PATIENCE)
    assert "this group has met already" in complaint
    head.wait_ready()


def test_nonsense_on_the_master_port_changes_nothing(group):
    head, start_rank = group(2)
    host, port = head.said["master"].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert stranger.recv(100) == b""
    start_rank(1).hear()
    head.wait_ready()


def test_a_worker_that_waits_for_rank_0_ends_by_sigterm(start_process, group):
    head, start_rank = group(3)
    worker = start_rank(1)
    joined = "Loading model: waiting for rank 2"
    while json.loads(head.call("GET", "/health")[1])["error"]["message"] != joined:
        assert worker.process.poll() is None
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(PATIENCE) == 0
