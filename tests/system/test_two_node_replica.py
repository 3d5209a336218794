"""A replica over two nodes on simulated cards: one fabric, workers first, one failure is all (R193)."""

from __future__ import annotations

import os
import signal

import pytest

from tests.fakes.local_cluster import eventually
from tests.system.models import two_node

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]


def node(fabric: str) -> dict:
    """An agent's configuration: four cards that do not exist, in a fabric on loopback."""
    return {
        "simulated": {"gpus": 4, "class": "H100-80GB"},
        "fabric": {"name": fabric, "address": "127.0.0.1"},
    }


def rank_of(argv: list[str]) -> int:
    return int(argv[argv.index("--rank") + 1])


def test_tp8_over_two_nodes(cluster):
    cluster.write_cluster([two_node()])
    cluster.start({"a1": node("ib-a"), "b1": node("ib-b")})
    eventually(
        "it is said why nothing can hold it",
        lambda: any(
            m["name"] == "big-model" and m["state"] == "pending" and m.get("note")
            for m in cluster.items("models")
        ),
    )
    assert not cluster.engines(), "two fabrics of one node each are not one fabric"

    cluster.start_agent("a2", node("ib-a"))
    (replica,) = cluster.ready("big-model")
    assert sorted(replica["nodes"]) == ["a1", "a2"]
    cluster.served("big-model")
    status, answer = cluster.chat("big-model", max_tokens=4)
    assert (status, len(answer["choices"][0]["message"]["content"].split())) == (200, 4)

    engines = cluster.engines()
    ranks = {rank_of(argv): pid for pid, argv in engines.items()}
    assert sorted(ranks) == [0, 1]
    os.kill(ranks[1], signal.SIGKILL)
    eventually(
        "every rank of the failed replica is gone and a new one serves",
        lambda: not set(engines) & set(cluster.engines()) and len(cluster.engines()) == 2,
        60,
    )
    (rebuilt,) = cluster.ready("big-model")
    assert rebuilt["id"] != replica["id"]
    cluster.served("big-model")
