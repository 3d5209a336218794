"""cluster.yaml as it is found at night: half written, empty, odd, or changed in a bad moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.cluster_file import FileOnDisk, parse_cluster_file
from orchestrator.errors import CatalogRefused
from orchestrator.shell_errors import HigherEpochSeen, Stale, StoreAway
from tests.fakes.local_orchestrator import (
    LocalOrchestrator,
    running_orchestrator,
    simulated,
    until,
)
from tests.fakes.redis_server import RedisServer


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "cluster.yaml"),
        ("# models are below\n", "cluster.yaml"),
        ("models:\n", "models"),
        ("models: [{name: a, description: 2024-99-99}]", "cluster.yaml, line 1"),
        ("a: 1\nb: !!int x", "cluster.yaml, line 2"),
        ("a: !!timestamp x", "cluster.yaml, line 1"),
        ("a: " + "9" * 5000, "cluster.yaml, line 1"),
        ('models: [{name: a, description: "\\uD800"}]', "cluster.yaml, line 1"),
        ("[" * 4000, "cluster.yaml"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_place(text: str, place: str) -> None:
    with pytest.raises(CatalogRefused) as refused:
        parse_cluster_file(text, "cluster.yaml")
    assert refused.value.place.startswith(place)
    assert refused.value.remedy


def test_a_file_that_is_still_being_written_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("models: [{name: a}, {name: b}]")
    disk = FileOnDisk(path)
    disk.read()
    assert not disk.changed()
    path.write_text("models:\n- name: a\n")
    assert not disk.changed()
    path.write_text("models:\n- name: a\n- name: b\n- name: c\n")
    assert not disk.changed()
    assert disk.changed(), "the same at two looks"
    assert disk.changed(), "until it is read"
    disk.read()
    assert not disk.changed()
    disk.forget()
    assert disk.changed(), "what was read was not put in force"


async def names(one: LocalOrchestrator) -> list[str]:
    return [model["name"] for model in await one.items("models")]


@pytest.mark.parametrize("text", ["", "models:\n", "models: [{name: gr", "a: 2024-99-99"])
async def test_half_a_file_tears_nothing_down(
    redis_server: RedisServer, tmp_path: Path, text: str
) -> None:
    async with running_orchestrator(redis_server, tmp_path / "one", simulated("greek")) as one:
        await one.leads()
        one.cluster_file.write_text(text)
        await until("it is refused", lambda: one.instance.file_error)
        assert await names(one) == ["greek"]
        one.declare(simulated("greek"), simulated("latin"))

        async def both() -> bool:
            return await names(one) == ["greek", "latin"]

        await until("the repaired file is in force", both)


async def test_status_says_which_stored_model_a_file_would_harm(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    async with running_orchestrator(redis_server, tmp_path / "one", simulated("greek")) as one:
        await one.leads()
        await one.call("POST", "/api/models", {"definition": simulated("latin")})
        one.declare(simulated("greek"), simulated("latin"))
        await until("it is refused", lambda: one.instance.file_error)
        _, status = await one.call("GET", "/api/status")
        (problem,) = (p for p in status["problems"] if p["subject"] == "cluster.yaml")
        for text in (status["cluster_file"]["error"], problem["why"]):
            assert "the stored model latin would be bad beside it" in text
            assert "model remove latin" in text


@pytest.mark.parametrize(
    "error",
    [StoreAway("cut off", unsure=True), Stale(1, 2), HigherEpochSeen(3, "the store")],
    ids=lambda error: type(error).__name__,
)
async def test_a_file_whose_reload_was_cut_short_is_taken_all_the_same(
    redis_server: RedisServer, tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_orchestrator(redis_server, tmp_path / "one", simulated("greek")) as one:
        await one.leads()
        fenced = one.instance.store.fenced
        failed: list[Exception] = []

        async def once(epoch: int, commands: Any, snapshot: Any = None) -> list[Any]:
            if snapshot is not None and snapshot.name == "catalog" and not failed:
                failed.append(error)
                raise error
            return await fenced(epoch, commands, snapshot)

        monkeypatch.setattr(one.instance.store, "fenced", once)
        one.declare(simulated("greek"), simulated("latin"))

        async def both() -> bool:
            return one.instance.term is not None and await names(one) == ["greek", "latin"]

        await until("the new file is in force", both)
        assert failed


async def test_a_fault_while_the_file_is_read_ends_no_process(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_orchestrator(redis_server, tmp_path / "one", simulated("greek")) as one:
        await one.leads()
        read, reads = FileOnDisk.read, []

        def broken(disk: FileOnDisk) -> Any:
            file = read(disk)
            reads.append(file)
            if len(reads) == 1:
                raise ZeroDivisionError
            return file

        monkeypatch.setattr(FileOnDisk, "read", broken)
        one.declare(simulated("greek"), simulated("latin"))
        await until("it was read", lambda: reads)
        one.declare(simulated("latin"))

        async def latin() -> bool:
            return await names(one) == ["latin"]

        await until("the next file is in force", latin)


async def test_a_file_read_during_a_take_over_is_put_in_force(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    async with running_orchestrator(redis_server, tmp_path / "one", simulated("greek")) as one:
        await one.leads()
        # As when the standby's reload ran between the term's making and its beginning.
        one.cluster_file.write_text("models: []")
        one.instance.file = one.instance._on_disk.read()

        async def none() -> bool:
            return await names(one) == []

        await until("the term has the instance's file", none)
