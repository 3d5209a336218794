"""Figures of one orchestrator in Prometheus's form, made at each scrape from what it can show.

What is unknown has no series: an absent figure can be alerted on, a 0 cannot.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from orchestrator.instance import Instance
from orchestrator.picture import live_siblings
from orchestrator.reconcile.view_rows import ClusterView, ModelRow
from orchestrator.shell_errors import StoreAway

CONTENT_TYPE = CONTENT_TYPE_LATEST
_PER_MODEL: tuple[tuple[str, str, Callable[[ModelRow], int]], ...] = (
    ("llmgw_replicas_wanted", "Replicas that should serve.", lambda row: row.wanted),
    ("llmgw_replicas_ready", "Replicas that serve.", lambda row: row.ready),
    ("llmgw_model_failures", "Charged failures in a row.", lambda row: row.failures),
)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


class _ClusterFigures(Collector):
    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def collect(self) -> Iterator[Metric]:
        instance = self._instance
        term = instance.term
        yield _gauge("llmgw_leader", "Whether this instance leads.", float(term is not None))
        away = instance.health.problem is not None
        yield _gauge("llmgw_store_away", "Whether Redis does not answer.", float(away))
        yield _gauge(
            "llmgw_catalog_rejected",
            "Whether the file on disk was refused and an older one is in force.",
            float(instance.file_error is not None),
        )
        if instance.followed is not None:
            digests = {line.digest for line in live_siblings(instance.followed).values()}
            text = "Whether live orchestrators have different cluster files."
            yield _gauge("llmgw_config_drift", text, float(len(digests) > 1))
        if term is None:
            return
        yield _gauge("llmgw_epoch", "Epoch of this leader.", term.epoch)
        if term.last_pass is not None:
            seconds, ended = term.last_pass
            yield _gauge("llmgw_pass_seconds", "Length of the last pass.", seconds)
            age = time.monotonic() - ended
            yield _gauge("llmgw_pass_age_seconds", "Time since the last pass.", age)
        try:
            picture = instance.picture()
        except StoreAway:
            return
        yield from _view_figures(picture.view)


def _view_figures(view: ClusterView) -> Iterator[Metric]:
    text = "Whether the brake of the mass silence is on."
    yield _gauge("llmgw_mass_silence", text, float(view.mass_silence))
    nodes = GaugeMetricFamily("llmgw_nodes", "Nodes by state.", labels=["state"])
    for state, count in Counter(node.state for node in view.nodes).items():
        nodes.add_metric([state], count)
    yield nodes
    cards = GaugeMetricFamily("llmgw_cards", "Cards by type and use.", labels=["type", "use"])
    for kind in sorted({kind for node in view.nodes for kind in node.cards}):
        pairs = [node.cards[kind] for node in view.nodes if kind in node.cards]
        held, total = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
        cards.add_metric([kind, "held"], held)
        cards.add_metric([kind, "free"], total - held)
    yield cards
    replicas = GaugeMetricFamily(
        "llmgw_replicas", "Replicas by model and state.", labels=["model", "state"]
    )
    for (model, state), count in Counter((one.model, one.state) for one in view.replicas).items():
        replicas.add_metric([model, state], count)
    yield replicas
    for name, text, value_of in _PER_MODEL:
        family = GaugeMetricFamily(name, text, labels=["model"])
        for row in view.models:
            family.add_metric([row.name], value_of(row))
        yield family


def exposition(instance: Instance) -> bytes:
    """The whole text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_ClusterFigures(instance))
    return generate_latest(registry)
