"""The cluster at a glance: is the control plane well, what needs a person, what there is."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import msgspec

from orchestrator.admin.items import Item, model_item, time_of
from orchestrator.command_line import own_version
from orchestrator.instance import Instance
from orchestrator.picture import Picture, live_siblings
from orchestrator.reconcile.view_rows import ClusterView, NodeRow, Problem


def control_plane(instance: Instance) -> Item:
    """What is known without any picture of the cluster: who leads, whether Redis answers."""
    leader = instance.leader
    health = instance.health
    item: Item = {
        "cluster": instance.settings.cluster,
        "instance": instance.name,
        "role": "leader" if instance.term is not None else "standby",
        "version": own_version(),
        "store": {"ok": health.problem is None},
    }
    if leader is not None and leader.value:
        item["leader"] = {"instance": leader.instance, "epoch": leader.epoch}
        if instance.term is not None:
            item["leader"]["since_s"] = round(time.monotonic() - instance.term.began, 1)
    if health.problem is not None:
        item["store"] = {
            "ok": False,
            "problem": health.problem,
            "away_s": round(time.monotonic() - health.since, 1),
        }
    file: Item = {"digest": instance.file.digest} if instance.file.digest else {}
    if instance.settings.cluster_file is not None:
        file["path"] = str(instance.settings.cluster_file)
    if instance.file_error is not None:
        file["error"] = str(instance.file_error)
    item["cluster_file"] = file
    return item


def _sum(values: list[int | None]) -> int | None:
    """The sum of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _cards(nodes: list[NodeRow]) -> list[Item]:
    held: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for node in nodes:
        for kind, (taken, there) in node.cards.items():
            held[kind] += taken
            total[kind] += there
    return [{"type": kind, "held": held[kind], "total": total[kind]} for kind in sorted(total)]


def own_problems(instance: Instance, picture: Picture | None) -> list[Problem]:
    """What is wrong with the control plane itself; the reconciler names the rest."""
    problems: list[Problem] = []

    def add(tone: str, subject: str, what: str, why: str, verb: str) -> None:
        problems.append(Problem(tone, subject, what, why, verb))

    if instance.health.problem is not None:
        add("red", "store", "Redis is away", instance.health.problem, "")
    if instance.leader is None or not instance.leader.value:
        add("red", "leader", "nobody leads", "nothing new is placed, engines go on", "")
    if instance.too_new is not None:
        add("red", instance.name, "must not lead", instance.too_new, "version")
    if instance.file_error is not None:
        add("red", "cluster.yaml", "not taken", str(instance.file_error), "reload")
    if instance.store_is_behind:
        add("red", "store", "went back", "its documents are older than backup.json", "events")
    if instance.term is not None and instance.term.keys_lost:
        why = "routers keep the old ones until one is made"
        add("red", "keys", "lost from the store", why, "key create")
    if instance.followed is not None:
        digests = {line.digest for line in live_siblings(instance.followed).values()}
        if len(digests) > 1:
            add("amber", "cluster.yaml", "differs", "orchestrators have different files", "")
    if picture is not None:
        for text in picture.catalog.warnings:
            add("amber", "catalog", "read leniently", text, "")
    return problems


def _totals(view: ClusterView, *, leading: bool) -> Item:
    nodes = view.nodes
    # A standby has not heard the nodes: it knows that they are there, not how they are.
    states = Counter(node.state if leading else "known" for node in nodes)
    item: Item = {
        "nodes": dict(sorted(states.items())),
        "drained": sum(node.drained for node in nodes),
        "cards": _cards(nodes),
        "cpus_reserved": sum(node.cores_reserved for node in nodes),
        "memory_reserved": sum(node.memory_reserved for node in nodes),
    }
    for key, value in (
        ("cpus", _sum([node.cores for node in nodes])),
        ("memory_total", _sum([node.memory for node in nodes])),
        ("memory_available", _sum([node.memory_available for node in nodes])),
    ):
        if value is not None:
            item[key] = value
    return item


def status(instance: Instance, picture: Picture | None) -> dict[str, Any]:
    """The whole of /api/status; without a picture (Redis never answered) only the control plane."""
    item = control_plane(instance)
    problems = own_problems(instance, picture)
    if picture is None:
        item["problems"] = [msgspec.structs.asdict(problem) for problem in problems]
        return item
    view = picture.view
    item["as_of"] = time_of(picture.as_of_ms)
    item["settled"] = view.settled
    item["mass_silence"] = view.mass_silence
    if view.routers is not None:
        item["routers"] = view.routers
    if picture.leading:
        item["endpoints_version"] = view.endpoints_version
    item["problems"] = [msgspec.structs.asdict(one) for one in [*problems, *view.problems]]
    item |= _totals(view, leading=picture.leading)
    item["models"] = [model_item(model) for model in view.models]
    return item
