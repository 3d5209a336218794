"""Nodes as their reports and our own echoes show them.

Silence is counted in echoes that the leader wrote itself and has read back since a node's last
report: a pause of ours, a store that is away or slow, and reports that lie unread count for nothing,
and no two clocks are compared (FO01, FO03). While many nodes are silent at once the fault is more
likely ours or the network's, so the brake lets nobody become Lost.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from msgspec import UNSET

from orchestrator.errors import IllegalTransition
from orchestrator.reconcile.limits import Limits
from orchestrator.wire.reports import (
    Applied,
    Beat,
    Echo,
    Full,
    Hello,
    Inventory,
    ReplicaUse,
    ShardReport,
)
from orchestrator.wire.want import ShardWant

NodeState = Literal["unheard", "ready", "unreachable", "lost"]
NodeCause = Literal["full", "silent", "long_silent", "operator"]

NODE_TABLE: dict[tuple[NodeState, NodeCause], NodeState] = {
    ("unheard", "full"): "ready",
    ("unheard", "long_silent"): "lost",
    ("unheard", "operator"): "lost",
    ("ready", "silent"): "unreachable",
    ("unreachable", "full"): "ready",
    ("unreachable", "long_silent"): "lost",
    ("unreachable", "operator"): "lost",
    ("lost", "full"): "ready",
}


class Node:
    """What the leader knows of one node in its own epoch; None is unknown."""

    __slots__ = (
        "applied",
        "asked_at",
        "behind_since",
        "card_rest",
        "clock_skew",
        "disobeys",
        "drained",
        "drained_since",
        "heard",
        "holds",
        "inventory",
        "load",
        "name",
        "node_id",
        "notified_at",
        "old_sessions",
        "protocol",
        "reports",
        "revision",
        "session",
        "shards",
        "silence",
        "since",
        "state",
        "told_at",
        "use",
        "version",
        "wanted",
        "written",
    )

    def __init__(self, name: str, now: float, revision: int = 0) -> None:
        self.name = name
        self.state: NodeState = "unheard"
        self.since = now
        self.silence = 0
        #: Whether a Full came in this epoch: before it no want is written.
        self.heard = False
        self.node_id = ""
        self.session = ""
        self.old_sessions: set[str] = set()
        #: Hellos and Fulls taken in.
        self.reports = 0
        self.version = ""
        self.protocol: int | None = None
        self.inventory: Inventory | None = None
        self.holds: frozenset[str] = frozenset()
        self.applied = Applied()
        self.use: dict[int, ReplicaUse] = {}
        self.load: float | None = None
        self.clock_skew: float | None = None
        self.shards: dict[tuple[str, int], ShardReport] = {}
        self.card_rest: dict[str, float] = {}
        self.drained = False
        self.drained_since = now
        #: Of the newest want of this epoch; ``written``: whether this node has been given one.
        self.revision = revision
        self.written = False
        self.wanted: list[ShardWant] = []
        self.behind_since: float | None = None
        self.disobeys = False
        self.notified_at = float("-inf")
        self.asked_at = float("-inf")
        self.told_at = float("-inf")

    def turn(self, cause: NodeCause, now: float) -> None:
        """One row of the node's table."""
        new = NODE_TABLE.get((self.state, cause))
        if new is None:
            raise IllegalTransition(f"node {self.name}", self.state, cause)
        self.state = new
        self.since = now

    def usable(self, uuid: str, now: float) -> bool:
        """Whether a card has been healthy long enough."""
        return now >= self.card_rest.get(uuid, float("-inf"))

    def take_hello(self, hello: Hello, now: float, rest: float) -> None:
        """A session's own words about the node."""
        self._session(hello.session)
        self.reports += 1
        self.node_id = hello.node_id
        self._bad_cards(hello.inventory, now, rest)
        self.inventory = hello.inventory
        self.version = hello.version
        self.protocol = hello.protocol

    def take_beat(self, beat: Beat, now_ms: int) -> None:
        """Signs of life and numbers."""
        self.silence = 0
        self.applied = beat.applied
        self.use = {use.generation: use for use in beat.use}
        self.load = None if beat.load is UNSET else beat.load
        self.clock_skew = None if beat.clock_ms is UNSET else (beat.clock_ms - now_ms) / 1000

    def take_full(self, full: Full, now: float, rest: float) -> None:
        """Everything that runs there. A card that vanished or erred rests ``rest`` seconds once it is
        seen healthy again."""
        self._session(full.session)
        self.reports += 1
        self.silence = 0
        self.heard = True
        self.applied = full.applied
        self.node_id = full.node_id
        self.version = full.version
        self.protocol = full.protocol
        self.holds = frozenset(seen.source for seen in full.weights if seen.complete)
        self._bad_cards(full.inventory, now, rest)
        self.inventory = full.inventory
        self.shards = {(shard.replica, shard.rank): shard for shard in full.shards}
        if self.state != "ready":
            self.turn("full", now)

    def _bad_cards(self, new: Inventory, now: float, rest: float) -> None:
        healthy = {card.uuid for card in new.cards if card.healthy}
        known = {card.uuid for card in self.inventory.cards} if self.inventory else set()
        bad = (known | {card.uuid for card in new.cards}) - healthy
        for uuid in bad:
            self.card_rest[uuid] = float("inf")
        for uuid in healthy:
            if self.card_rest.get(uuid) == float("inf"):
                self.card_rest[uuid] = now + rest

    def lacks_card(self, uuids: Collection[str]) -> str | None:
        """The first of these cards that the node does not have in health; None where it has them all,
        or nothing is known of it."""
        if self.inventory is None:
            return None
        healthy = {card.uuid for card in self.inventory.cards if card.healthy}
        return next((uuid for uuid in uuids if uuid not in healthy), None)

    def _session(self, session: str) -> None:
        if self.session and session != self.session:
            self.old_sessions.add(self.session)
            self.use = {}
        self.session = session
        self.old_sessions.discard(session)

    def speaks(self, session: str, full: bool, limits: Limits) -> bool:
        """Whether a report of that session is heard. One that was replaced is not; an unknown one is
        with a Full, once the current one has fallen silent (its Hello may have been lost)."""
        if not self.session or session == self.session:
            return True
        if session in self.old_sessions or not full:
            return False
        return self.silence >= limits.session_silent_echoes or not self.heard


class NodeBook:
    """All nodes, the echoes and the brake."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.by_name: dict[str, Node] = {}
        self.brake = False
        #: A node that was forgotten and returns goes on counting: its agent knows the old revision.
        self._old_revisions: dict[str, int] = {}
        #: Names with the drain flag, also of nodes that are not known yet.
        self._drained: set[str] = set()
        self._echo: int | None = None
        self._paced = False
        self._next_lost = float("-inf")

    def get(self, name: str, now: float) -> Node:
        """The node, made known when it was not."""
        node = self.by_name.get(name)
        if node is None:
            node = Node(name, now, self._old_revisions.get(name, 0))
            node.drained = name in self._drained
            self.by_name[name] = node
        return node

    def set_drained(self, name: str, drained: bool, now: float) -> None:
        """Sets or takes away the drain flag of a node, known or not."""
        (self._drained.add if drained else self._drained.discard)(name)
        node = self.by_name.get(name)
        if node is not None and node.drained != drained:
            node.drained = drained
            node.drained_since = now

    def forget(self, name: str) -> None:
        """No longer known."""
        self._old_revisions[name] = self.by_name.pop(name).revision

    def state_of(self, name: str) -> NodeState | None:
        """Its state, None when it is not known (forgotten)."""
        node = self.by_name.get(name)
        return None if node is None else node.state

    def ready(self, name: str) -> bool:
        """Whether its word is fresh."""
        return self.state_of(name) == "ready"

    def silent(self, node: Node) -> bool:
        """Not Lost, and silent for as long as makes a ready node Unreachable."""
        return node.state != "lost" and (
            node.state == "unreachable" or node.silence >= self._limits.unreachable_echoes
        )

    def count_echo(self, echo: Echo) -> bool:
        """Whether it counts: one that does not follow the last means a gap, and silence before a gap
        is nobody's."""
        follows = self._echo is not None and echo.number == self._echo + 1
        self._echo = echo.number
        for node in self.by_name.values():
            node.silence = node.silence + 1 if follows else 0
        return follows

    def advance(
        self, now: float, multi_node: Collection[str], witnessed: Collection[str]
    ) -> list[tuple[Node, NodeCause]]:
        """The rows that silence brings. ``multi_node`` carry a rank of a multi-node replica;
        ``witnessed`` are nodes that routers say do not serve, so the silence is theirs."""
        limits = self._limits
        turned: list[tuple[Node, NodeCause]] = []
        for node in self.by_name.values():
            if node.state == "ready" and node.silence >= limits.unreachable_echoes:
                node.turn("silent", now)
                turned.append((node, "silent"))
        counted = [
            node
            for node in self.by_name.values()
            if node.state != "lost" and not (self.silent(node) and node.name in witnessed)
        ]
        silent = sum(self.silent(node) for node in counted)
        self.brake = silent >= 2 and 2 * silent >= len(counted)
        self._paced = self._paced or self.brake
        overdue = [
            node
            for node in sorted(self.by_name.values(), key=lambda one: one.name)
            if node.state in ("unheard", "unreachable")
            and node.silence
            >= (limits.lost_echoes_multi_node if node.name in multi_node else limits.lost_echoes)
        ]
        if self.brake:
            return turned
        for node in overdue:
            if self._paced and now < self._next_lost:
                return turned
            node.turn("long_silent", now)
            turned.append((node, "long_silent"))
            self._next_lost = now + limits.lost_pace
        self._paced = self._paced and silent > 0
        return turned
