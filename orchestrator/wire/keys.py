"""Names of everything in Redis. Each begins with ``llmgw:{cluster}:`` so that one cluster is one slot.

==================  ==================  ===========================================================
key                 type                content
==================  ==================  ===========================================================
leader              string, PX 10 s     ``<instance>/<epoch>``
epoch               integer             carried by every command and snapshot
doc:<name>          hash, JSON          models, overrides, quotas, keys, nodes, declared
doc:version         integer             raised by every write of a document
doc:restored        JSON                set while a restore stands
replicas            hash, JSON          one record per replica id
reservations        hash, JSON          room held for a model
models              hash, JSON          per model: back-off, failures, load times
events              stream, ~10,000     what happened, to whom, why
orchestrators       hash                each instance's own line
nodes               hash, MessagePack   the last Hello of each node
reports             stream, ~20,000     agents' reports and the leader's echoes; field ``m``
want:<node>         string, MessagePack the node's whole wanted state
cmd:<node>          stream, ~100        notices and questions; field ``m``
catalog, endpoints, string, MessagePack snapshots for the routers
access
versions            hash                per snapshot ``<epoch> <version>``
feed                channel             version notices, load entries, wanted
moves               channel             what router workers hold
routers             sorted set          ids of live router workers by expiry (ms)
router:<id>         string, PX 15 s     presence of a worker
==================  ==================  ===========================================================
"""

from __future__ import annotations

from typing import Literal

Snapshot = Literal["catalog", "endpoints", "access"]
Document = Literal["models", "overrides", "quotas", "keys", "nodes", "declared"]

SNAPSHOTS: tuple[Snapshot, ...] = ("catalog", "endpoints", "access")
#: The one field of every stream entry.
MESSAGE_FIELD = b"m"
REPORTS_KEPT = 20_000
EVENTS_KEPT = 10_000
COMMANDS_KEPT = 100


class Keys:
    """The key names of one cluster."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        prefix = f"llmgw:{{{cluster}}}:"
        self._prefix = prefix
        self.leader = prefix + "leader"
        self.epoch = prefix + "epoch"
        self.doc_version = prefix + "doc:version"
        self.doc_restored = prefix + "doc:restored"
        self.replicas = prefix + "replicas"
        self.reservations = prefix + "reservations"
        self.models = prefix + "models"
        self.events = prefix + "events"
        self.orchestrators = prefix + "orchestrators"
        self.nodes = prefix + "nodes"
        self.reports = prefix + "reports"
        self.versions = prefix + "versions"
        self.feed = prefix + "feed"
        self.moves = prefix + "moves"
        self.routers = prefix + "routers"

    def doc(self, document: Document) -> str:
        """The hash of one kind of document."""
        return f"{self._prefix}doc:{document}"

    def snapshot(self, name: Snapshot) -> str:
        """The string that holds one snapshot."""
        return self._prefix + name

    def want(self, node: str) -> str:
        """The wanted state of one node."""
        return f"{self._prefix}want:{node}"

    def cmd(self, node: str) -> str:
        """The stream of notices and questions to one node."""
        return f"{self._prefix}cmd:{node}"

    def router(self, worker: str) -> str:
        """The presence of one router worker."""
        return f"{self._prefix}router:{worker}"
