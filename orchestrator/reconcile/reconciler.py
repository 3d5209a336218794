"""The one entry: events in, actions out."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.errors import NotTakenOver
from orchestrator.reconcile.actions import Action, Level
from orchestrator.reconcile.adoption import adopt
from orchestrator.reconcile.cluster_state import ClusterState
from orchestrator.reconcile.commit import take_commit
from orchestrator.reconcile.endpoints import Publisher
from orchestrator.reconcile.events import (
    CatalogChanged,
    Event,
    ExternalKeysRead,
    ModelStopped,
    NodeDrained,
    NodeForgotten,
    NodeLostByOperator,
    PresenceSeen,
    ReportRead,
    RestartAsked,
    TookOver,
    WantedHeard,
)
from orchestrator.reconcile.inventory_view import InventoryCache
from orchestrator.reconcile.limits import DEFAULTS, Limits
from orchestrator.reconcile.model_pass import advance_models
from orchestrator.reconcile.operator_events import (
    drain_node,
    forget_node,
    lose_node,
    restart_replica,
    stop_model,
)
from orchestrator.reconcile.records import ModelState
from orchestrator.reconcile.replica_pass import advance_records
from orchestrator.reconcile.report_folding import ask_for_full, fold
from orchestrator.reconcile.view_rows import ClusterView, Explanation
from orchestrator.reconcile.views import explain_model, view_of
from orchestrator.reconcile.wants import watch_obedience


class Reconciler:
    """State of one leadership. ``draw_key`` draws an engine key, ``jitter`` a number in [-1, 1].

    ``now`` is monotonic seconds everywhere and never falls. The first event is TookOver; anything
    before it raises NotTakenOver.
    """

    def __init__(
        self,
        draw_key: Callable[[], str],
        jitter: Callable[[], float],
        limits: Limits = DEFAULTS,
    ) -> None:
        self._draw_key = draw_key
        self._jitter = jitter
        self._limits = limits
        self._state: ClusterState | None = None
        self._publisher = Publisher()
        self._inventories = InventoryCache()
        #: Whether an event since the last pass changed something: a pass is due (at most every 100 ms).
        self.due = False

    @property
    def epoch(self) -> int:
        """The epoch of this leadership, 0 before the take-over."""
        return 0 if self._state is None else self._state.epoch

    @property
    def settled(self) -> bool:
        """Whether the agents have been heard, so that things may be started and let go."""
        return self._state is not None and self._state.settled

    @property
    def endpoints_version(self) -> int:
        """Version of the newest endpoints snapshot of this epoch, 0 for none yet."""
        return self._publisher.version

    def handle(self, event: Event, now: float) -> list[Action]:
        """Folds one event in. An operator's event about nothing raises UnknownSubject and changes
        nothing. What is returned is only to be said; writes come from `decide`."""
        if isinstance(event, TookOver):
            self._take_over(event, now)
            return self._said()
        state = self._at(now)
        match event:
            case ReportRead():
                self.due = fold(state, event.report) or self.due
                return self._said()
            case CatalogChanged():
                _change_catalog(state, event)
            case PresenceSeen():
                used = state.routers.see(event.presences, event.known)
                state.idle.reset(used)
            case WantedHeard():
                model = state.catalog.target(event.model) or event.model
                state.wanted_until[model] = now + state.limits.wanted_held
                state.idle.reset([model])
            case ExternalKeysRead():
                state.external_keys = dict(event.keys)
            case NodeDrained():
                drain_node(state, event)
            case NodeForgotten():
                forget_node(state, event)
            case NodeLostByOperator():
                lose_node(state, event)
            case RestartAsked():
                restart_replica(state, event)
            case ModelStopped():
                stop_model(state, event)
        self.due = True
        return self._said()

    def decide(self, now: float) -> list[Action]:
        """One pass: at most one Commit, then what is to be said. While it returns something, another
        pass is due 100 ms later."""
        state = self._at(now)
        self.due = False
        _turn_nodes(state)
        _settle(state)
        adopt(state)
        advance_records(state)
        advance_models(state, self._inventories)
        watch_obedience(state)
        return take_commit(state, self._publisher)

    def view(self, now: float) -> ClusterView:
        """Everything that people are shown."""
        return view_of(self._at(now), self._inventories, self._publisher.version)

    def explain(self, model: str, now: float) -> Explanation:
        """Why the model is as it is, per node. UnknownSubject where there is no such model."""
        return explain_model(self._at(now), self._inventories, model)

    def _take_over(self, event: TookOver, now: float) -> None:
        self._state = ClusterState(event, now, self._limits, self._draw_key, self._jitter)
        self._publisher = Publisher()
        self._inventories = InventoryCache()
        for node in self._state.nodes.by_name.values():
            ask_for_full(self._state, node)
        self._state.say("info", "orchestrator", "took over", f"epoch {event.epoch}")
        self.due = True

    def _at(self, now: float) -> ClusterState:
        if self._state is None:
            raise NotTakenOver("the first event must be TookOver")
        self._state.now = max(self._state.now, now)
        return self._state

    def _said(self) -> list[Action]:
        if self._state is None:
            return []
        said: list[Action] = [*self._state.said]
        self._state.said = []
        return said


def _change_catalog(state: ClusterState, event: CatalogChanged) -> None:
    gone = set(state.catalog.models) - set(event.catalog.models) - set(event.catalog.skipped)
    state.catalog = event.catalog
    for name in gone:
        state.put_model(name, ModelState())
        state.wanted_until.pop(name, None)
    state.say("info", "catalog", "changed", f"{len(event.catalog.models)} models")


def _turn_nodes(state: ClusterState) -> None:
    """What silence makes of nodes."""
    multi_node = {
        name
        for record in state.records.values()
        if len(record.shards) > 1 and record.state != "stopping"
        for name in record.nodes
    }
    witnessed = {
        record.head.node
        for record in state.records.values()
        if record.state in ("ready", "draining", "lost")
        and state.nodes.state_of(record.head.node) != "ready"
        and state.routers.witnessed_down(record)
    }
    before = state.nodes.brake
    for node, cause in state.nodes.advance(state.now, multi_node, witnessed):
        level: Level = "warning" if cause == "silent" else "error"
        seconds = node.silence * state.limits.echo
        state.say(level, f"node {node.name}", node.state, f"silent for {seconds:.0f} s")
    if state.nodes.brake and not before:
        state.say("error", "cluster", "mass silence", "no node becomes Lost while it lasts")
    elif before and not state.nodes.brake:
        state.say("info", "cluster", "mass silence is over")


def _settle(state: ClusterState) -> None:
    """Over when every known node has sent a Full, or 30 s after the take-over."""
    if state.settled:
        return
    since = state.now - state.took_over_at
    nodes = [node for node in state.nodes.by_name.values() if node.state != "lost"]
    over = all(node.heard for node in nodes)
    # A store that knows no node may have been emptied, and surely was when an agent has had a leader
    # before: the others are given time to speak, or what they run would be started twice.
    if not state.had_nodes and (not nodes or any(node.applied.epoch for node in nodes)):
        over = over and since >= state.limits.settling_unknown
    if over or since >= state.limits.settling:
        state.settled = True
        state.settled_at = state.now
        unheard = [node.name for node in nodes if not node.heard]
        words = f"not heard: {', '.join(unheard)}" if unheard else "every node was heard"
        state.say("info", "orchestrator", "settled", words)
