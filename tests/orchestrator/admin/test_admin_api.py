from __future__ import annotations

import hashlib
from pathlib import Path

import aiohttp
import pytest

from orchestrator.admin.reading_routes import concerns
from orchestrator.store import EventRow
from orchestrator.wire.reports import Weights
from orchestrator.wire.snapshots import read_access, read_catalog, read_endpoints
from tests.fakes.local_orchestrator import (
    LocalOrchestrator,
    running_agent,
    running_orchestrator,
    simulated,
    until,
)
from tests.fakes.redis_server import RedisServer


async def test_a_declared_model_becomes_ready_on_a_node(
    orchestrator: LocalOrchestrator, redis_server: RedisServer
) -> None:
    async with running_agent(redis_server):
        model = await orchestrator.model_is("greek", "ready")
        assert (model["ready"], model["wanted"], model["simulated"]) == (1, 1, True)
        (replica,) = await orchestrator.items("replicas")
        assert (replica["model"], replica["state"], replica["nodes"]) == ("greek", "ready", ["n1"])
        (node,) = await orchestrator.items("nodes")
        assert (node["state"], node["cpus"], node["replicas"]) == ("ready", 8, 1)
        raw = await orchestrator.instance.store.read_snapshot("endpoints")
        assert raw is not None
        (endpoint,) = read_endpoints(raw).endpoints
        assert (endpoint.model, endpoint.state) == ("greek", "ready")
        events = await orchestrator.items("events")
        assert any(
            "greek" in event["subject"] or replica["id"] in event["subject"] for event in events
        )


async def test_a_model_is_added_stopped_started_and_removed(
    orchestrator: LocalOrchestrator, redis_server: RedisServer
) -> None:
    async with running_agent(redis_server):
        await orchestrator.model_is("greek", "ready")
        body = {"definition": simulated("added")}
        status, answer = await orchestrator.call("POST", "/api/models", body)
        assert (status, answer["name"], answer["replaced"]) == (201, "added", False)
        assert (await orchestrator.call("POST", "/api/models", body))[0] == 422
        status, answer = await orchestrator.call("POST", "/api/models", {**body, "replace": True})
        assert (status, answer["replaced"]) == (201, True)
        await orchestrator.model_is("added", "ready")
        raw = await orchestrator.instance.store.read_snapshot("catalog")
        assert raw is not None
        assert sorted(model.name for model in read_catalog(raw).models) == ["added", "greek"]

        assert (await orchestrator.call("POST", "/api/models/added/stop"))[0] == 200
        await orchestrator.model_is("added", "off")
        assert (await orchestrator.call("POST", "/api/models/added/start"))[0] == 200
        await orchestrator.model_is("added", "ready")

        assert (await orchestrator.call("DELETE", "/api/models/added"))[0] == 200
        raw = await orchestrator.instance.store.read_snapshot("catalog")
        assert raw is not None
        assert [model.name for model in read_catalog(raw).models] == ["greek"]

        async def gone() -> bool:
            left = await orchestrator.items("replicas")
            shown = [model["name"] for model in await orchestrator.items("models")]
            return all(one["model"] != "added" for one in left) and shown == ["greek"]

        await until("it and its replica are gone", gone)


async def test_refusals_name_what_why_and_what_to_do(orchestrator: LocalOrchestrator) -> None:
    profile = {"engine": "sim", "min_memory_gb": 1, "env": {"LD_PRELOAD": "/tmp/x"}}
    bad = simulated("bad", profiles=[profile])
    status, answer = await orchestrator.call("POST", "/api/models", {"definition": bad})
    assert status == 422
    assert "profiles[0].env" in answer["error"]["place"]
    assert "LD_PRELOAD" in answer["error"]["reason"]

    status, answer = await orchestrator.call("DELETE", "/api/models/greek")
    assert status == 409
    assert "cluster.yaml" in answer["error"]["reason"]

    status, answer = await orchestrator.call("DELETE", "/api/models/grek")
    assert status == 404
    assert "did you mean greek?" in answer["error"]["message"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/models/none",
        "/api/nodes/none",
        "/api/replicas/none",
        "/api/explain/none",
        "/api/none",
    ],
)
async def test_what_is_not_there_is_404(orchestrator: LocalOrchestrator, path: str) -> None:
    status, answer = await orchestrator.call("GET", path)
    assert status == 404
    assert answer["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/models", {}),
        ("/api/models", {"definition": []}),
        ("/api/models", {"definition": {}, "force": True}),
        ("/api/keys", {}),
        ("/api/keys", {"name": "a", "expires": "soon"}),
        ("/api/keys", []),
        ("/api/reload", {"now": True}),
    ],
)
async def test_a_body_that_does_not_fit_is_refused(
    orchestrator: LocalOrchestrator, path: str, body: object
) -> None:
    status, answer = await orchestrator.call("POST", path, body)
    assert status == 422
    assert answer["error"]["reason"]


@pytest.mark.parametrize("limit", ["0", "-1", "x", "100000"])
async def test_a_limit_that_is_none_is_refused(orchestrator: LocalOrchestrator, limit: str) -> None:
    assert (await orchestrator.call("GET", f"/api/events?limit={limit}"))[0] == 422


async def test_a_key_is_shown_once_published_by_its_digest_and_revoked(
    orchestrator: LocalOrchestrator, redis_server: RedisServer
) -> None:
    body = {"name": "alice", "models": ["greek"], "owner": "acme", "expires": "30d"}
    status, made = await orchestrator.call("POST", "/api/keys", body)
    assert status == 201
    digest = hashlib.sha256(made["key"].encode()).hexdigest()

    (item,) = await orchestrator.items("keys")
    assert (item["name"], item["models"], item["owner"]) == ("alice", ["greek"], "acme")
    assert made["key"].startswith(item["prefix"])
    assert made["key"] not in str(item)

    store = orchestrator.instance.store
    raw = await store.read_snapshot("access")
    assert raw is not None
    entry = read_access(raw).keys[digest]
    assert (entry.name, entry.models, entry.scope) == ("alice", ["greek"], "acme")
    with redis_server.client() as client:
        assert list(client.hgetall(store.keys.doc("keys"))) == [digest.encode()]
        assert int(client.get(store.keys.doc_version)) >= 1

    assert (await orchestrator.call("POST", "/api/keys", {"name": "alice"}))[0] == 409
    assert (await orchestrator.call("DELETE", "/api/keys/alcie"))[0] == 404
    assert (await orchestrator.call("DELETE", "/api/keys/alice"))[0] == 200
    raw = await store.read_snapshot("access")
    assert raw is not None
    assert read_access(raw).keys == {}


async def test_a_key_for_a_name_that_does_not_exist_is_refused(
    orchestrator: LocalOrchestrator,
) -> None:
    body = {"name": "a", "models": ["geek"]}
    status, answer = await orchestrator.call("POST", "/api/keys", body)
    assert status == 404
    assert "greek" in answer["error"]["message"]


async def test_keys_of_the_file_are_in_force_and_not_revoked_here(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    digest = hashlib.sha256(b"secret").hexdigest()
    key = {"name": "declared", "sha256": digest, "operator": True}
    async with running_orchestrator(
        redis_server, tmp_path / "one", simulated("greek"), keys=[key]
    ) as orchestrator:
        await orchestrator.leads()
        (item,) = await orchestrator.items("keys")
        assert (item["name"], item["origin"], item["operator"]) == ("declared", "declared", True)
        raw = await orchestrator.instance.store.read_snapshot("access")
        assert raw is not None
        assert read_access(raw).keys[digest].operator
        assert (await orchestrator.call("DELETE", "/api/keys/declared"))[0] == 409


async def test_a_replica_is_restarted_as_a_new_one(
    orchestrator: LocalOrchestrator, redis_server: RedisServer
) -> None:
    async with running_agent(redis_server) as agent:
        await orchestrator.model_is("greek", "ready")
        (old,) = await orchestrator.items("replicas")
        path = f"/api/replicas/{old['id'][:-1]}/restart"
        assert (await orchestrator.call("POST", path))[0] == 200

        async def replaced() -> bool:
            found = await orchestrator.items("replicas")
            return [one["state"] for one in found] == ["ready"] and found[0]["id"] != old["id"]

        await until("a new one is ready", replaced)
        assert agent.history[old["generation"]][-1] == "ended"
        assert (await orchestrator.call("POST", "/api/replicas/zzz/restart"))[0] == 404


async def test_a_node_is_drained_and_used_again(
    orchestrator: LocalOrchestrator, redis_server: RedisServer
) -> None:
    async with running_agent(redis_server, "n1"):
        await orchestrator.model_is("greek", "ready")
        assert (await orchestrator.call("POST", "/api/nodes/n1/drain"))[0] == 200
        with redis_server.client() as client:
            assert client.hexists(orchestrator.instance.store.keys.doc("nodes"), "n1")
        async with running_agent(redis_server, "n2"):

            async def moved() -> bool:
                found = await orchestrator.items("replicas")
                return [(one["nodes"], one["state"]) for one in found] == [(["n2"], "ready")]

            await until("its replica is on the other node", moved)
        assert (await orchestrator.call("POST", "/api/nodes/n1/undrain"))[0] == 200
        _, node = await orchestrator.call("GET", "/api/nodes/n1")
        assert not node["drained"]
        assert (await orchestrator.call("POST", "/api/nodes/n3/drain"))[0] == 404


async def test_explain_names_each_node_and_what_it_lacks(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    big = simulated("big", profiles=[{"engine": "sim", "min_memory_gb": 500, "slots": 1}])
    async with (
        running_orchestrator(redis_server, tmp_path / "one", big) as orchestrator,
        running_agent(redis_server),
    ):
        await orchestrator.leads()

        async def explained() -> list[dict[str, str]] | None:
            _, found = await orchestrator.call("GET", "/api/explain/big")
            rows = found.get("items", []) if found["state"] == "pending" else []
            # Until the node is heard, that it is not yet ready is a row of its own.
            return rows if len(rows) == 1 else None

        (row,) = await until("it is explained", explained)
        assert row["node"] == "n1"
        assert "500" in row["needs"]


async def test_the_source_of_a_new_model_is_looked_for(
    orchestrator: LocalOrchestrator, redis_server: RedisServer, tmp_path: Path
) -> None:
    def definition(path: Path) -> dict[str, object]:
        profile = {"engine": "llama.cpp", "source": f"file:{path}", "min_memory_gb": 1, "slots": 1}
        return {"definition": {**simulated("real"), "profiles": [profile]}}

    there = tmp_path / "model.gguf"
    there.write_bytes(b"12345")
    async with running_agent(redis_server) as agent:
        agent.weights = [Weights("hf:a/b", True)]
        await orchestrator.model_is("greek", "ready")
        status, answer = await orchestrator.call(
            "POST", "/api/models", definition(tmp_path / "none.gguf")
        )
        assert status == 409
        assert "none.gguf" in answer["error"]["reason"]
        status, answer = await orchestrator.call("POST", "/api/models", definition(there))
        assert status == 201
        assert answer["sources"][0]["verdict"] == "found"


async def test_env_values_are_hidden(redis_server: RedisServer, tmp_path: Path) -> None:
    profile = {"engine": "sim", "min_memory_gb": 0.1, "slots": 1, "env": {"TOKEN": "secret"}}
    async with running_orchestrator(
        redis_server, tmp_path / "one", simulated("greek", profiles=[profile])
    ) as orchestrator:
        await orchestrator.leads()
        _, model = await orchestrator.call("GET", "/api/models/greek")
        assert model["definition"]["profiles"][0]["env"] == {"TOKEN": "***"}


async def test_the_figures_for_prometheus(
    orchestrator: LocalOrchestrator, redis_server: RedisServer
) -> None:
    async with running_agent(redis_server):
        await orchestrator.model_is("greek", "ready")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{orchestrator.url}/metrics") as answer:
                text = await answer.text()
            async with session.get(f"{orchestrator.url}/debug/stacks") as answer:
                stacks = await answer.text()
    assert "llmgw_leader 1.0" in text
    assert 'llmgw_nodes{state="ready"} 1.0' in text
    assert 'llmgw_replicas{model="greek",state="ready"} 1.0' in text
    assert "llmgw_pass_age_seconds" in text
    assert "Leading._loop" in stacks or "_loop" in stacks


@pytest.mark.parametrize(
    ("subject", "name", "expected"),
    [
        ("node n1", "n1", True),
        ("node n10", "n1", False),
        ("greek/1h8", "greek", True),
        ("greek/1h8", "1h8", True),
        ("model org/m", "org/m", True),
        ("catalog", "n1", False),
    ],
)
def test_which_events_are_about_a_thing(subject: str, name: str, expected: bool) -> None:
    assert concerns(EventRow("1-0", {"subject": subject}), name) is expected


async def test_events_of_one_subject_and_after_an_id(orchestrator: LocalOrchestrator) -> None:
    for name in ("a", "b"):
        assert (await orchestrator.call("POST", "/api/keys", {"name": name}))[0] == 201
    (event,) = await orchestrator.items("events?subject=b")
    assert (event["subject"], event["what"]) == ("key b", "created")
    assert event["at"].endswith("Z")
    assert await orchestrator.items(f"events?after={event['id']}&limit=5") == []


async def test_different_files_of_live_orchestrators_are_shown(
    orchestrator: LocalOrchestrator, redis_server: RedisServer, tmp_path: Path
) -> None:
    async with running_orchestrator(
        redis_server, tmp_path / "two", simulated("other"), name="two"
    ) as two:

        async def drift() -> bool:
            _, status = await two.call("GET", "/api/status")
            return any(problem["what"] == "differs" for problem in status["problems"])

        await until("the drift is shown", drift)
