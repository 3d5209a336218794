"""The cluster as JSON for ctl and the page: bytes, seconds, RFC 3339; what is unknown is absent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET

from orchestrator.access import StoredKey
from orchestrator.cluster_file import DeclaredKey
from orchestrator.reconcile.view_rows import ModelRow, NodeRow, ReplicaRow
from orchestrator.store import EventRow
from orchestrator.wire.presence import Presence

Item = dict[str, Any]


def time_of(milliseconds: float) -> str:
    """RFC 3339 of Unix milliseconds, in UTC."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _known(item: Mapping[str, Any]) -> Item:
    return {key: value for key, value in item.items() if value is not None and value is not UNSET}


def _seconds(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def node_item(node: NodeRow, *, leading: bool) -> Item:
    """One node. A standby has not heard it, so it says nothing of its state."""
    state: str | None = node.state
    if node.drained and node.state == "ready":
        state = "drained" if node.drain_done else "draining"
    notes = list(node.notes)
    if node.simulated:
        notes.append("simulated")
    return _known(
        {
            "name": node.name,
            "state": state if leading else None,
            "seen_s": _seconds(node.seen),
            "age_s": _seconds(node.age) if leading else None,
            "drained": node.drained,
            "obeying": node.obeying,
            "simulated": node.simulated,
            "address": node.address,
            "fabric": node.fabric,
            "cards": [
                {"type": kind, "held": held, "total": total}
                for kind, (held, total) in sorted(node.cards.items())
            ],
            "cpus": node.cores,
            "cpus_reserved": node.cores_reserved,
            "memory_total": node.memory,
            "memory_reserved": node.memory_reserved,
            "memory_available": node.memory_available,
            "disk_free": node.disk_free,
            "engines": node.engines,
            "labels": node.labels,
            "weights": node.weights,
            "replicas": len(node.replicas),
            "replica_ids": node.replicas,
            "version": node.version or None,
            "protocol": node.protocol,
            "load": node.load,
            "skew_s": _seconds(node.skew),
            "note": ", ".join(notes) or None,
        }
    )


def _model_note(model: ModelRow) -> str | None:
    parts: list[str] = []
    if model.reason:
        parts.append(model.reason)
    if model.next_try is not None:
        parts.append(f"next try in {max(0, round(model.next_try))}s")
    if model.eta is not None:
        parts.append(f"about {max(1, round(model.eta))}s left")
    if model.stopped and not model.reason:
        parts.append("stopped by an operator")
    if model.simulated:
        parts.append("simulated")
    return ", ".join(parts) or None


def model_item(model: ModelRow, cache_use: float | None = None) -> Item:
    """One model. ``running`` is what routers hold in flight."""
    return _known(
        {
            "name": model.name,
            "state": model.state,
            "ready": model.ready,
            "wanted": model.wanted,
            "running": model.in_flight,
            "waiting": model.waiting,
            "cache_use": cache_use,
            "class": model.klass,
            "origin": model.origin,
            "simulated": model.simulated,
            "external": model.external,
            "stopped": model.stopped,
            "min": model.min,
            "max": model.max,
            "owner": model.owner,
            "description": model.description,
            "aliases": model.aliases,
            "context_length": model.context_length,
            "source": model.source,
            "replicas": model.replicas,
            "pending_s": _seconds(model.pending_for),
            "next_try_s": _seconds(model.next_try),
            "eta_s": _seconds(model.eta),
            "failures": model.failures,
            "first_failure": model.first_failure,
            "last_failure": model.last_failure,
            "reason": model.reason or None,
            "note": _model_note(model),
        }
    )


def _replica_note(replica: ReplicaRow) -> str | None:
    parts: list[str] = []
    if replica.stuck:
        parts.append("cannot be stopped")
    if replica.shown != "ready" and (replica.detail or replica.why):
        parts.append(replica.detail or replica.why)
    if replica.stale:
        parts.append("stale profile")
    if replica.failures and replica.first_failure:
        parts.append(f"first failure: {replica.first_failure}")
    return ", ".join(parts) or None


def replica_item(replica: ReplicaRow) -> Item:
    """One replica. ``state`` is the word for people, ``record_state`` that of the tables."""
    return _known(
        {
            "id": replica.id,
            "generation": replica.generation,
            "model": replica.model,
            "state": replica.shown,
            "record_state": replica.state,
            "age_s": _seconds(replica.age),
            "why": replica.why or None,
            "detail": replica.detail or None,
            "nodes": replica.nodes,
            "cards": [card for cards in replica.cards for card in cards],
            "gpu": replica.hardware or None,
            "engine": replica.engine,
            "url": replica.url,
            "fabric": replica.fabric,
            "slots": replica.slots,
            "context": replica.context,
            "running": replica.running,
            "waiting": replica.waiting,
            "stale": replica.stale,
            "stuck": replica.stuck,
            "adopted": replica.adopted,
            "restarts": replica.failures,
            "shards": [_known(msgspec.structs.asdict(shard)) for shard in replica.shards],
            "pids": [shard.pid for shard in replica.shards if shard.pid is not None],
            "first_failure": replica.first_failure,
            "last_failure": replica.last_failure,
            "note": _replica_note(replica),
        }
    )


def key_items(declared: Sequence[DeclaredKey], stored: Mapping[str, StoredKey]) -> list[Item]:
    """API keys by name: what is known of each, never the key or its digest."""
    items = [
        _known(
            {
                "id": key.sha256[:12],
                "name": key.name,
                "origin": "declared",
                "owner": key.owner,
                "models": key.models,
                "operator": key.operator,
            }
        )
        for key in declared
    ]
    items += [
        _known(
            {
                "id": key.id,
                "name": key.name,
                "origin": "stored",
                "prefix": key.prefix,
                "owner": key.owner,
                "models": key.models,
                "operator": key.operator,
                "rpm": key.limits.rpm,
                "tpm": key.limits.tpm,
                "concurrency": key.limits.concurrency,
                "created": time_of(key.created_ms),
                "expires": UNSET if key.expires_ms is UNSET else time_of(key.expires_ms),
            }
        )
        for key in stored.values()
    ]
    return sorted(items, key=lambda item: str(item["name"]))


def event_item(event: EventRow) -> Item:
    """One line of what happened."""
    fields = dict(event.fields)
    at_ms = fields.pop("at_ms", None) or event.id.partition("-")[0]
    return _known({"id": event.id, "at": time_of(float(at_ms)), **fields})


def router_items(presences: Iterable[Presence]) -> list[Item]:
    """The router workers, as far as this instance follows them."""
    return [
        {
            "worker": worker.worker,
            "host": worker.host,
            "draining": worker.draining,
            "version": worker.version,
            "versions": {
                name: [version.epoch, version.version]
                for name, version in sorted(worker.versions.items())
            },
        }
        for worker in sorted(presences, key=lambda worker: worker.worker)
    ]
