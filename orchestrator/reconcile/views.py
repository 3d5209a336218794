"""What people are shown of a cluster: pure functions of the reconciler's state."""

from __future__ import annotations

from typing import TypeVar

from msgspec import UNSET, UnsetType

from orchestrator.catalog.catalog import CatalogModel
from orchestrator.errors import UnknownSubject
from orchestrator.placement.explain import explain
from orchestrator.placement.inventory import NodeView
from orchestrator.reconcile.backoff import needs_change, wait_ms
from orchestrator.reconcile.cluster_state import ClusterState
from orchestrator.reconcile.endpoints import ready_at_ms
from orchestrator.reconcile.inventory_view import InventoryCache
from orchestrator.reconcile.model_pass import effective_minimum, gate, needs_of
from orchestrator.reconcile.nodes import Node
from orchestrator.reconcile.records import FailureNote, Record, ShardRecord
from orchestrator.reconcile.view_rows import (
    ClusterView,
    ExplainRow,
    Explanation,
    ModelRow,
    NodeRow,
    Problem,
    ReplicaRow,
    ShardRow,
)
from orchestrator.reconcile.wants import obeys
from orchestrator.wire.profile import is_stale

T = TypeVar("T")


def view_of(
    state: ClusterState, inventories: InventoryCache, endpoints_version: int
) -> ClusterView:
    """The whole, for status, nodes, models and replicas."""
    models = [_model_row(state, name) for name in state.model_names()]
    views = inventories.of(state).nodes
    nodes = [_node_row(state, state.nodes.by_name[name], view) for name, view in views.items()]
    return ClusterView(
        epoch=state.epoch,
        settled=state.settled,
        mass_silence=state.nodes.brake,
        routers=len(state.routers.presences) if state.routers.known else None,
        endpoints_version=endpoints_version,
        nodes=nodes,
        models=models,
        replicas=[
            _replica_row(state, record)
            for record in sorted(
                state.records.values(), key=lambda record: (record.model, record.generation)
            )
        ],
        problems=_problems(state, nodes, models),
    )


def explain_model(state: ClusterState, inventories: InventoryCache, name: str) -> Explanation:
    """Why the model is as it is; what each node says to each of its profiles."""
    name = state.catalog.target(name) or name
    if name not in state.model_names():
        raise UnknownSubject(f"there is no model {name!r}; see: ctl models")
    row = _model_row(state, name)
    model = state.catalog.models.get(name)
    profiles = []
    if model is not None:
        inventory = inventories.of(state)
        for need in needs_of(state, model):
            profiles.append([ExplainRow(*found) for found in explain(need, inventory)])
    return Explanation(name, row.state, row.reason, row.failures, row.next_try, profiles)


def _known(value: T | UnsetType) -> T | None:
    return None if value is UNSET else value


def _words(note: FailureNote | UnsetType) -> str | None:
    return None if note is UNSET else note.text


# -- nodes


def _node_row(state: ClusterState, node: Node, view: NodeView) -> NodeRow:
    known = node.inventory
    records = state.on_node(node.name)
    cards: dict[str, list[int]] = {}
    for card in view.cards:
        counts = cards.setdefault(card.type, [0, 0])
        counts[0] += card.held_by is not None
        counts[1] += 1
    return NodeRow(
        name=node.name,
        state=node.state,
        age=state.now - (max(node.since, node.drained_since) if node.drained else node.since),
        seen=node.silence * state.limits.echo if node.heard or node.silence else None,
        drained=node.drained,
        drain_done=node.drained
        and not any(
            shard.node == node.name and not shard.gone for one in records for shard in one.shards
        ),
        obeying=obeys(state, node),
        simulated=view.simulated,
        address=None if known is None else known.address,
        fabric=view.fabric,
        cards=cards,
        cores=view.cores,
        cores_reserved=view.cores_booked,
        memory=view.memory,
        memory_reserved=view.memory_booked,
        memory_available=None if known is None else _known(known.memory_available),
        disk_free=view.disk,
        engines=sorted(view.engines),
        labels=None if view.labels is None else dict(view.labels),
        weights=sorted(node.holds),
        replicas=[record.id for record in records],
        version=node.version,
        protocol=node.protocol,
        load=node.load,
        skew=node.clock_skew,
        notes=_node_notes(state, node),
    )


def _node_notes(state: ClusterState, node: Node) -> list[str]:
    notes = []
    if not obeys(state, node):
        notes.append("does not obey")
    known = node.inventory
    for card in [] if known is None else known.cards:
        if not card.healthy:
            notes.append(f"card {card.uuid}: {card.problem or 'not healthy'}")
        elif card.foreign is not UNSET and card.foreign > 0:
            notes.append(f"card {card.uuid}: {card.foreign / 1e9:.1f} GB used from outside")
    unlisted = sorted({replica for replica, _ in node.shards if replica not in state.records})
    running = [
        one
        for one in unlisted
        if any(
            report.state != "ended"
            for (replica, _), report in node.shards.items()
            if replica == one
        )
    ]
    notes += [f"runs {one}, which no record names" for one in running]
    return notes


# -- replicas


def _replica_row(state: ClusterState, record: Record) -> ReplicaRow:
    known = state.model_state(record.model)
    head = state.nodes.by_name.get(record.head.node)
    use = head.use.get(record.generation) if head is not None and head.state == "ready" else None
    seen = record.head.seen
    return ReplicaRow(
        id=record.id,
        generation=record.generation,
        model=record.model,
        state=record.state,
        shown="failed" if record.state == "stopping" and record.failed else record.state,
        age=state.age(record.since_ms),
        why=record.why,
        detail=record.detail,
        nodes=record.nodes,
        cards=[list(shard.cards) for shard in record.shards],
        engine=record.profile.engine,
        hardware="cpu" if record.profile.gpu is UNSET else record.profile.gpu,
        url=None if seen is UNSET else _known(seen.url),
        fabric=_known(record.fabric),
        slots=record.slots,
        context=_known(record.context),
        running=None if use is None else _known(use.running),
        waiting=None if use is None else _known(use.waiting),
        stale=_stale(state, record),
        stuck=record.stuck,
        adopted=record.adopted,
        failures=known.failures,
        shards=[_shard_row(state, record, shard) for shard in record.shards],
        first_failure=_words(known.first_failure),
        last_failure=_words(known.last_failure),
    )


def _stale(state: ClusterState, record: Record) -> bool | None:
    """Placed with a profile that the catalog no longer has; None: unknown (R49, R50)."""
    model = state.model_of(record)
    if model is None or not model.fingerprints:
        return None
    judged = [is_stale(record.fingerprint, now) for now in model.fingerprints]
    if False in judged:
        return False
    return None if None in judged else True


def _shard_row(state: ClusterState, record: Record, shard: ShardRecord) -> ShardRow:
    node = state.nodes.by_name.get(shard.node)
    report = None if node is None else node.shards.get((record.id, shard.rank))
    progress = UNSET if report is None else report.progress
    seen = shard.seen
    return ShardRow(
        rank=shard.rank,
        node=shard.node,
        goal=shard.goal,
        state=None if seen is UNSET else seen.state,
        reason="" if seen is UNSET else seen.detail or seen.reason,
        gone=shard.gone,
        cards=list(shard.cards),
        url=None if seen is UNSET else _known(seen.url),
        ports=[] if seen is UNSET else list(seen.ports),
        pid=None if seen is UNSET else _known(seen.pid),
        done=None if progress is UNSET else progress.done,
        total=None if progress is UNSET else _known(progress.total),
    )


# -- models


def _model_row(state: ClusterState, name: str) -> ModelRow:
    model = state.catalog.models.get(name)
    known = state.model_state(name)
    records = state.of_model(name)
    ready = sum(record.state == "ready" for record in records)
    wanted = 0 if model is None else effective_minimum(state, model)
    word, reason = _model_state(state, name, model, records, wanted)
    demand = state.routers.in_flight(name)
    pending = state.pending.get(name)
    etas = [ready_at_ms(state, one) for one in records if one.state in ("preparing", "starting")]
    made = None if model is None else model.definition
    return ModelRow(
        name=name,
        state=word,
        reason=reason,
        klass="" if model is None else model.klass,
        origin=model.origin if model is not None else records[0].origin if records else "stored",
        simulated=made is not None and made.simulated,
        external=made is not None and made.external is not UNSET,
        owner=None if model is None else _known(model.owner),
        description=None if made is None else _known(made.description),
        aliases=[] if made is None else list(made.aliases),
        context_length=None if made is None else _known(made.context_length),
        source=None if made is None or not made.profiles else _known(made.profiles[0].source),
        min=0 if made is None else made.least,
        max=0 if made is None else made.most,
        stopped=known.stopped,
        wanted=wanted,
        ready=ready,
        replicas=[record.id for record in records],
        in_flight=None if demand is None else demand[0],
        waiting=None if demand is None else demand[1],
        pending_for=None if pending is None else state.now - pending.since,
        next_try=(wait_ms(known, state.ms()) / 1000) or None,
        eta=next((max(0.0, (eta - state.ms()) / 1000) for eta in etas if eta is not None), None),
        failures=known.failures,
        first_failure=_words(known.first_failure),
        last_failure=_words(known.last_failure),
    )


def _model_state(
    state: ClusterState,
    name: str,
    model: CatalogModel | None,
    records: list[Record],
    wanted: int,
) -> tuple[str, str]:
    no = gate(state, name)
    if model is None:
        skipped = name in state.catalog.skipped
        return ("refused", no.text) if skipped and no else ("removed", "not in the catalog")
    if no is not None:
        words = {"external": "external"}
        return words.get(no.kind, "off"), no.text
    states = {record.state for record in records}
    known = state.model_state(name)
    pending = state.pending.get(name)
    if "ready" in states:
        ready = sum(record.state == "ready" for record in records)
        return ("ready", "") if ready >= wanted else ("scaling", f"{ready} of {wanted} ready")
    if states & {"preparing", "starting"}:
        return "loading", ""
    if known.failures and wait_ms(known, state.ms()):
        last = _words(known.last_failure) or ""
        return ("needs_change" if needs_change(known, state.limits) else "failing"), last
    if "lost" in states:
        return "lost", "its nodes are silent"
    if pending is not None:
        return "pending", pending.text if state.settled else "the nodes are still being heard"
    if "draining" in states:
        return "draining", ""
    return "idle", "on demand"


# -- problems


def _problems(state: ClusterState, nodes: list[NodeRow], models: list[ModelRow]) -> list[Problem]:
    found = []
    if state.nodes.brake:
        found.append(Problem("red", "cluster", "mass silence", "no node becomes Lost", "nodes"))
    for model in models:
        verb = f"explain {model.name}"
        if model.state in ("failing", "needs_change", "lost"):
            found.append(Problem("red", model.name, model.state, model.reason, verb))
        elif model.state == "pending" and model.reason:
            found.append(Problem("amber", model.name, "pending", model.reason, verb))
        elif model.state == "refused":
            found.append(Problem("amber", model.name, "refused", model.reason, verb))
    for node in nodes:
        verb = f"node show {node.name}"
        if node.state == "lost":
            found.append(Problem("red", node.name, "lost", f"{len(node.replicas)} replicas", verb))
        elif node.state == "unreachable":
            why = f"silent for {node.seen:.0f} s" if node.seen is not None else "silent"
            found.append(Problem("amber", node.name, "unreachable", why, verb))
        elif not node.obeying:
            found.append(Problem("amber", node.name, "does not obey", "", verb))
    for record in state.records.values():
        subject = f"{record.model}/{record.id}"
        if record.stuck:
            verb = f"replica show {record.id}"
            found.append(Problem("red", subject, "stuck", record.detail, verb))
        if _stale(state, record):
            verb = f"replica show {record.id}"
            found.append(Problem("amber", subject, "stale profile", "it goes on as it was", verb))
    return sorted(found, key=lambda problem: problem.tone != "red")
