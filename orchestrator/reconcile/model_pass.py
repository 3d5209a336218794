"""How many copies a model should have, which are too many, and the one start of this pass (R30)."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET

from orchestrator.catalog.catalog import CatalogModel
from orchestrator.placement.inventory import Inventory, Need
from orchestrator.placement.place import Placement, place
from orchestrator.reconcile.backoff import (
    avoided_now,
    edited,
    failed_often,
    forgiven,
    needs_change,
    passed_over,
    wait_ms,
)
from orchestrator.reconcile.cluster_state import ClusterState, Pending
from orchestrator.reconcile.inventory_view import InventoryCache
from orchestrator.reconcile.records import Record, ShardRecord
from orchestrator.reconcile.surplus import surplus
from orchestrator.reconcile.transitions import LIVE, WAY_BACK
from orchestrator.sharing.classes import rank_of
from orchestrator.sharing.gate import MayNot, may_start
from orchestrator.wire.profile import Profile
from orchestrator.wire.replica_id import replica_id
from orchestrator.wire.want import Goal

#: Slots where the profile does not say.
SLOTS = {"llama.cpp": 4, "sim": 8, "vllm": 256, "sglang": 256}


def advance_models(state: ClusterState, inventories: InventoryCache) -> None:
    """Forgives, takes back, lets go; then at most one start."""
    asking: list[CatalogModel] = []
    for name in sorted(state.catalog.models):
        model = state.catalog.models[name]
        _forgive(state, model)
        if gate(state, name) is not None:
            state.pending.pop(name, None)
            continue
        if _below_wanted(state, model):
            asking.append(model)
        else:
            state.pending.pop(name, None)
            _let_go(state, model)
    for name in [name for name in state.pending if name not in state.catalog.models]:
        del state.pending[name]
    _start_one(state, asking, inventories)


def gate(state: ClusterState, name: str) -> MayNot | None:
    """Whether anything of the model may start at all."""
    skipped = state.catalog.skipped.get(name)
    model = state.catalog.models.get(name)
    if model is None:
        return may_start(most=0, stopped=False, refused=skipped.reason if skipped else None)
    return may_start(
        most=model.definition.most,
        stopped=state.model_state(name).stopped,
        external=model.definition.external is not UNSET,
    )


def live_copies(state: ClusterState, name: str) -> list[Record]:
    """Copies that count for what is wanted."""
    return [record for record in state.of_model(name) if record.state in LIVE]


def asked(state: ClusterState, name: str) -> bool:
    """Whether a router wants the model or has requests of it."""
    heard = state.wanted_until.get(name, state.now) > state.now
    return heard or state.routers.asked(name)


def effective_minimum(state: ClusterState, model: CatalogModel) -> int:
    """With min > 0, min. On demand: 1 while it is asked for, while it loads, and for its dwell."""
    if gate(state, model.name) is not None:
        return 0
    if model.definition.least > 0:
        return model.definition.least
    if asked(state, model.name):
        return 1
    for record in live_copies(state, model.name):
        if record.state != "ready" or _dwells(state, record):
            return 1
    return 0


def _dwells(state: ClusterState, record: Record) -> bool:
    since = record.since_ms if record.ready_ms is UNSET else record.ready_ms
    return state.age(since) < state.limits.dwell


def _forgive(state: ClusterState, model: CatalogModel) -> None:
    known = state.model_state(model.name)
    if not known.failures:
        return
    if edited(known, model.fingerprints):
        state.put_model(model.name, forgiven(known))
        state.say("info", f"model {model.name}", "forgiven", "its profile was changed")
    elif any(
        record.state == "ready"
        and state.age(record.since_ms) >= state.limits.serving_resets
        and (known.last_failure is UNSET or record.since_ms >= known.last_failure.at_ms)
        for record in state.of_model(model.name)
    ):
        # A copy that served before the failure says nothing of the ones that fail beside it.
        state.put_model(model.name, forgiven(known))


def _wanted(state: ClusterState, model: CatalogModel) -> int:
    """Copies to start up to. An idle on-demand model keeps what it has until its timeout."""
    return min(model.definition.most, effective_minimum(state, model))


def _below_wanted(state: ClusterState, model: CatalogModel) -> bool:
    """Takes a draining copy back first; then whether one must be started."""
    wanted = _wanted(state, model)
    copies = live_copies(state, model.name)
    for record in reversed(state.of_model(model.name)):
        if len(copies) >= wanted:
            break
        if record.state == "draining" and record.why in WAY_BACK:
            state.move(record, "wanted", "wanted again")
            copies = live_copies(state, model.name)
    replacement = _leave_drained_nodes(state, model, copies, wanted)
    return replacement or len(copies) < wanted


# -- too many


def _on_drained(state: ClusterState, record: Record) -> bool:
    return any(node is not None and node.drained for node in state.nodes_of(record))


def _let_go(state: ClusterState, model: CatalogModel) -> None:
    """Surplus and idle ones. Nothing of it under the brake, before settling or, for a copy that
    serves, while the set of routers is unknown."""
    if not state.settled or state.nodes.brake:
        return
    copies = live_copies(state, model.name)
    keep = model.definition.least or 1
    if any(_on_drained(state, record) for record in copies):
        keep += 1
    for record in surplus(copies, keep, lambda one: _on_drained(state, one), state.routers.held):
        if record.state != "ready" or state.routers.known:
            state.move(record, "surplus", f"{len(copies)} copies, {keep} wanted")
    if not model.definition.on_demand or effective_minimum(state, model) or not state.routers.known:
        return
    unused = state.idle.echoes(model.name) * state.limits.echo
    if unused >= model.definition.idle_timeout:
        for record in live_copies(state, model.name):
            state.move(record, "idle", f"not used for {unused / 60:.0f} min")


def _leave_drained_nodes(
    state: ClusterState, model: CatalogModel, copies: list[Record], wanted: int
) -> bool:
    """One copy at a time leaves a drained node, its replacement first if there is room; whether a
    replacement must be started."""
    leaving = [
        record for record in copies if record.state == "ready" and _on_drained(state, record)
    ]
    if not leaving or not state.settled:
        return False
    if any(
        record.state == "draining" and record.why == "node_drain"
        for record in state.of_model(model.name)
    ):
        return False
    staying = [record for record in copies if record not in leaving]
    serving = sum(record.state == "ready" for record in staying)
    first = leaving[0]
    nodes = ", ".join(
        node.name for node in state.nodes_of(first) if node is not None and node.drained
    )
    patience = min(
        state.now - node.drained_since
        for node in state.nodes_of(first)
        if node is not None and node.drained
    )
    pending = state.pending.get(model.name)
    no_room = pending is not None and pending.kind == "no_room"
    if (
        serving + len(leaving) > wanted
        or no_room
        or patience >= state.limits.node_drain_replacement
    ):
        if len(copies) >= wanted:
            state.pending.pop(model.name, None)
        state.move(first, "node_drain", f"node {nodes} is drained")
        return False
    return len(staying) + len(leaving) <= wanted


# -- starting


def _start_one(
    state: ClusterState, asking: list[CatalogModel], inventories: InventoryCache
) -> None:
    for model in asking:
        state.pending.setdefault(model.name, Pending(state.now))
    if not state.settled:
        return
    order = sorted(
        asking,
        key=lambda model: (
            model.definition.least == 0,
            rank_of(model.klass),
            state.pending[model.name].since,
            model.name,
        ),
    )
    inventory: Inventory | None = None
    for model in order:
        pending = state.pending[model.name]
        known = state.model_state(model.name)
        if wait_ms(known, state.ms()):
            why = "needs a change" if needs_change(known, state.limits) else "failed"
            last = "" if known.last_failure is UNSET else known.last_failure.text
            pending.kind, pending.text = "backing_off", f"{why}: {last}"
            continue
        if trying := _on_trial(state, model.name):
            # One start at a time: two copies would fail, and be charged, for the same reason.
            pending.kind = "backing_off"
            pending.text = f"it has failed; first replica {trying.id} must serve"
            continue
        inventory = inventory or inventories.of(state)
        hard = avoided_now(known, state.ms())
        soft = {**failed_often(known, state.ms(), state.limits), **hard}
        looked_at = (inventories.version, model, hard, soft)
        if pending.looked_at == looked_at and pending.kind == "no_room":
            continue
        pending.looked_at = looked_at
        found = _find_place(state, model, inventory, pending, hard, soft)
        if found is not None:
            _make_record(state, model, *found)
            del state.pending[model.name]
            return
        pending.kind = "no_room"
        pending.text = pending.rejections[min(pending.rejections)].summary()


def _on_trial(state: ClusterState, name: str) -> Record | None:
    """The copy that is starting after a failure, while none has become ready since."""
    failure = state.model_state(name).last_failure
    if failure is UNSET:
        return None
    copies = live_copies(state, name)
    if any(one.state == "ready" and one.since_ms >= failure.at_ms for one in copies):
        return None
    return next((one for one in copies if one.state != "ready"), None)


def _find_place(
    state: ClusterState,
    model: CatalogModel,
    inventory: Inventory,
    pending: Pending,
    hard: Mapping[str, str],
    soft: Mapping[str, str],
) -> tuple[int, Placement] | None:
    """The first profile that fits. ``hard`` nodes are never taken; ``soft`` ones, where the model
    failed often, only when no other one fits: on a small cluster the back-off alone must pace the
    tries."""
    known = state.model_state(model.name)
    numbers = sorted(
        range(len(model.fingerprints)),
        key=lambda number: (
            passed_over(known, model.fingerprints[number], state.ms(), state.limits),
            number,
        ),
    )
    pending.rejections = {}
    for number in numbers:
        profile = model.definition.profiles[number]
        for avoid in [soft] if soft == hard else [soft, hard]:
            found = place(Need(model.name, profile, avoid), inventory)
            if isinstance(found, Placement):
                return number, found
            pending.rejections[number] = found
    return None


def needs_of(state: ClusterState, model: CatalogModel) -> list[Need]:
    """What each of its profiles would ask of a node now."""
    avoid = avoided_now(state.model_state(model.name), state.ms())
    return [Need(model.name, profile, avoid) for profile in model.definition.profiles]


def served_name(name: str, profile: Profile) -> str:
    """The catalog's name where the engine can carry it: SGLang splits a name at a colon."""
    return name.replace(":", "_") if profile.engine == "sglang" else name


def _make_record(
    state: ClusterState, model: CatalogModel, number: int, placement: Placement
) -> None:
    profile = model.definition.profiles[number]
    generation = state.draw_generation()
    goal: Goal = "run" if profile.world_size == 1 else "prepare"
    record = Record(
        id=replica_id(generation),
        generation=generation,
        model=model.name,
        origin=model.origin,
        fingerprint=model.fingerprints[number],
        profile=profile,
        served_name=served_name(model.name, profile),
        slots=SLOTS.get(profile.engine, 1) if profile.slots is UNSET else profile.slots,
        state="preparing",
        since_ms=state.ms(),
        made_ms=state.ms(),
        shards=[
            ShardRecord(
                rank=rank,
                node=booking.node,
                node_id=state.nodes.by_name[booking.node].node_id,
                goal=goal,
                cards=list(booking.cards),
                cores=booking.cores or UNSET,
                memory=booking.memory or UNSET,
                disk=booking.disk or UNSET,
            )
            for rank, booking in enumerate(placement.bookings)
        ],
        context=model.definition.context_length,
        metrics=state.catalog.metrics.get(profile.engine, UNSET),
        adapters=list(model.definition.adapters),
        engine_key=state.draw_key(),
        fabric=placement.fabric or UNSET,
        why="placed",
    )
    state.put(record)
    where = ", ".join(booking.node for booking in placement.bookings)
    state.say("info", f"{record.model}/{record.id}", "preparing", f"placed on {where}")
