from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.source_check import check_source, check_sources
from orchestrator.wire.profile import Profile
from orchestrator.wire.reports import Applied, Full, Inventory, Weights


def full(node: str, address: str, *weights: Weights) -> Full:
    return Full(node, "s", "id", Applied(), Inventory(address), [], "0", weights=list(weights))


def test_a_node_that_has_it_is_a_witness() -> None:
    seen = [full("n1", "10.0.0.1", Weights("hf:a/b", True, size=5))]
    found = check_source("hf:a/b", seen)
    assert (found.verdict, found.size) == ("found", 5)
    assert "n1" in found.text


def test_an_incomplete_copy_is_no_witness() -> None:
    seen = [full("n1", "10.0.0.1", Weights("hf:a/b", False))]
    assert check_source("hf:a/b", seen).verdict == "unknown"


@pytest.mark.parametrize(("there", "verdict"), [(True, "found"), (False, "missing")])
def test_a_path_is_looked_for_where_every_node_is_on_this_machine(
    tmp_path: Path, there: bool, verdict: str
) -> None:
    path = tmp_path / "model.gguf"
    if there:
        path.write_bytes(b"12345")
    found = check_source(f"file:{path}", [full("n1", "127.0.0.1")])
    assert found.verdict == verdict
    assert found.size == (5 if there else None)


def test_a_path_on_other_machines_is_unknown_here(tmp_path: Path) -> None:
    source = f"file:{tmp_path / 'none'}"
    assert check_source(source, [full("n1", "10.0.0.1")]).verdict == "unknown"
    assert check_source(source, [full("n1", "127.0.0.1"), full("n2", "10.0.0.1")]).verdict == (
        "unknown"
    )
    assert check_source(source, []).verdict == "unknown"


def test_each_source_is_checked_once_and_sim_has_none() -> None:
    profiles = [Profile("vllm", "hf:a/b"), Profile("sglang", "hf:a/b"), Profile("sim")]
    assert [found.source for found in check_sources(profiles, [])] == ["hf:a/b"]
