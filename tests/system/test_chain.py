"""From a client's request to a real engine and back, through every process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import msgspec
import openai
import pytest

from tests.fakes.local_cluster import LocalCluster, eventually
from tests.system.models import simulated, small_real

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    made = LocalCluster(
        tmp_path_factory.mktemp("chain"),
        [small_real(), simulated("greek", aliases=["alphabet"], description="Recites.")],
    )
    try:
        made.start()
        made.ready("smollm2-135m")
        made.ready("greek")
        made.served("smollm2-135m")
        made.served("greek")
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def client(chain):
    with openai.OpenAI(
        base_url=f"http://127.0.0.1:{chain.router_port}/v1", api_key=chain.key, max_retries=0
    ) as made:
        yield made


QUESTION: Any = [{"role": "user", "content": "What is the capital of Sweden?"}]


def test_the_real_model_answers(client):
    answer = client.chat.completions.create(
        model="smollm2-135m", messages=QUESTION, temperature=0, max_tokens=32
    )
    assert "Stockholm" in answer.choices[0].message.content
    assert answer.model == "smollm2-135m"
    assert answer.usage.completion_tokens > 0


def test_the_real_model_streams(client):
    pieces = []
    reason = None
    for event in client.chat.completions.create(
        model="smollm2-135m", messages=QUESTION, temperature=0, max_tokens=32, stream=True
    ):
        assert event.model == "smollm2-135m"
        if event.choices:
            pieces.append(event.choices[0].delta.content or "")
            reason = event.choices[0].finish_reason or reason
    assert "Stockholm" in "".join(pieces)
    assert len([piece for piece in pieces if piece]) > 1
    assert reason in ("stop", "length")


@pytest.mark.parametrize("stream", [False, True])
def test_completions(client, stream):
    answer = client.completions.create(
        model="smollm2-135m",
        prompt="The capital of Sweden is",
        temperature=0,
        max_tokens=8,
        stream=stream,
    )
    text = "".join(e.choices[0].text for e in answer) if stream else answer.choices[0].text
    assert "Stockholm" in text


def test_embeddings_of_the_simulated_engine(client):
    answer = client.embeddings.create(model="greek", input=["one", "two", "one"])
    vectors = [one.embedding for one in answer.data]
    assert len(vectors) == 3
    assert vectors[0] == vectors[2] != vectors[1]


def test_an_alias_is_answered_under_its_own_name(client):
    plain = client.chat.completions.create(model="alphabet", messages=QUESTION, max_tokens=3)
    assert plain.model == "alphabet"
    names = {
        event.model
        for event in client.chat.completions.create(
            model="alphabet", messages=QUESTION, max_tokens=3, stream=True
        )
    }
    assert names == {"alphabet"}


def test_the_list_of_models(client):
    found = {model.id: model for model in client.models.list().data}
    assert {"smollm2-135m", "greek"} <= set(found)
    assert found["greek"].owned_by == "llmgw-sim"
    assert found["smollm2-135m"].owned_by == "llmgw"
    assert found["greek"].description == "Recites."
    assert "description" not in found["smollm2-135m"].model_dump(exclude_unset=True)
    assert found["smollm2-135m"].context_length == 2048
    assert client.models.retrieve("greek").id == "greek"


def test_by_curl(chain):
    done = subprocess.run(
        [
            *("curl", "-s", "-m", "20"),
            f"http://127.0.0.1:{chain.router_port}/v1/chat/completions",
            *("-H", f"Authorization: Bearer {chain.key}", "-H", "Content-Type: application/json"),
            *("-d", json.dumps({"model": "smollm2-135m", "messages": QUESTION, "temperature": 0})),
        ],
        capture_output=True,
        check=True,
    )
    assert "Stockholm" in json.loads(done.stdout)["choices"][0]["message"]["content"]


def test_errors_are_the_clients_own_exceptions(chain, client):
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="no-such-model", messages=QUESTION)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(
            model="smollm2-135m", messages=[{"role": "user", "content": "word " * 20_000}]
        )
    assert long.value.code == "context_length_exceeded"
    stranger = openai.OpenAI(base_url=str(client.base_url), api_key="sk-wrong", max_retries=0)
    with stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()


def ctl(chain, *words: str, code: int = 0):
    """Run the real command; its output as text, or decoded where --json was asked."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "orchestrator.command_line", "ctl"),
            *("--url", f"http://127.0.0.1:{chain.admin_ports['orchestrator']}"),
            *words,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout) if "--json" in words else done.stdout


@pytest.mark.parametrize("verb", ["status", "nodes", "models", "replicas"])
def test_ctl_shows(chain, verb):
    text = ctl(chain, verb)
    assert {"status": "greek", "nodes": "n1", "models": "smollm2-135m", "replicas": "greek"}[
        verb
    ] in text
    assert ctl(chain, verb, "--json")


def test_a_model_is_added_asked_and_removed(chain, client, tmp_path):
    written = tmp_path / "added.yaml"
    written.write_bytes(msgspec.yaml.encode(simulated("added")))
    ctl(chain, "model", "add", str(written))
    eventually("the added model answers", lambda: chain.chat("added", max_tokens=1)[0] == 200)
    assert "added" in ctl(chain, "explain", "added")
    ctl(chain, "model", "add", str(written), code=1)
    ctl(chain, "model", "remove", "added", "-y")
    eventually("its name is gone", lambda: chain.chat("added", max_tokens=1)[0] == 404)
    eventually(
        "its engine is gone", lambda: all(r["model"] != "added" for r in chain.items("replicas"))
    )


def test_a_declared_model_is_not_removed_at_run_time(chain):
    done = ctl(chain, "models", "--json")
    assert any(model["name"] == "greek" for model in done["items"])
    ctl(chain, "model", "remove", "greek", "-y", code=1)


def test_a_key_reaches_what_it_is_allowed(chain):
    made = ctl(chain, "key", "create", "narrow", "--model", "greek", "--json")
    with openai.OpenAI(
        base_url=f"http://127.0.0.1:{chain.router_port}/v1", api_key=made["key"], max_retries=0
    ) as narrow:
        eventually("the key works", lambda: chain.chat("greek", max_tokens=1)[0] == 200)

        def listed():
            try:
                return [model.id for model in narrow.models.list().data]
            except openai.AuthenticationError:
                return []

        names = eventually("the router knows the key", listed)
        assert "smollm2-135m" not in names
        assert "greek" in names
        with pytest.raises(openai.NotFoundError):
            narrow.chat.completions.create(model="smollm2-135m", messages=QUESTION)
    # At rest there is only its digest.
    with chain.redis.client() as store:
        kept = b"".join(store.hgetall("llmgw:{default}:doc:keys").values())
        access = store.get("llmgw:{default}:access")
    assert made["key"].encode() not in kept + access


def test_what_cannot_be_is_refused_with_its_place(chain, tmp_path):
    bad = simulated("bad", profile={"env": {"LD_PRELOAD": "/tmp/x.so"}})
    written = tmp_path / "bad.yaml"
    written.write_bytes(msgspec.yaml.encode(bad))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "orchestrator.command_line", "ctl"),
            *("--url", f"http://127.0.0.1:{chain.admin_ports['orchestrator']}"),
            *("model", "add", str(written)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "LD_PRELOAD" in done.stderr
    assert "profiles[0].env" in done.stderr
