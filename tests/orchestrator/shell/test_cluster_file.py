from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.cluster_file import EMPTY, FileOnDisk, parse_cluster_file
from orchestrator.errors import CatalogRefused

DIGEST = "ab" * 32


def test_the_parts_of_a_file() -> None:
    file = parse_cluster_file(
        f"""
models: [{{name: a}}]
keys: [{{name: k, sha256: {DIGEST.upper()}, models: [a], operator: true}}]
engine_metrics: {{sim: {{running: x}}}}
""",
        "cluster.yaml",
    )
    assert file.models == [{"name": "a"}]
    assert (file.keys[0].name, file.keys[0].sha256, file.keys[0].operator) == ("k", DIGEST, True)
    assert file.engine_metrics == {"sim": {"running": "x"}}


def test_a_file_may_declare_nothing() -> None:
    assert parse_cluster_file("models: []", "cluster.yaml").models == []
    assert parse_cluster_file("engine_metrics: {}", "cluster.yaml").models == []


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("models: [", "cluster.yaml, line 1", ""),
        ("models: []\nmodels: []", "cluster.yaml, line 2", "'models' is written twice"),
        ("- a", "cluster.yaml", "mapping"),
        ("modells: []", "modells", "does not know"),
        ("models: {a: 1}", "models", "list of mappings"),
        ("models: [a]", "models", "list of mappings"),
        ("keys: {a: 1}", "keys", "list"),
        ("keys: [{name: a}]", "keys[0]", "sha256"),
        ("keys: [{name: a, sha256: zz}]", "keys[0].sha256", "64 hex digits"),
        (
            f"keys: [{{name: a, sha256: {DIGEST}}}, {{name: a, sha256: {DIGEST}}}]",
            "keys",
            "one name",
        ),
        ("engine_metrics: [a]", "engine_metrics", "mapping"),
    ],
)
def test_what_is_refused_names_the_place(text: str, place: str, reason: str) -> None:
    with pytest.raises(CatalogRefused) as refused:
        parse_cluster_file(text, "cluster.yaml")
    assert refused.value.place.startswith(place)
    assert reason in refused.value.reason
    assert refused.value.remedy


def test_a_changed_file_is_noticed_once_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("models: []")
    disk = FileOnDisk(path)
    disk.read()
    assert not disk.changed()
    side = tmp_path / "side"
    side.write_text("models: [{name: a}]")
    side.replace(path)
    assert not disk.changed(), "it may still be growing"
    assert disk.changed()
    assert disk.read().models == [{"name": "a"}]
    assert not disk.changed()
    path.unlink()
    assert not disk.changed()


def test_the_same_size_and_another_time_is_a_change(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("models: []")
    disk = FileOnDisk(path)
    disk.read()
    os.utime(path, ns=(1, 1))
    disk.changed()
    assert disk.changed()


def test_no_file_is_nothing_declared_and_a_missing_one_is_refused(tmp_path: Path) -> None:
    assert FileOnDisk(None).read() == EMPTY
    assert not FileOnDisk(None).changed()
    with pytest.raises(CatalogRefused, match="cannot be read"):
        FileOnDisk(tmp_path / "none.yaml").read()
