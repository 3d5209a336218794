"""Which row of the table holds for a record now. One finder per state; the first that applies wins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from orchestrator.reconcile.cluster_state import ClusterState, with_goal
from orchestrator.reconcile.records import Record, ReplicaState, ShardRecord
from orchestrator.reconcile.transitions import WAY_BACK, Cause

_UP = ("up", "ready")
_PREPARED = ("prepared", "up", "ready")
#: Shard states that fail a replica.
_BAD = ("hung", "stuck", "refused")


class Finding(NamedTuple):
    """A cause with the words for people, where it was, and what else changes in the record."""

    cause: Cause
    detail: str = ""
    node: str = ""
    changes: Mapping[str, Any] = MappingProxyType({})


def advance_records(state: ClusterState) -> None:
    """Every row that holds, for every record, oldest first."""
    for known in sorted(state.records.values(), key=lambda record: record.generation):
        record: Record | None = known
        while record is not None and (found := _FINDERS[record.state](state, record)):
            state.move(record, found.cause, found.detail, found.node, **found.changes)
            if found.cause == "ready":
                _note_load(state, record)
            record = state.records.get(known.id)
        if record is not None and record.state == "stopping":
            _watch_stop(state, record)


def _preparing(state: ClusterState, record: Record) -> Finding | None:
    return (
        _left_the_catalog(state, record)
        or _edited(state, record)
        or _on_drained_node(state, record)
        or _shard_failure(state, record)
        or _node_lost(state, record)
        or _absent(record, "it never reached the node")
        or _not_obeying(state, record)
        or _prepared(state, record)
        or _preparing_stalled(state, record)
    )


def _starting(state: ClusterState, record: Record) -> Finding | None:
    return (
        _left_the_catalog(state, record)
        or _on_drained_node(state, record)
        or _shard_failure(state, record)
        or _node_lost(state, record)
        or _absent(record, "it vanished while starting")
        or _workers_up(record)
        or _serves(record)
        or _starting_too_long(state, record)
    )


def _ready(state: ClusterState, record: Record) -> Finding | None:
    return (
        _left_the_catalog(state, record)
        or _shard_failure(state, record)
        or _forgotten(record, "rank_lost")
        or _absent(record, "its engine is no more, the agent says")
        or _lost_nodes(state, record)
        or _not_serving(state, record)
    )


def _draining(state: ClusterState, record: Record) -> Finding | None:
    if record.why in WAY_BACK and (left := _left_the_catalog(state, record)):
        return left
    return (
        _shard_failure(state, record)
        or _forgotten(record, "node_lost")
        or _absent(record, "its engine is no more, the agent says")
        or _node_lost(state, record)
        or _drained(state, record)
        or _drain_limit(state, record)
    )


def _stopping(state: ClusterState, record: Record) -> Finding | None:
    if all(shard.gone for shard in record.shards):
        return Finding("gone")
    return None


def _lost(state: ClusterState, record: Record) -> Finding | None:
    if left := _left_the_catalog(state, record):
        return left
    if all(shard.gone == "forgotten" for shard in record.shards):
        return Finding("forgotten", "its nodes were forgotten")
    heard = [shard for shard in record.shards if state.nodes.ready(shard.node)]
    for shard in record.shards:
        bad = not shard.gone and shard in heard and _bad_words(state, record, shard)
        if shard.gone or bad:
            words = f"rank {shard.rank} on {shard.node} is no more"
            return Finding("rank_gone", bad or words, shard.node)
    if not heard:
        state.returning_since.pop(record.id, None)
        return None
    if len(heard) == len(record.shards) and _is_up(record):
        return Finding("returned", "its nodes are back and it serves", changes={"returned": True})
    since = state.returning_since.setdefault(record.id, state.now)
    if state.now - since >= state.limits.return_ranks:
        return Finding("rank_missing", "not all of it came back within a minute")
    return None


_FINDERS: dict[ReplicaState, Callable[[ClusterState, Record], Finding | None]] = {
    "preparing": _preparing,
    "starting": _starting,
    "ready": _ready,
    "draining": _draining,
    "stopping": _stopping,
    "lost": _lost,
}


# -- the catalog


def _left_the_catalog(state: ClusterState, record: Record) -> Finding | None:
    model = state.catalog.models.get(record.model)
    if model is None:
        if record.model in state.catalog.skipped:
            return None
        return Finding("removed", "its model is no longer in the catalog")
    if model.origin != record.origin:
        return Finding("shadowed", f"the name now belongs to a {model.origin} model")
    if state.model_state(record.model).stopped:
        return Finding("off", "the model was stopped by an operator")
    if model.definition.most == 0:
        return Finding("off", "the model is switched off")
    return None


def _edited(state: ClusterState, record: Record) -> Finding | None:
    model = state.model_of(record)
    if model is None or not record.fingerprint or record.fingerprint in model.fingerprints:
        return None
    return Finding("edited", "its profile was edited before it served")


# -- shards


def _bad_words(state: ClusterState, record: Record, shard: ShardRecord) -> str:
    """Why the shard fails its replica, or an empty string."""
    where = f"rank {shard.rank} on {shard.node}" if len(record.shards) > 1 else f"on {shard.node}"
    seen = shard.seen
    if seen is not UNSET:
        words = seen.detail or seen.reason
        if shard.gone == "ended":
            return f"{where}: {words or 'the engine ended'}"
        serves = record.state in ("ready", "draining", "lost")
        if seen.state in _BAD and not (serves and seen.state == "refused"):
            return f"{where}: {seen.state}" + (f", {words}" if words else "")
        if seen.on_cards is False and shard.cards and record.profile.engine != "sim":
            return f"{where}: computing on CPU"
    node = state.nodes.by_name.get(shard.node)
    if node is not None and node.state == "ready" and not shard.gone:
        lacking = node.lacks_card(shard.cards)
        if lacking is not None:
            return f"{where}: card {lacking} lost"
    return ""


def _shard_failure(state: ClusterState, record: Record) -> Finding | None:
    for shard in record.shards:
        if shard.gone in ("absent", "forgotten"):
            continue
        words = _bad_words(state, record, shard)
        if words:
            charged = shard.seen is UNSET or shard.seen.charged
            return Finding("failed" if charged else "excused", words, shard.node)
    return None


def _absent(record: Record, words: str) -> Finding | None:
    for shard in record.shards:
        if shard.gone == "absent":
            return Finding("absent", words, shard.node)
    return None


def _forgotten(record: Record, cause: Cause) -> Finding | None:
    for shard in record.shards:
        if shard.gone == "forgotten":
            return Finding(cause, f"node {shard.node} was forgotten", shard.node)
    return None


def _is_up(record: Record) -> bool:
    """Rank 0 answers and the others are up."""
    head, *workers = record.shards
    if head.seen is UNSET or head.seen.state != "ready" or head.seen.url is UNSET:
        return False
    return all(shard.seen is not UNSET and shard.seen.state in _UP for shard in workers)


def _prepared(state: ClusterState, record: Record) -> Finding | None:
    if not all(s.seen is not UNSET and s.seen.state in _PREPARED for s in record.shards):
        return None
    if len(record.shards) == 1:
        return Finding("prepared")
    seen = [shard.seen for shard in record.shards if shard.seen is not UNSET]
    if len({one.digest for one in seen if one.digest is not UNSET}) > 1:
        return None
    if seen[0].fabric_address is UNSET:
        return None
    shards = with_goal(record, "run", range(1, len(record.shards)))
    return Finding("prepared", changes={"shards": shards, "head_address": seen[0].fabric_address})


def _workers_up(record: Record) -> Finding | None:
    head, *workers = record.shards
    if head.goal != "prepare":
        return None
    if all(shard.seen is not UNSET and shard.seen.state in _UP for shard in workers):
        return Finding("workers_up", changes={"shards": with_goal(record, "run", [0])})
    return None


def _serves(record: Record) -> Finding | None:
    return Finding("ready", "it serves") if _is_up(record) else None


# -- nodes


def _on_drained_node(state: ClusterState, record: Record) -> Finding | None:
    for node in state.nodes_of(record):
        if node is not None and node.drained:
            return Finding("node_drain", f"node {node.name} is drained", node.name)
    return None


def _node_lost(state: ClusterState, record: Record) -> Finding | None:
    for shard in record.shards:
        if shard.gone == "forgotten" or state.nodes.state_of(shard.node) in ("lost", None):
            return Finding("node_lost", f"node {shard.node} is lost", shard.node)
    return None


def _lost_nodes(state: ClusterState, record: Record) -> Finding | None:
    lost = [name for name in record.nodes if state.nodes.state_of(name) in ("lost", None)]
    if not lost:
        return None
    if len(lost) == len(record.shards):
        return Finding("all_lost", f"lost: {', '.join(sorted(set(lost)))}")
    heard = [name for name in record.nodes if state.nodes.ready(name)]
    if heard:
        return Finding("rank_lost", f"node {lost[0]} is lost, {heard[0]} is not", lost[0])
    return None


def _not_serving(state: ClusterState, record: Record) -> Finding | None:
    """Silence alone moves nothing; silence and the word of every router that used it does."""
    silent = next(
        (node for node in state.nodes_of(record) if node is not None and state.nodes.silent(node)),
        None,
    )
    if silent is None or not state.routers.known or not state.routers.witnessed_down(record):
        return None
    return Finding(
        "not_serving", f"node {silent.name} is silent and routers say it is down", silent.name
    )


def _not_obeying(state: ClusterState, record: Record) -> Finding | None:
    for shard, node in zip(record.shards, state.nodes_of(record), strict=True):
        if node is None or node.behind_since is None or node.state != "ready":
            continue
        unknown = shard.entered is UNSET or node.applied < shard.entered
        if unknown and state.now - node.behind_since >= state.limits.not_obeying:
            return Finding("not_obeying", f"node {node.name} does not obey", node.name)
    return None


# -- time


def _preparing_stalled(state: ClusterState, record: Record) -> Finding | None:
    """The clock stands while a node is silent or the leader is new."""
    token: list[object] = []
    for shard, node in zip(record.shards, state.nodes_of(record), strict=True):
        if node is None or node.state != "ready":
            state.progress.pop(record.id, None)
            return None
        report = node.shards.get((record.id, shard.rank))
        done = UNSET if report is None or report.progress is UNSET else report.progress.done
        token.append((shard.seen, done))
    last = state.progress.get(record.id)
    if last is None or last[0] != token:
        state.progress[record.id] = (token, state.now)
        return None
    if state.now - last[1] < state.limits.preparing_stall:
        return None
    minutes = state.limits.preparing_stall / 60
    return Finding("stalled", f"no progress for {minutes:.0f} min", record.head.node)


def _starting_too_long(state: ClusterState, record: Record) -> Finding | None:
    if state.age(record.since_ms) < state.limits.starting_limit:
        return None
    minutes = state.limits.starting_limit / 60
    return Finding("stalled", f"not ready {minutes:.0f} min after its launch", record.head.node)


def _drained(state: ClusterState, record: Record) -> Finding | None:
    routers = state.routers
    if not state.settled or not routers.known or record.withdrawn is UNSET:
        return None
    if not routers.applied(record.withdrawn) or routers.held(record):
        return None
    node = state.nodes.by_name.get(record.head.node)
    use = None if node is None or node.state != "ready" else node.use.get(record.generation)
    if use is not None and use.running is not UNSET and use.running > 0:
        return None
    return Finding("drained", record.detail)


def _drain_limit(state: ClusterState, record: Record) -> Finding | None:
    if record.drain_until_ms is UNSET or state.ms() < record.drain_until_ms:
        return None
    return Finding("limit", f"the drain's limit passed; {record.detail}")


def _watch_stop(state: ClusterState, record: Record) -> None:
    if record.stuck:
        return
    stuck = [
        shard.node
        for shard in record.shards
        if not shard.gone and shard.seen is not UNSET and shard.seen.state == "stuck"
    ]
    late = state.age(record.since_ms) >= state.limits.stopping_alert
    if not stuck and not late:
        return
    words = f"it cannot be stopped on {stuck[0]}" if stuck else "it is not stopped after 90 s"
    state.put(msgspec.structs.replace(record, stuck=True))
    state.say("error", f"{record.model}/{record.id}", "stuck", f"{words}; its booking is kept")


def _note_load(state: ClusterState, record: Record) -> None:
    """How long the load took, for the next one's estimate."""
    if record.adopted:
        return
    known = state.model_state(record.model)
    hardware = "cpu" if record.profile.gpu is UNSET else record.profile.gpu
    seconds = round(state.age(record.made_ms), 1)
    state.put_model(
        record.model,
        msgspec.structs.replace(known, load_seconds={**known.load_seconds, hardware: seconds}),
    )
