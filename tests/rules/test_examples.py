"""The example files are read by the code they are written for."""

from __future__ import annotations

import msgspec

from agent.config import read_config
from orchestrator.catalog.build import build, with_added
from orchestrator.cluster_file import parse_cluster_file
from router.static_file import load_static_file
from tests.rules.source_tree import ROOT

EXAMPLES = ROOT / "examples"


def test_cluster():
    file = parse_cluster_file((EXAMPLES / "cluster.yaml").read_text(), "cluster.yaml")
    catalog = build(file.models, {})
    assert {"smollm2-135m", "coder-14b", "big-model"} == {model.name for model in catalog.entries()}
    assert not catalog.warnings
    assert catalog.models["big-model"].entry.simulated


def test_model():
    written = msgspec.yaml.decode((EXAMPLES / "model.yaml").read_bytes())
    added = with_added([], {}, written, 1)
    assert added.name == "alphabet"


def test_agent():
    config = read_config((EXAMPLES / "agent.yaml").read_bytes())
    assert config.fabric is not None
    assert config.labels == {"ram": "32g"}


def test_router():
    snapshots = load_static_file(str(EXAMPLES / "router.yaml"))
    assert [model.name for model in snapshots.catalog.models] == ["greek"]
    assert [endpoint.url for endpoint in snapshots.endpoints.endpoints] == ["http://127.0.0.1:9001"]
