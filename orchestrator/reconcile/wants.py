"""``want_of``: what a node should have, a pure function of the records; and when it is said again."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import UNSET

from orchestrator.reconcile.cluster_state import ClusterState
from orchestrator.reconcile.limits import Limits
from orchestrator.reconcile.nodes import Node
from orchestrator.reconcile.records import Record, ShardRecord
from orchestrator.wire.reports import Applied
from orchestrator.wire.want import ShardWant, Want, WantChanged


def want_of(node: str, records: Iterable[Record], limits: Limits) -> list[ShardWant]:
    """Every shard of a record on this node that has not ended, oldest generation first."""
    shards = [
        _shard_want(record, shard, limits)
        for record in records
        for shard in record.shards
        if shard.node == node and not shard.gone
    ]
    return sorted(shards, key=lambda shard: (shard.generation, shard.rank))


def _shard_want(record: Record, shard: ShardRecord, limits: Limits) -> ShardWant:
    return ShardWant(
        replica=record.id,
        generation=record.generation,
        model=record.model,
        origin=record.origin,
        fingerprint=record.fingerprint,
        rank=shard.rank,
        world_size=max(record.profile.world_size, len(record.shards)),
        goal=shard.goal,
        profile=record.profile,
        served_name=record.served_name,
        slots=record.slots,
        context=record.context,
        metrics=record.metrics,
        adapters=record.adapters,
        cards=shard.cards,
        cores=shard.cores,
        memory=shard.memory,
        disk=shard.disk,
        head_address=record.head_address,
        grace=limits.grace,
        engine_key=record.engine_key,
    )


def write_wants(state: ClusterState, nodes: Iterable[str]) -> list[tuple[str, Want]]:
    """The wants whose content changed, each with its notice, and the records' first mention noted.

    Only for nodes that have sent a Full in this epoch; the first want of an epoch is written even
    when nothing is in it, so that an agent obeys this leader from then on.
    """
    written: list[tuple[str, Want]] = []
    for name in nodes:
        node = state.nodes.by_name.get(name)
        if node is None or not node.heard:
            continue
        shards = want_of(name, state.on_node(name), state.limits)
        if node.written and shards == node.wanted:
            continue
        node.revision += 1
        node.written = True
        node.wanted = shards
        written.append((name, Want(state.epoch, node.revision, shards)))
        _notice(state, node)
        entered = Applied(state.epoch, node.revision)
        for record in state.on_node(name):
            _enter(state, record, name, entered)
    return written


def _enter(state: ClusterState, record: Record, node: str, entered: Applied) -> None:
    shards = [
        msgspec.structs.replace(shard, entered=entered)
        if shard.node == node and shard.entered is UNSET
        else shard
        for shard in record.shards
    ]
    if shards != record.shards:
        state.put(msgspec.structs.replace(record, shards=shards))


def watch_obedience(state: ClusterState) -> None:
    """While an agent beats with an older ``applied`` its notice is repeated; the clock of "does not
    obey" stands while it is silent."""
    for node in state.nodes.by_name.values():
        if not node.written or node.applied >= Applied(state.epoch, node.revision):
            node.behind_since = None
        elif node.state != "ready" or node.behind_since is None:
            node.behind_since = state.now
        elif state.now - node.notified_at >= state.limits.notice_again:
            _notice(state, node)
        if node.disobeys == obeys(state, node):
            node.disobeys = not node.disobeys
            if node.disobeys:
                state.say("error", f"node {node.name}", "does not obey", "its want is not applied")
            else:
                state.say("info", f"node {node.name}", "obeys again")


def obeys(state: ClusterState, node: Node) -> bool:
    """Whether the node has applied its want, or has had less than 60 s to do so."""
    since = node.behind_since
    return since is None or state.now - since < state.limits.not_obeying


def _notice(state: ClusterState, node: Node) -> None:
    node.notified_at = state.now
    state.notices.append((node.name, WantChanged(state.epoch, node.revision)))
