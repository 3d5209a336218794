"""What an adapter is given and what it gives back. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec

from agent.ports import Band
from agent.want_state import Refusal
from orchestrator.wire.reports import Fabric
from orchestrator.wire.want import ShardWant

COMPLETION_PATH = "/v1/completions"
MODELS_PATH = "/v1/models"


class EngineCommand(msgspec.Struct, frozen=True):
    """How one engine is called here. ``flags``: those its --help knows; None: could not be read."""

    argv: tuple[str, ...]
    version: str | None = None
    flags: frozenset[str] | None = None

    def knows(self, flag: str) -> bool | None:
        """Whether the engine has the flag; None is unknown."""
        return None if self.flags is None else flag in self.flags


class NodeFacts(msgspec.Struct, frozen=True):
    """What an adapter needs to know of the node. ``commands``: engine kind -> command, if found."""

    address: str
    simulated: bool
    commands: Mapping[str, EngineCommand]
    fabric: Fabric | None = None
    #: Folder that holds our own packages, for engines that are modules of ours.
    package_root: str = ""
    #: UUIDs of the cards that are here; only these may be named in a want.
    cards: frozenset[str] = frozenset()


class Paths(NamedTuple):
    """Where things lie. ``weights`` None: the engine needs none. ``adapters`` in want's order."""

    folder: str
    weights: str | None
    adapters: tuple[str, ...] = ()

    def file(self, name: str) -> str:
        """A file of the plan, in the engine's own folder."""
        return f"{self.folder}/{name}"


class Probes(NamedTuple):
    """How to ask the engine. None: this rank serves no HTTP and is up while it lives."""

    health: str
    models: str
    generate: str
    #: Where the engine lists its adapters with their numbers, if it numbers them.
    adapters: str | None = None


class MetricKeys(NamedTuple):
    """Metric names, ``|``-separated fallbacks; None: the engine has none."""

    running: str | None
    waiting: str | None
    cache_use: str | None
    prompt_tokens: str | None
    generated_tokens: str | None

    @property
    def names(self) -> frozenset[str]:
        """Every single name."""
        return frozenset(n for key in self if key for n in key.split("|"))


class LaunchPlan(NamedTuple):
    """A process to be. ``env`` is added to the base environment and wins; ``files``: name -> content."""

    argv: tuple[str, ...]
    env: dict[str, str]
    files: dict[str, str]
    probes: Probes | None
    #: Names of profile variables that were dropped, to be said.
    dropped_env: tuple[str, ...] = ()


class Adapter(Protocol):
    """One engine kind. Pure."""

    #: Whether weights must lie on the node before it starts.
    needs_weights: bool
    metrics: MetricKeys

    def refusal(self, shard: ShardWant, node: NodeFacts) -> Refusal | None:
        """Why this node will not run the shard, or None."""

    def plan(self, shard: ShardWant, node: NodeFacts, ports: Band, paths: Paths) -> LaunchPlan:
        """The process. Only for a shard that ``refusal`` lets pass."""
