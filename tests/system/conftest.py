"""Clusters of real processes."""

from __future__ import annotations

import pytest

from tests.fakes.local_cluster import LocalCluster


@pytest.fixture
def cluster(tmp_path, request):
    """An empty cluster of the test's own; the test says what to declare and start."""
    made = LocalCluster(tmp_path)
    try:
        yield made
    finally:
        made.end()
        if request.node.stash.get("failed", False):
            for part in made.parts.values():
                print(f"--- {part.name}\n{part.log.read_text()[-4000:]}")
