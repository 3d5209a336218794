"""An emptied store has no keys; the routers still have them, and go on until somebody makes one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orchestrator.backup import read_backup
from tests.fakes.local_orchestrator import (
    LocalOrchestrator,
    running_orchestrator,
    simulated,
    until,
)
from tests.fakes.redis_server import RedisServer


async def problems(one: LocalOrchestrator) -> list[tuple[str, str]]:
    _, status = await one.call("GET", "/api/status")
    return [(problem["subject"], problem["what"]) for problem in status["problems"]]


def kept_keys(state: Path) -> int:
    backup = read_backup(state)
    return 0 if backup is None else len(backup.keys)


async def leads_above(one: LocalOrchestrator, epoch: int) -> int:
    def higher() -> Any:
        term = one.instance.term
        return term is not None and term.epoch > epoch and term.epoch

    return int(await until("it leads anew", higher))


async def test_keys_that_the_store_lost_go_on_at_the_routers_until_one_is_made(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    folder = tmp_path / "one"
    lost = ("keys", "lost from the store")
    async with running_orchestrator(redis_server, folder, simulated("greek")) as one:
        await one.leads()
        assert (await one.call("POST", "/api/keys", {"name": "a"}))[0] == 201
        await until("the backup has it", lambda: kept_keys(folder / "state") == 1)
        redis_server.flush()
        await leads_above(one, one.instance.term.epoch if one.instance.term else 0)
        for name in "bcdef":
            await one.call("POST", "/api/models", {"definition": simulated(name)})
        await until("it was noticed", lambda: one.instance.store_is_behind)
        assert await one.instance.store.read_snapshot("catalog") is not None
        assert await one.instance.store.read_snapshot("access") is None
        assert lost in await problems(one)
        assert kept_keys(folder / "state") == 1

    async with running_orchestrator(redis_server, folder, simulated("greek")) as one:
        await one.leads()
        assert await one.instance.store.read_snapshot("access") is None, "nor by the next leader"
        assert {lost, ("store", "went back")} <= set(await problems(one))
        assert (await one.call("POST", "/api/keys", {"name": "b"}))[0] == 201
        assert await one.instance.store.read_snapshot("access") is not None
        assert lost not in await problems(one)

        async def well() -> bool:
            return ("store", "went back") not in await problems(one)

        await until("the backup follows again", well)


async def test_the_last_key_that_is_revoked_is_not_a_lost_one(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    folder = tmp_path / "one"
    async with running_orchestrator(redis_server, folder, simulated("greek")) as one:
        await one.leads()
        await one.call("POST", "/api/keys", {"name": "a"})
        await until("the backup has it", lambda: kept_keys(folder / "state") == 1)
        await one.call("DELETE", "/api/keys/a")
        await until("the backup has none", lambda: kept_keys(folder / "state") == 0)
        assert "keys" not in [subject for subject, _ in await problems(one)]
