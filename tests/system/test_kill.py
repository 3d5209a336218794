"""kill -9 of each process in turn, while clients keep asking."""

from __future__ import annotations

import os
import signal
import threading
import time

import openai
import psutil
import pytest

from tests.fakes.local_cluster import eventually
from tests.fakes.request_stream import RequestStream
from tests.system.models import simulated

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]


def started(cluster, replicas=2, nodes=("n1",), workers=1, **profile):
    """A cluster with one simulated model that answers."""
    cluster.write_cluster([simulated("greek", replicas, profile=profile)])
    cluster.start({node: {} for node in nodes}, workers=workers)
    cluster.ready("greek", replicas)
    cluster.served("greek")
    return cluster


def test_orchestrator(cluster):
    started(cluster)
    engines = set(cluster.engines())
    with RequestStream(cluster.router_port, cluster.key, "greek") as stream:
        time.sleep(1)
        cluster.parts["orchestrator"].kill()
        time.sleep(3)
        cluster.start_orchestrator()
        adopted = eventually(
            "the successor knows both replicas as ready",
            lambda: (
                len(r := cluster.items("replicas")) == 2
                and all(x["state"] == "ready" for x in r)
                and r
            ),
        )
        time.sleep(2)
    assert set(cluster.engines()) == engines, "no engine was started or stopped"
    assert len(adopted) == 2
    assert stream.counts().keys() == {"ok"}, stream.counts()
    assert stream.counts()["ok"] > 20


def test_agent(cluster):
    started(cluster)
    engines = set(cluster.engines())
    with RequestStream(cluster.router_port, cluster.key, "greek") as stream:
        time.sleep(1)
        cluster.parts["n1"].kill()
        time.sleep(2)
        assert set(cluster.engines()) == engines, "engines outlive their agent"
        cluster.start_agent("n1")
        time.sleep(6)
        assert len(cluster.ready("greek", 2)) == 2
    assert set(cluster.engines()) == engines, "adopted with the same pid"
    assert stream.counts().keys() == {"ok"}, stream.counts()


def test_engine(cluster):
    started(cluster, replicas=2)
    before = set(cluster.engines())
    victim = min(before)
    with RequestStream(cluster.router_port, cluster.key, "greek", clients=4) as stream:
        time.sleep(1)
        os.kill(victim, signal.SIGKILL)
        eventually(
            "it is rebuilt",
            lambda: len(cluster.engines()) == 2 and victim not in cluster.engines(),
        )
        cluster.ready("greek", 2)
        healed = time.monotonic()
        time.sleep(2)
    seen = stream.counts()
    assert set(seen) <= {"ok", "502+retry", "503+retry"}, seen
    # Only those that the dead engine was answering can have failed.
    assert seen["ok"] > 20
    assert sum(seen.values()) - seen["ok"] <= 4, seen
    assert stream.counts(healed).keys() == {"ok"}


def test_the_only_engine(cluster):
    started(cluster, replicas=1)
    (victim,) = cluster.engines()
    with RequestStream(cluster.router_port, cluster.key, "greek") as stream:
        time.sleep(0.5)
        os.kill(victim, signal.SIGKILL)
        eventually("it is rebuilt", lambda: cluster.engines() and victim not in cluster.engines())
        cluster.ready("greek", 1)
        healed = time.monotonic()
        time.sleep(2)
    seen = stream.counts()
    assert set(seen) <= {"ok", "502+retry", "503+retry"}, seen
    assert stream.counts(healed + 1)["ok"] > 0


def workers_of(part):
    """The router's worker processes: those of its children that accept connections."""
    found = []
    for child in psutil.Process(part.pid).children(recursive=True):
        words = " ".join(child.cmdline())
        if "router.worker_process" in words:
            found.append(child)
    return found


def test_router_worker(cluster):
    started(cluster, workers=2)
    part = cluster.parts["router"]
    client = openai.OpenAI(
        base_url=f"http://127.0.0.1:{cluster.router_port}/v1",
        api_key=cluster.key,
        max_retries=0,
        timeout=60,
    )
    ends = []

    def long_stream():
        try:
            finished = False
            for event in client.chat.completions.create(
                model="greek",
                messages=[{"role": "user", "content": "go on"}],
                max_tokens=300,
                stream=True,
            ):
                finished = finished or bool(event.choices and event.choices[0].finish_reason)
            ends.append("whole" if finished else "cut without a word")
        except openai.APIError:
            ends.append("broken")

    threads = [threading.Thread(target=long_stream) for _ in range(12)]
    for thread in threads:
        thread.start()
    time.sleep(1.5)
    workers = [w for w in workers_of(part) if connections_of(w, cluster.router_port)]
    assert workers, "a worker holds the streams"
    victim = workers[0]
    held = connections_of(victim, cluster.router_port)
    victim.kill()
    for thread in threads:
        thread.join(60)
    client.close()
    assert "cut without a word" not in ends, ends
    assert ends.count("broken") == held, (ends, held)
    assert ends.count("whole") == 12 - held
    # The killed worker is followed by another, and everything goes on.
    eventually("a new worker answers", lambda: len(workers_of(part)) >= 2)
    with RequestStream(cluster.router_port, cluster.key, "greek") as stream:
        time.sleep(1)
    assert stream.counts().keys() == {"ok"}, stream.counts()


def connections_of(process, port):
    """Client connections that a process holds on the router's port."""
    try:
        return sum(
            1
            for c in process.net_connections("tcp")
            if c.status == psutil.CONN_ESTABLISHED and c.laddr.port == port
        )
    except psutil.Error:
        return 0


def test_redis(cluster):
    started(cluster)
    engines = set(cluster.engines())
    with RequestStream(cluster.router_port, cluster.key, "greek") as stream:
        time.sleep(1)
        cluster.redis.kill()
        time.sleep(10)
        during = stream.counts()
        assert during.keys() == {"ok"}, during
        cluster.redis.start()
        back = time.monotonic()
        eventually(
            "a leader is there again and knows both replicas",
            lambda: (
                len(r := cluster.items("replicas")) == 2
                and all(x["state"] == "ready" for x in r)
                and cluster.admin("GET", "/api/status")[0] == 200
            ),
            40,
        )
        time.sleep(max(0.0, 8 - (time.monotonic() - back)))
    assert stream.counts().keys() == {"ok"}, stream.counts()
    assert set(cluster.engines()) == engines, "no engine was stopped or started"
