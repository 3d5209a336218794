"""Want entries as tests need them."""

from __future__ import annotations

from typing import Any

from orchestrator.wire.profile import Profile
from orchestrator.wire.replica_id import replica_id
from orchestrator.wire.want import ShardWant, Want


def shard(generation: int = 7, **given: Any) -> ShardWant:
    """One shard on the sim engine; every field can be given."""
    profile = given.pop("profile", None) or Profile(engine=given.pop("engine", "sim"))
    fields: dict[str, Any] = {
        "replica": replica_id(generation),
        "generation": generation,
        "model": "greek",
        "origin": "declared",
        "fingerprint": "1:00",
        "rank": 0,
        "world_size": 1,
        "goal": "run",
        "profile": profile,
        "served_name": "greek",
        "slots": 4,
        "grace": 2.0,
    }
    return ShardWant(**{**fields, **given})


def want(revision: int, *shards: ShardWant, epoch: int = 5) -> Want:
    """A node's whole want."""
    return Want(epoch, revision, list(shards))
