"""Engines that run and that no record knows: taken over where they belong to a model, else stopped
(R48-R50, R58, R65)."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from orchestrator.reconcile.cluster_state import ClusterState
from orchestrator.reconcile.records import Record, ReplicaState, ShardRecord, ShardSeen
from orchestrator.wire.profile import Profile
from orchestrator.wire.reports import ShardReport
from orchestrator.wire.want import Goal

#: What is no more, or was never launched, needs no record.
NOTHING_THERE = ("ended", "refused")
_GOING = ("stopping", "hung", "stuck")

Found = dict[int, tuple[str, ShardReport]]


def unknown_replicas(state: ClusterState) -> dict[str, Found]:
    """Replica id -> rank -> (node, report), of ready nodes, for ids without a record."""
    found: dict[str, Found] = {}
    for node in state.nodes.by_name.values():
        if node.state != "ready":
            continue
        for (replica, rank), report in node.shards.items():
            if replica not in state.records and report.state not in NOTHING_THERE:
                found.setdefault(replica, {})[rank] = (node.name, report)
    return found


def adopt(state: ClusterState) -> None:
    """Every unknown replica by its row. Runs after settling only."""
    if not state.settled:
        return
    late = state.now - state.settled_at >= state.limits.adoption
    for replica, ranks in sorted(unknown_replicas(state).items()):
        first = ranks[min(ranks)][1]
        model = state.catalog.models.get(first.model)
        if model is None and first.model not in state.catalog.skipped:
            if late:
                _stop(state, replica, ranks, "its model is not in the catalog")
        elif model is not None and model.origin != first.origin:
            _stop(state, replica, ranks, f"it belongs to a {first.origin} model of that name")
        elif any(report.state in _GOING for _, report in ranks.values()):
            _stop(state, replica, ranks, "it was already stopping")
        elif set(ranks) == set(range(first.world_size)):
            _take_over(state, replica, ranks)
        elif late:
            _stop(state, replica, ranks, "not all of its ranks were found")
    _join_stopping(state)


def _take_over(state: ClusterState, replica: str, ranks: Found) -> None:
    head, *workers = (report for _, report in (ranks[rank] for rank in sorted(ranks)))
    serves = head.state == "ready" and head.url is not UNSET
    serves = serves and all(report.state in ("up", "ready") for report in workers)
    record = _record(state, replica, ranks, "ready" if serves else "starting", "found running")
    state.put(record)
    state.say("info", f"{record.model}/{record.id}", "adopted", record.detail)
    _take_cards(state, record)


def _stop(state: ClusterState, replica: str, ranks: Found, words: str) -> None:
    record = _record(state, replica, ranks, "stopping", words)
    state.put(record)
    state.say("warning", f"{record.model}/{record.id}", "named with stop", words)


def _join_stopping(state: ClusterState) -> None:
    """A rank that turns up after its replica was named with stop is named too."""
    for node in state.nodes.by_name.values():
        for (replica, rank), report in node.shards.items() if node.state == "ready" else ():
            record = state.records.get(replica)
            if record is None or record.state != "stopping" or report.state in NOTHING_THERE:
                continue
            if report.generation == record.generation and all(
                shard.rank != rank for shard in record.shards
            ):
                shards = [*record.shards, _shard(state, node.name, report, "stop")]
                shards.sort(key=lambda shard: shard.rank)
                state.put(msgspec.structs.replace(record, shards=shards))


def _record(
    state: ClusterState, replica: str, ranks: Found, to: ReplicaState, words: str
) -> Record:
    ordered = [ranks[rank] for rank in sorted(ranks)]
    node, head = ordered[0]
    profile = _profile(state, head)
    inventory = state.nodes.by_name[node].inventory
    fabric = UNSET if inventory is None else inventory.fabric
    spans = head.world_size > 1
    goal: Goal = "stop" if to == "stopping" else "run"
    state.note_generation(head.generation)
    return Record(
        id=replica,
        generation=head.generation,
        model=head.model,
        origin="stored" if head.origin == "stored" else "declared",
        fingerprint=head.fingerprint,
        profile=profile,
        served_name=head.model if head.served_name is UNSET else head.served_name,
        slots=1 if head.slots is UNSET else head.slots,
        state=to,
        since_ms=state.ms(),
        made_ms=state.ms(),
        ready_ms=state.ms() if to == "ready" else UNSET,
        shards=[_shard(state, name, report, goal) for name, report in ordered],
        context=head.context,
        metrics=state.catalog.metrics.get(profile.engine, UNSET),
        adapters=list(head.adapters),
        engine_key=head.engine_key,
        fabric=fabric.name if spans and fabric is not UNSET else UNSET,
        head_address=head.fabric_address if spans else UNSET,
        why="adopted",
        detail=words,
        adopted=True,
    )


def _profile(state: ClusterState, report: ShardReport) -> Profile:
    """As reported; an older agent says none, then the catalog's first is the best guess."""
    if report.profile is not UNSET:
        return report.profile
    model = state.catalog.models.get(report.model)
    profiles = [] if model is None else model.definition.profiles
    return profiles[0] if profiles else Profile(engine="")


def _shard(state: ClusterState, node: str, report: ShardReport, goal: Goal) -> ShardRecord:
    return ShardRecord(
        rank=report.rank,
        node=node,
        node_id=state.nodes.by_name[node].node_id,
        goal=goal,
        cards=list(report.cards),
        cores=report.cores,
        memory=report.memory,
        seen=ShardSeen.of(report),
    )


def _take_cards(state: ClusterState, adopted: Record) -> None:
    """A record that was promised the cards that this engine holds gives way."""
    cards = {(shard.node, card) for shard in adopted.shards for card in shard.cards}
    for node in set(adopted.nodes):
        for other in state.on_node(node):
            held = {(shard.node, card) for shard in other.shards for card in shard.cards}
            if other.id != adopted.id and other.state == "preparing" and held & cards:
                state.move(other, "cards_taken", f"replica {adopted.id} was found on its cards")
