"""Random histories of faults. The fake cluster checks after every step that no card is in two records
or used by two engines, that wants are the function of the records, and that no generation is launched
twice; at the end, with the faults gone, every model is where it should be."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orchestrator.reconcile.events import ModelStopped, NodeDrained, NodeForgotten
from tests.fakes.cluster import Cluster
from tests.orchestrator.reconcile.models import always, big, on_demand

NODES = ("a", "b", "c", "d")
node_names = st.sampled_from(NODES)


class Histories(RuleBasedStateMachine):
    """Four nodes in two fabrics; a model of two copies, one over two nodes, one on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.models = [
            always(least=2),
            big(profiles=[{"engine": "sim", "gpu": "H100-80GB", "tp": 4, "nodes": 2}]),
            on_demand("od", idle_timeout="1m"),
        ]
        self.cluster = Cluster(*self.models, routers=2)
        for number, name in enumerate(NODES):
            self.cluster.node(name, cards=4, fabric=f"ib-{number // 2}")
        self.cluster.lead()
        self.cluster.advance(20)

    @rule(node=node_names, seconds=st.sampled_from([1, 20, 200, 700]))
    def cut(self, node, seconds):
        self.cluster.agents[node].linked = False
        self.cluster.advance(seconds)

    @rule(node=node_names)
    def lose_and_return(self, node):
        self.cluster.agents[node].linked = False
        self.cluster.advance(700)
        self.cluster.agents[node].linked = True
        self.cluster.advance(3)

    @rule(node=node_names)
    def link(self, node):
        self.cluster.agents[node].linked = True
        self.cluster.advance(3)

    @rule(node=node_names)
    def restart_agent(self, node):
        self.cluster.agents[node].restart()
        self.cluster.advance(1)

    @rule(node=node_names)
    def reboot(self, node):
        self.cluster.agents[node].reboot()
        self.cluster.advance(1)

    @rule(node=node_names, number=st.integers(0, 5))
    def kill_engine(self, node, number):
        agent = self.cluster.agents[node]
        alive = [key for key, shard in agent.shards.items() if shard.state in ("up", "ready")]
        if alive:
            agent.kill(*alive[number % len(alive)])
        self.cluster.advance(1)

    @rule(seconds=st.sampled_from([0.5, 5, 40]))
    def new_leader(self, seconds):
        self.cluster.lead()
        self.cluster.advance(seconds)

    @rule(seconds=st.sampled_from([5, 100]))
    def no_leader(self, seconds):
        self.cluster.leading = False
        self.cluster.advance(seconds)
        self.cluster.lead()

    @rule()
    def ask(self):
        self.cluster.want("od")
        self.cluster.advance(5)

    @rule(stopped=st.booleans())
    def stop_model(self, stopped):
        self.cluster.handle(ModelStopped("m", stopped))
        self.cluster.advance(5)

    @rule(least=st.integers(1, 3))
    def scale(self, least):
        self.models[0] = always(least=least)
        self.cluster.change_catalog(*self.models)
        self.cluster.advance(5)

    @rule(node=node_names, drained=st.booleans())
    def drain(self, node, drained):
        rows = {row.name for row in self.cluster.reconciler.view(self.cluster.now).nodes}
        if node in rows:
            self.cluster.handle(NodeDrained(node, drained))
            self.cluster.drained ^= {node} if drained != (node in self.cluster.drained) else set()
        self.cluster.advance(5)

    @precondition(lambda self: self.cluster.raw_records)
    @rule()
    def lose_the_records(self):
        self.cluster.raw_records.clear()
        self.cluster.lead()
        self.cluster.advance(5)

    @rule(node=node_names)
    def forget(self, node):
        rows = {row.name: row.state for row in self.cluster.reconciler.view(self.cluster.now).nodes}
        if rows.get(node) not in (None, "ready"):
            self.cluster.handle(NodeForgotten(node))
            self.cluster.hellos.pop(node, None)
        self.cluster.advance(1)

    @rule(node=node_names, obeys=st.booleans())
    def obey(self, node, obeys):
        self.cluster.agents[node].obeys = obeys
        self.cluster.advance(5)

    @invariant()
    def the_view_can_always_be_made(self):
        view = self.cluster.reconciler.view(self.cluster.now)
        assert {row.id for row in view.replicas} == set(self.cluster.records)

    def teardown(self):
        """Invariant 7: when faults stop, everything is at wanted, no engine without a record and no
        record without an engine."""
        cluster = self.cluster
        for agent in cluster.agents.values():
            agent.linked = agent.obeys = True
        for name in sorted(cluster.drained):
            rows = {row.name for row in cluster.reconciler.view(cluster.now).nodes}
            if name in rows:
                cluster.handle(NodeDrained(name, False))
        cluster.drained.clear()
        cluster.handle(ModelStopped("m", False))
        cluster.advance(1000)
        least = self.models[0]["scaling"]["min"]
        assert cluster.states("m") == ["ready"] * least
        assert cluster.states("big") == ["ready"]
        assert cluster.states("od") == []
        running = {
            key
            for agent in cluster.agents.values()
            for key, shard in agent.shards.items()
            if shard.alive
        }
        recorded = {
            (record.id, shard.rank)
            for record in cluster.records.values()
            for shard in record.shards
        }
        assert running == recorded


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=6,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
