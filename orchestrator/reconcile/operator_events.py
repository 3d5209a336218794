"""What people order: drains, restarts, stops, nodes that will not come back."""

from __future__ import annotations

import msgspec

from orchestrator.errors import UnknownSubject
from orchestrator.reconcile.cluster_state import ClusterState
from orchestrator.reconcile.events import (
    ModelStopped,
    NodeDrained,
    NodeForgotten,
    NodeLostByOperator,
    RestartAsked,
)
from orchestrator.reconcile.nodes import Node


def drain_node(state: ClusterState, event: NodeDrained) -> None:
    """Sets or takes away the flag."""
    if event.node not in state.nodes.by_name:
        raise UnknownSubject(f"there is no node {event.node!r}; see: ctl nodes")
    state.nodes.set_drained(event.node, event.drained, state.now)
    state.say("info", f"node {event.node}", "drained" if event.drained else "not drained")


def forget_node(state: ClusterState, event: NodeForgotten) -> None:
    """Its shards are no more; it is no longer known."""
    node = _silent_node(state, event.node, "forgotten")
    for record in state.on_node(node.name):
        shards = [
            msgspec.structs.replace(shard, gone="forgotten")
            if shard.node == node.name and not shard.gone
            else shard
            for shard in record.shards
        ]
        state.put(msgspec.structs.replace(record, shards=shards))
    state.nodes.forget(node.name)
    state.say("warning", f"node {node.name}", "forgotten", "by an operator")


def lose_node(state: ClusterState, event: NodeLostByOperator) -> None:
    """Lost at once, brake or not."""
    node = _silent_node(state, event.node, "declared lost")
    if node.state != "lost":
        node.turn("operator", state.now)
        state.say("warning", f"node {node.name}", "lost", "by an operator")


def _silent_node(state: ClusterState, name: str, what: str) -> Node:
    node = state.nodes.by_name.get(name)
    if node is None:
        raise UnknownSubject(f"there is no node {name!r}; see: ctl nodes")
    if node.state == "ready":
        raise UnknownSubject(
            f"node {name!r} is ready, and only a silent one can be {what}; "
            f"stop its agent first, or use: ctl node drain {name}"
        )
    return node


def restart_replica(state: ClusterState, event: RestartAsked) -> None:
    """Drained and stopped; its model's next pass makes the successor."""
    record = state.records.get(event.replica)
    if record is None:
        raise UnknownSubject(f"there is no replica {event.replica!r}; see: ctl replicas")
    if record.state in ("stopping", "lost"):
        raise UnknownSubject(
            f"replica {record.id} is {record.state}; only one that starts or serves is restarted"
        )
    state.move(record, "operator", "restart asked by an operator")


def stop_model(state: ClusterState, event: ModelStopped) -> None:
    """Run-time state, kept until it is taken back."""
    if event.model not in state.catalog.models:
        raise UnknownSubject(f"there is no model {event.model!r}; see: ctl models")
    known = state.model_state(event.model)
    state.put_model(event.model, msgspec.structs.replace(known, stopped=event.stopped))
    state.say("info", f"model {event.model}", "stopped" if event.stopped else "started")
