"""What a node has, from texts of the kernel and answers of programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from agent.config import SimulatedCards, read_config
from agent.inventory.cards_nvml import Nvml, card_class
from agent.inventory.cards_simulated import simulated_cards
from agent.inventory.cpu_memory import cpu_count, meminfo, memory, quota_of
from agent.inventory.disks import disks
from agent.inventory.engines_found import (
    as_reported,
    find_engines,
    flags_in,
    llama_command,
    version_in,
)
from agent.inventory.node_inventory import NodeInventory

HELP = """
-h,    --help, --usage                  print usage and exit
-c,    --ctx-size N                     size of the prompt context (default: 0)
-fa,   --flash-attn [on|off|auto]       set Flash Attention use
--no-webui                              as in well-known-names
"""


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("max 100000", None),
        ("150000 100000\n", 1.5),
        ("400000 100000", 4.0),
        ("", None),
        ("1 0", None),
    ],
)
def test_a_quota(text: str, cpus: float | None):
    assert quota_of(text) == cpus


def test_cpus_are_those_we_may_use():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert cpu_count() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_memory_from_the_kernels_text():
    text = "MemTotal:       16 kB\nMemFree: 1 kB\nMemAvailable:    8 kB\n"
    assert meminfo(text) == (16_384, 8_192)
    assert meminfo("") == (None, None)


def test_memory_here():
    total, available = memory()
    assert total is not None
    assert available is not None
    assert 0 < available <= total


def test_disks_that_are_there(tmp_path: Path):
    [disk] = disks([str(tmp_path), str(tmp_path), str(tmp_path / "none")])
    assert disk.path == str(tmp_path)
    assert disk.total >= disk.free > 0


def test_simulated_cards_are_a_nodes_own_and_stay():
    config = SimulatedCards(8, "H100-80GB")
    first, again = simulated_cards(config, "node"), simulated_cards(config, "node")
    other = simulated_cards(config, "other")
    assert first == again
    assert len({c.uuid for c in first + other}) == 16
    assert {c.type for c in first} == {"H100-80GB"}
    assert first[0].memory == 80 * 10**9


@pytest.mark.parametrize(
    ("name", "memory_bytes", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", 80 * 2**30, "H100-80GB"),
        ("NVIDIA A100-SXM4-80GB", 80 * 2**30, "A100-SXM4-80GB"),
        ("NVIDIA A10", 24 * 2**30, "A10-24GB"),
        ("NVIDIA GeForce RTX 4090", 24 * 2**30, "GeForce-RTX-4090-24GB"),
        ("NVIDIA L4", None, "L4"),
    ],
)
def test_the_class_of_a_card(name: str, memory_bytes: int | None, expected: str):
    assert card_class(name, memory_bytes) == expected


class FakeNvml:
    """pynvml with one card of which a process of ours and a stranger use memory."""

    class NVMLError(Exception):
        pass

    class _Process:
        def __init__(self, pid: int, memory: int | None) -> None:
            self.pid, self.usedGpuMemory = pid, memory

    class _Memory:
        total, free = 80 * 2**30, 10 * 2**30

    def __init__(self, stranger: int | None = 60) -> None:
        self._stranger = stranger

    def nvmlInit(self) -> None: ...

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"999.1"

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, _: int) -> str:
        return "GPU-1"

    def nvmlDeviceGetName(self, _: int) -> bytes:
        return b"NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetMemoryInfo(self, _: int) -> _Memory:
        return self._Memory()

    def nvmlDeviceGetComputeRunningProcesses(self, _: int) -> list[_Process]:
        return [self._Process(10, 5), self._Process(4711, self._stranger)]


def test_strangers_on_a_card_are_told_from_ours(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    nvml = Nvml()
    [card] = nvml.cards({10})
    assert nvml.driver == "999.1"
    assert (card.type, card.ours, card.foreign, card.foreign_pids) == ("H100-80GB", 5, 60, [4711])


def test_use_that_the_driver_does_not_tell_is_unknown(monkeypatch: pytest.MonkeyPatch):
    from msgspec import UNSET

    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(stranger=None))
    [card] = Nvml().cards({10})
    assert card.ours is UNSET
    assert card.foreign is UNSET
    assert card.foreign_pids == [4711]


def test_no_driver_is_no_card(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert not Nvml().present
    assert Nvml().cards(()) == []


def test_flags_and_version_from_texts():
    assert {"-c", "--ctx-size", "-fa", "--flash-attn", "--no-webui"} <= flags_in(HELP)
    assert "-known-names" not in flags_in(HELP)
    assert version_in("version: 4567 (abc)\nbuilt with cc") == "4567 (abc)"
    assert version_in("nothing") is None


def program(path: Path, version: str) -> Path:
    path.write_text(
        f'#!/bin/sh\necho asked >> {path}.asked\n[ "$1" = --version ] && echo "version: {version}"\n'
        '[ "$1" = --help ] && echo "--metrics  on"\nexit 0\n'
    )
    path.chmod(0o755)
    return path


async def test_a_program_is_asked_once_until_it_changes(tmp_path: Path):
    server, cache = program(tmp_path / "llama-server", "1"), tmp_path / "cache.json"
    found = (await find_engines([str(server)], cache))["llama.cpp"]
    assert (found.version, found.flags) == ("1", frozenset({"--metrics"}))
    assert (await find_engines([str(server)], cache))["llama.cpp"] == found
    assert (tmp_path / "llama-server.asked").read_text().count("asked") == 2
    program(server, "1.2")
    assert (await find_engines([str(server)], cache))["llama.cpp"].version == "1.2"


def test_a_configured_command_that_is_not_there_is_absent(tmp_path: Path):
    assert llama_command([str(tmp_path / "none")]) is None


async def test_everything_together(tmp_path: Path):
    config = read_config(
        f"simulated: {{gpus: 2, class: H100-80GB}}\nlabels: {{rack: r1}}\ncache: {tmp_path}\n"
    )
    commands = await find_engines([str(program(tmp_path / "llama-server", "1"))], tmp_path / "c")
    inventory = NodeInventory(config, "id", "127.0.0.1", commands).gather()
    assert inventory.simulated
    assert len(inventory.cards) == 2
    assert inventory.labels == {"rack": "r1"}
    assert [d.path for d in inventory.disks or []] == [str(tmp_path)]
    assert [e.kind for e in inventory.engines] == ["llama.cpp", "sim"]
    assert as_reported(commands) == inventory.engines


async def test_an_answer_that_cannot_be_kept_is_used_all_the_same(tmp_path: Path):
    server = program(tmp_path / "llama-server", "1")
    found = await find_engines([str(server)], tmp_path / "no-such-folder" / "cache.json")
    assert found["llama.cpp"].version == "1"


async def test_our_own_module_is_asked_wherever_the_agent_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "agent.py").write_text("print('version: of a stranger')")
    monkeypatch.chdir(tmp_path)
    ours = [sys.executable, "-m", "agent.llama_server"]
    version = (await find_engines(ours, tmp_path / "cache.json"))["llama.cpp"].version
    assert version is not None
    assert "xllamacpp" in version
