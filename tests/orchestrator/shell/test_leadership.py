"""Whole instances over a real Redis: who leads, what survives a change of leader, what a lost store does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from orchestrator.backup import read_backup
from orchestrator.store import Taken
from orchestrator.up.local_api import call
from orchestrator.wire.codec import encode
from orchestrator.wire.feed import Wanted
from orchestrator.wire.presence import Presence, Version
from orchestrator.wire.reports import Applied, Beat
from tests.fakes.local_orchestrator import (
    running_agent,
    running_orchestrator,
    simulated,
    until,
)
from tests.fakes.redis_server import RedisServer


async def test_a_standby_answers_reads_naming_the_leader_and_refuses_changes(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    async with (
        running_orchestrator(redis_server, tmp_path / "one", simulated("greek")) as one,
        running_agent(redis_server),
    ):
        await one.model_is("greek", "ready")
        async with running_orchestrator(
            redis_server, tmp_path / "two", simulated("greek"), name="two"
        ) as two:

            async def sees() -> bool:
                found = await two.items("replicas")
                return [replica["state"] for replica in found] == ["ready"]

            await until("the standby sees the replica", sees)
            _, found = await two.call("GET", "/api/models")
            assert found["leader"] == "one"
            assert found["as_of"]
            _, status = await two.call("GET", "/api/status")
            assert (status["role"], status["leader"]["instance"]) == ("standby", "one")
            assert status["nodes"] == {"known": 1}
            (node,) = await two.items("nodes")
            assert "state" not in node, "a standby has not heard the node"
            code, answer = await two.call("POST", "/api/keys", {"name": "a"})
            assert (code, answer["error"]["code"]) == (503, "not_leader")
            assert answer["error"]["leader"] == "one"


async def test_a_clean_end_hands_over_at_once_and_nothing_is_stopped(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    greek = simulated("greek")
    async with running_agent(redis_server) as agent, contextlib.AsyncExitStack() as later:
        async with running_orchestrator(redis_server, tmp_path / "one", greek, name="one") as one:
            await one.model_is("greek", "ready")
            standby = running_orchestrator(redis_server, tmp_path / "two", greek, name="two")
            two = await later.enter_async_context(standby)
            await until("it stands by", lambda: two.instance.leadership.seen_leader)
            epoch = one.instance.leadership.floor
        await two.leads()
        assert two.instance.leadership.floor > epoch
        await two.model_is("greek", "ready")
        assert list(agent.history.values()) == [["ready"]], "nothing was stopped or started"


async def test_models_and_keys_of_the_store_survive_a_restart(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    async with running_orchestrator(redis_server, tmp_path / "one") as one:
        await one.leads()
        assert (await one.call("POST", "/api/keys", {"name": "alice"}))[0] == 201
        body = {"definition": simulated("added")}
        assert (await one.call("POST", "/api/models", body))[0] == 201
        await until("a backup is there", lambda: read_backup(tmp_path / "one" / "state"))
    redis_server.restart()
    async with running_orchestrator(redis_server, tmp_path / "one") as again:
        await again.leads()
        assert [model["name"] for model in await again.items("models")] == ["added"]
        assert [key["name"] for key in await again.items("keys")] == ["alice"]


async def test_while_redis_is_away_nothing_is_changed_and_then_it_goes_on(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    async with (
        running_orchestrator(redis_server, tmp_path / "one", simulated("greek")) as one,
        running_agent(redis_server) as agent,
    ):
        await one.model_is("greek", "ready")
        before = one.instance.leadership.floor
        redis_server.kill()
        await until("it is noticed", lambda: one.instance.health.problem)
        code, answer = await one.call("POST", "/api/keys", {"name": "a"})
        assert (code, answer["error"]["code"]) == (503, "store_away")
        assert "nothing was changed" in answer["error"]["message"]
        code, status = await one.call("GET", "/api/status")
        assert (code, status["store"]["ok"]) == (200, False)
        await until("its lease has run out", lambda: one.instance.term is None)
        assert (await one.call("GET", "/api/models"))[0] == 200, "the last look is shown"
        redis_server.start()
        await one.leads()
        assert one.instance.leadership.floor > before
        await one.model_is("greek", "ready")
        assert list(agent.history.values()) == [["ready"]], "nothing was stopped or started"
        assert await one.items("keys") == []


async def test_a_frozen_store_holds_up_no_read_and_stops_nothing(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    async with (
        running_orchestrator(redis_server, tmp_path / "one", simulated("greek")) as one,
        running_agent(redis_server) as agent,
    ):
        await one.model_is("greek", "ready")
        redis_server.freeze()
        try:
            code, answer = await one.call("POST", "/api/keys", {"name": "a"})
            assert (code, answer["error"]["code"]) == (503, "store_away")
            assert "is not known" in answer["error"]["message"], "the write may still be done"
            assert (await one.call("GET", "/api/models"))[0] == 200
            await until("it is noticed", lambda: one.instance.health.problem)
        finally:
            redis_server.thaw()
        await until("it is well again", lambda: one.instance.health.problem is None)
        await one.leads()
        await one.model_is("greek", "ready")
        assert list(agent.history.values()) == [["ready"]]


async def test_a_full_store_stops_nothing_and_is_said_once(
    redis_server: RedisServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        running_orchestrator(redis_server, tmp_path / "one", simulated("greek")) as one,
        running_agent(redis_server) as agent,
    ):
        await one.model_is("greek", "ready")
        with redis_server.client() as client:
            client.config_set("maxmemory", "1")
            await until("it is noticed", lambda: one.instance.health.problem)
            code, answer = await one.call("POST", "/api/keys", {"name": "a"})
            assert (code, answer["error"]["code"]) == (503, "store_away")
            assert "maxmemory" in answer["error"]["reason"]
            await asyncio.sleep(1.0)
            client.config_set("maxmemory", "0")
        await until("it is well again", lambda: one.instance.health.problem is None)
        await one.leads()
        await one.model_is("greek", "ready")
        assert list(agent.history.values()) == [["ready"]]
        said = [record.message for record in caplog.records if "is away" in record.message]
        assert len(said) == 1


async def test_a_document_of_a_newer_version_keeps_this_one_from_leading(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    with redis_server.client() as client:
        key = "llmgw:{default}:doc:keys"
        client.hset(key, "d", '{"id": "d", "name": "n", "schema": 2}')
        async with running_orchestrator(redis_server, tmp_path / "one") as one:
            await until("it says so", lambda: one.instance.too_new)
            _, status = await one.call("GET", "/api/status")
            assert status["role"] == "standby"
            assert any(problem["what"] == "must not lead" for problem in status["problems"])
            client.hdel(key, "d")
            await one.leads()


async def test_a_store_that_is_not_there_at_the_start_is_waited_for(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    redis_server.kill()
    async with running_orchestrator(redis_server, tmp_path / "one", simulated("greek")) as one:
        code, status = await one.call("GET", "/api/status")
        assert (code, status["store"]["ok"]) in ((200, False), (200, True))
        assert (await one.call("GET", "/api/models"))[0] == 503
        redis_server.start()
        await one.leads()
        assert (await one.call("GET", "/api/models"))[0] == 200


async def test_an_emptied_store_is_led_again_with_a_higher_epoch(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    async with (
        running_orchestrator(redis_server, tmp_path / "one", simulated("greek")) as one,
        running_agent(redis_server) as agent,
    ):
        await one.model_is("greek", "ready")
        before = one.instance.leadership.floor
        redis_server.flush()
        await until("it leads anew", lambda: one.instance.leadership.floor > before)
        await one.model_is("greek", "ready")
        assert all(states[-1] != "ended" for states in agent.history.values())


@pytest.mark.parametrize("whose", ["agent", "router"])
async def test_a_higher_epoch_that_was_obeyed_is_taken_over_above(
    redis_server: RedisServer, tmp_path: Path, whose: str
) -> None:
    async with running_orchestrator(redis_server, tmp_path / "one", simulated("greek")) as one:
        await one.leads()
        store = one.instance.store
        higher = one.instance.leadership.floor + 10**6
        with redis_server.client() as client:
            if whose == "agent":
                beat = Beat("n9", "s", Applied(higher, 1))
                client.xadd(store.keys.reports, {b"m": encode(beat)})
            else:
                versions = {"catalog": Version(higher, 1)}
                presence = Presence("w", "h", versions, False, [], [], {}, [], {}, "0")
                client.set(store.keys.router("w"), encode(presence), px=60_000)
                client.zadd(store.keys.routers, {"w": (time.time() + 60) * 1000})
        await until("it leads above", lambda: one.instance.leadership.floor > higher)
        await one.leads()


async def test_a_leader_whose_lease_was_taken_steps_down_and_writes_nothing(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    async with running_orchestrator(redis_server, tmp_path / "one", simulated("greek")) as one:
        await one.leads()
        store = one.instance.store
        with redis_server.client() as client:
            client.delete(store.keys.leader)
            taken = await store.take_over("two", 60_000, one.instance.leadership.floor)
            assert isinstance(taken, Taken)
            await until("it stepped down", lambda: one.instance.leadership.seen_leader)
            assert one.instance.term is None
            assert client.get(store.keys.leader) == f"two/{taken.epoch}".encode()
            code, answer = await one.call("POST", "/api/keys", {"name": "a"})
            assert (code, answer["error"]["leader"]) == (503, "two")
            assert client.hgetall(store.keys.doc("keys")) == {}


async def test_a_request_that_a_router_holds_loads_its_model(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    lazy = simulated("lazy", scaling={"min": 0, "max": 1})
    async with (
        running_orchestrator(redis_server, tmp_path / "one", lazy) as one,
        running_agent(redis_server),
    ):
        await one.model_is("lazy", "idle")
        with redis_server.client() as client:
            feed = one.instance.store.keys.feed
            await until(
                "the leader listens", lambda: client.publish(feed, encode(Wanted("lazy", "w")))
            )
        await one.model_is("lazy", "ready")


async def test_a_changed_file_is_taken_and_a_bad_one_keeps_the_old(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    async with running_orchestrator(redis_server, tmp_path / "one", simulated("greek")) as one:
        await one.leads()

        async def names() -> list[str]:
            return [model["name"] for model in await one.items("models")]

        async def both() -> bool:
            return await names() == ["greek", "latin"]

        one.declare(simulated("greek"), simulated("latin"))
        await until("the new file is in force", both)
        one.declare(simulated("greek"), simulated("greek"))
        await until("the bad file is seen", lambda: one.instance.file_error)
        assert await names() == ["greek", "latin"]
        _, status = await one.call("GET", "/api/status")
        assert "greek" in status["cluster_file"]["error"]
        assert any(problem["subject"] == "cluster.yaml" for problem in status["problems"])
        assert (await one.call("POST", "/api/reload"))[0] == 422
        one.declare(simulated("latin"))

        async def latin() -> bool:
            return await names() == ["latin"] and one.instance.file_error is None

        await until("the good file is in force", latin)


async def test_models_declared_elsewhere_stay_until_the_file_is_read_again_here(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    async with running_orchestrator(
        redis_server, tmp_path / "one", simulated("greek"), simulated("latin"), name="one"
    ) as one:
        await one.leads()
    async with running_orchestrator(
        redis_server, tmp_path / "two", simulated("greek"), name="two"
    ) as two:
        await two.leads()
        assert [model["name"] for model in await two.items("models")] == ["greek", "latin"]
        assert (await two.call("POST", "/api/reload"))[0] == 200
        assert [model["name"] for model in await two.items("models")] == ["greek"]


class Processes:
    """Real orchestrator processes over one Redis."""

    def __init__(self, redis_server: RedisServer, folder: Path) -> None:
        self.folder = folder
        self.url = folder / "url"
        self.url.write_text(redis_server.url)
        self.url.chmod(0o600)
        self.cluster_file = folder / "cluster.yaml"
        self.cluster_file.write_bytes(msgspec.yaml.encode({"models": [simulated("greek")]}))
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *more: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [
                    *(sys.executable, "-m", "orchestrator", "--redis-file", str(self.url)),
                    *("--config", str(self.cluster_file), "--admin-bind", "127.0.0.1:0"),
                    *("--state", str(self.folder / name)),
                    *("--port-file", str(self.folder / f"{name}.json")),
                    *more,
                ],
                stdout=log,
                stderr=log,
            )
        return self.running[name]

    def status(self, name: str) -> dict[str, Any]:
        try:
            port = json.loads((self.folder / f"{name}.json").read_text())["port"]
            found: dict[str, Any] = call(port, "GET", "/api/status")[1]
        except OSError:
            return {}
        return found

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


@pytest.fixture
def processes(redis_server: RedisServer, tmp_path: Path) -> Iterator[Processes]:
    made = Processes(redis_server, tmp_path)
    yield made
    made.end()


async def test_a_killed_leader_is_replaced_by_the_standby_with_a_higher_epoch(
    processes: Processes,
) -> None:
    processes.start("one")
    await until("one leads", lambda: processes.status("one").get("role") == "leader")
    epoch = processes.status("one")["leader"]["epoch"]
    processes.start("two")
    await until("two stands by", lambda: processes.status("two").get("leader"))
    assert processes.status("two")["role"] == "standby"
    processes.running["one"].kill()
    killed = time.monotonic()
    await until("two leads", lambda: processes.status("two").get("role") == "leader", limit=30)
    assert time.monotonic() - killed < 25, "a lease of 10 s, and room for a busy machine"
    assert processes.status("two")["leader"]["epoch"] > epoch


async def test_a_frozen_leader_does_no_harm_when_it_wakes(
    processes: Processes, redis_server: RedisServer
) -> None:
    first = processes.start("one")
    await until("one leads", lambda: processes.status("one").get("role") == "leader")
    first.send_signal(signal.SIGSTOP)
    processes.start("two")
    await until("two leads", lambda: processes.status("two").get("role") == "leader", limit=30)
    epoch = processes.status("two")["leader"]["epoch"]
    first.send_signal(signal.SIGCONT)
    await until("one stands by", lambda: processes.status("one").get("role") == "standby")
    await asyncio.sleep(1)
    assert processes.status("two")["role"] == "leader"
    with redis_server.client() as client:
        assert client.get("llmgw:{default}:epoch") == str(epoch).encode()


async def test_terms_of_starting(processes: Processes) -> None:
    """A clean end gives the lease back and exits 0; SIGHUP reloads; one state folder, one process."""
    first = processes.start("one")
    await until("one leads", lambda: processes.status("one").get("role") == "leader")
    second = processes.start("twice", "--state", str(processes.folder / "one"))
    assert await asyncio.to_thread(second.wait, 30) == 2
    assert "another orchestrator runs" in (processes.folder / "twice.log").read_text()
    processes.cluster_file.write_bytes(msgspec.yaml.encode({"models": [simulated("latin")]}))
    first.send_signal(signal.SIGHUP)
    await until(
        "the file is in force",
        lambda: [one["name"] for one in processes.status("one").get("models", [])] == ["latin"],
    )
    first.terminate()
    assert first.wait(15) == 0
    processes.start("two")
    await until("two leads at once", lambda: processes.status("two").get("role") == "leader", 8)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--admin-bind", "0.0.0.0:8090"], "ssh -L"),
        (["--redis", "http://x"], "redis://"),
        (["--config", "/no/such/file.yaml"], "cannot be read"),
        (["--cluster", "a b"], "--cluster"),
    ],
)
def test_what_does_not_start_says_why(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "orchestrator", "--state", str(tmp_path)),
            *(() if "--redis" in arguments else ("--redis", "redis://127.0.0.1:1/0")),
            *(() if "--admin-bind" in arguments else ("--admin-bind", "127.0.0.1:0")),
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
