"""Agents' reports into nodes and into the shards of records.

A report counts for a shard only with the record's generation and an ``applied`` that knows the entry
of want; only a Full speaks of what it does not list.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from orchestrator.reconcile.cluster_state import ClusterState
from orchestrator.reconcile.nodes import Node
from orchestrator.reconcile.records import Gone, Record, ShardRecord, ShardSeen
from orchestrator.wire.reports import (
    Answer,
    Beat,
    Bye,
    Echo,
    Full,
    Hello,
    Refused,
    Report,
    ShardReport,
)
from orchestrator.wire.want import SendReport, SessionTaken


def fold(state: ClusterState, report: Report) -> bool:
    """Takes one report in; whether a pass may find something new because of it."""
    match report:
        case Echo():
            return _echo(state, report)
        case Hello():
            return _hello(state, report)
        case Beat():
            return _beat(state, report)
        case Full():
            return _full(state, report)
        case Refused():
            return _refused(state, report)
        case Answer() | Bye():
            return False


def ask_for_full(state: ClusterState, node: Node) -> None:
    """At most every 5 s."""
    if state.now - node.asked_at >= state.limits.notice_again:
        node.asked_at = state.now
        state.notices.append((node.name, SendReport(state.epoch, state.draw_question())))


def _echo(state: ClusterState, echo: Echo) -> bool:
    if echo.epoch != state.epoch:
        return False
    if state.nodes.count_echo(echo):
        state.idle.count(model for model in state.catalog.models if _quiet(state, model))
    return True


def _quiet(state: ClusterState, model: str) -> bool:
    """Whether this echo counts for the model's idle clock: everything that could be use is known, and
    there is none. Loading is not idleness."""
    definition = state.catalog.models[model].definition
    records = state.of_model(model)
    serving = [record for record in records if record.state == "ready"]
    if not definition.on_demand or not serving or not state.routers.known or not state.settled:
        return False
    if any(record.state in ("preparing", "starting") for record in records):
        return False
    if state.routers.asked(model) or state.wanted_until.get(model, state.now) > state.now:
        return False
    return all(_unused(state, record) for record in serving)


def _unused(state: ClusterState, record: Record) -> bool:
    if state.routers.held(record) or not state.nodes.ready(record.head.node):
        return False
    use = state.nodes.by_name[record.head.node].use.get(record.generation)
    if use is None or use.busy or use.running is UNSET:
        return False
    return use.running == 0 and (use.waiting is UNSET or use.waiting == 0)


def _hello(state: ClusterState, hello: Hello) -> bool:
    known = hello.node in state.nodes.by_name
    node = state.nodes.get(hello.node, state.now)
    if hello.session in node.old_sessions:
        # It was replaced; that it registers again must not turn the newer one away.
        return _heard(state, node, hello.session, full=False)
    _machine_is(state, node, hello.node_id)
    if node.session and node.session != hello.session and node.silence == 0 and node.heard:
        state.say("info", f"node {node.name}", "new session", "an agent has started there")
    node.take_hello(hello, state.now, state.limits.card_rest)
    if not known:
        state.say("info", f"node {node.name}", "known", "it said Hello")
    node.asked_at = float("-inf")
    ask_for_full(state, node)
    return True


def _heard(state: ClusterState, node: Node, session: str, full: bool) -> bool:
    if node.speaks(session, full, state.limits):
        return True
    if state.now - node.told_at >= state.limits.notice_again:
        node.told_at = state.now
        state.notices.append((node.name, SessionTaken(state.epoch, session)))
        state.say(
            "error",
            f"node {node.name}",
            "two agents",
            f"session {session} also speaks for it; the newer one is heard",
        )
    return False


def _beat(state: ClusterState, beat: Beat) -> bool:
    node = state.nodes.get(beat.node, state.now)
    if not _heard(state, node, beat.session, full=False):
        return True
    node.session = node.session or beat.session
    old = node.applied
    node.take_beat(beat, state.ms())
    busy = {use.generation for use in beat.use if use.busy}
    if busy:
        state.idle.reset(
            record.model for record in state.on_node(node.name) if record.generation in busy
        )
    if node.state != "ready":
        ask_for_full(state, node)
        return True
    return node.applied != old or any(
        record.state == "draining" for record in state.on_node(node.name)
    )


def _full(state: ClusterState, full: Full) -> bool:
    node = state.nodes.get(full.node, state.now)
    if not _heard(state, node, full.session, full=True):
        return True
    before = node.state
    _machine_is(state, node, full.node_id)
    node.take_full(full, state.now, state.limits.card_rest)
    if before not in ("ready", "unheard"):
        state.say("info", f"node {node.name}", "ready", f"heard again, was {before}")
    for shard in full.shards:
        state.note_generation(shard.generation)
    for record in state.on_node(node.name):
        _fold_shards(state, node, record)
    return True


def _fold_shards(state: ClusterState, node: Node, record: Record) -> None:
    shards = [
        _seen(node, record, shard) if shard.node == node.name and not shard.gone else shard
        for shard in record.shards
    ]
    if shards != record.shards:
        state.put(msgspec.structs.replace(record, shards=shards))


def _seen(node: Node, record: Record, shard: ShardRecord) -> ShardRecord:
    if shard.entered is UNSET or node.applied < shard.entered:
        return shard
    report = node.shards.get((record.id, shard.rank))
    if report is None or report.generation != record.generation:
        return msgspec.structs.replace(shard, gone="absent")
    return _with_report(shard, report)


def _with_report(shard: ShardRecord, report: ShardReport) -> ShardRecord:
    """What was refused stays refused: a Full made before the refusal may be read after it."""
    if shard.seen is not UNSET and shard.seen.state == "refused" and report.state != "ended":
        return shard
    gone: Gone = "ended" if report.state == "ended" else ""
    return msgspec.structs.replace(shard, seen=ShardSeen.of(report), gone=gone)


def _machine_is(state: ClusterState, node: Node, node_id: str) -> None:
    """A known name with a new node id is a machine set up anew: what ran there is no more."""
    for record in state.on_node(node.name):
        shards = [
            msgspec.structs.replace(shard, gone="absent")
            if shard.node == node.name and shard.node_id and shard.node_id != node_id
            else shard
            for shard in record.shards
        ]
        if shards != record.shards:
            state.say("warning", f"node {node.name}", "set up anew", "it has a new node id")
            state.put(msgspec.structs.replace(record, shards=shards))


def _refused(state: ClusterState, refused: Refused) -> bool:
    """Counts while the shard is on its way up; of one that serves it only says that an order is bad."""
    record = state.records.get(refused.replica)
    words = f"{refused.reason}: {refused.detail}" if refused.detail else refused.reason
    state.say("warning", f"node {refused.node}", "refused", f"replica {refused.replica}: {words}")
    if record is None or record.generation != refused.generation:
        return False
    if record.state not in ("preparing", "starting"):
        return False
    shards = [
        msgspec.structs.replace(
            shard, seen=ShardSeen(state="refused", reason=refused.reason, detail=refused.detail)
        )
        if shard.node == refused.node and shard.rank == refused.rank
        else shard
        for shard in record.shards
    ]
    state.put(msgspec.structs.replace(record, shards=shards))
    return True
