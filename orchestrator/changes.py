"""What an operator can ask a leader to change, as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class AddModel(NamedTuple):
    """Store a model. ``replace``: also where one of that name is stored."""

    definition: Mapping[str, Any]
    replace: bool = False


class RemoveModel(NamedTuple):
    """Take a stored model out of the catalog."""

    name: str


class StopModel(NamedTuple):
    """Stop every replica of a model until it is started again, or start it."""

    name: str
    stopped: bool


class CreateKey(NamedTuple):
    """Make an API key. ``models`` None: every name; ``expires`` in seconds from now, None: never."""

    name: str
    models: list[str] | None = None
    owner: str | None = None
    expires: float | None = None
    operator: bool = False


class RevokeKey(NamedTuple):
    """Take a stored key away, by its name or the first letters of the key."""

    key: str


class RestartReplica(NamedTuple):
    """Put a successor in a replica's place. Its id, or the beginning of it."""

    replica: str


class DrainNode(NamedTuple):
    """Set or take away a node's drain flag."""

    node: str
    drained: bool


class Reload(NamedTuple):
    """Read cluster.yaml again."""


Change = (
    AddModel | RemoveModel | StopModel | CreateKey | RevokeKey | RestartReplica | DrainNode | Reload
)
