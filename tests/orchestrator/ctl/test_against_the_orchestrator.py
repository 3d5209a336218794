"""The verbs against a real admin API: what both sides believe of the JSON between them is the same."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from orchestrator.ctl.__main__ import run
from tests.fakes.local_orchestrator import running_agent, running_orchestrator, simulated
from tests.fakes.redis_server import running_redis


async def test_an_operators_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "added.yaml"
    await asyncio.to_thread(file.write_text, json.dumps(simulated("added", description="New.")))
    with running_redis(tmp_path / "redis") as redis_server:
        async with (
            running_orchestrator(redis_server, tmp_path / "one", simulated("greek")) as one,
            running_agent(redis_server),
        ):
            await one.leads()

            async def ctl(*words: str, code: int = 0) -> str:
                found = await asyncio.to_thread(run, ["--url", one.url, *words])
                shown = capsys.readouterr()
                assert found == code, shown.err
                return shown.out if code == 0 else shown.err

            await ctl("wait", "greek", "--ready", "--timeout", "20s")
            assert "greek" in await ctl("status")
            assert "nothing needs attention" in await ctl("status", "--check")
            assert "n1    ready" in await ctl("nodes")
            await ctl("model", "add", str(file))
            await ctl("wait", "added", "--ready", "--timeout", "20s")
            assert "was not added" in await ctl("model", "add", str(file), code=1)
            assert "New." in await ctl("models", "-o", "wide")
            assert "sim" in await ctl("model", "show", "added")
            (first, second) = (await ctl("replicas", "-o", "name")).split()
            assert first != second
            assert "state" in await ctl("replica", "show", first)
            assert "labels" in await ctl("node", "show", "n1")
            assert (await ctl("explain", "added")).startswith("model added is ready")
            key = (await ctl("key", "create", "alice", "--model", "greek")).strip()
            assert key.startswith("sk-llmgw-")
            assert "alice" in await ctl("keys")
            await ctl("key", "revoke", key, "-y")
            assert "alice" not in await ctl("key", "list")
            await ctl("node", "drain", "n1")
            await ctl("node", "undrain", "n1")
            await ctl("model", "remove", "added", "-y")
            assert "did you mean greek?" in await ctl("model", "stop", "geek", code=1)
            assert "key alice" in await ctl("events")
            assert "cluster.yaml" in await ctl("model", "remove", "greek", "-y", code=1)
            await ctl("reload")
