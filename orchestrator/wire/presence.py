"""Router worker to orchestrator (presence) and to the other workers (moves)."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from orchestrator.wire.codec import PROTOCOL, Reader


class Version(msgspec.Struct, frozen=True, order=True):
    """(epoch, version) of a snapshot that is applied."""

    epoch: int = 0
    version: int = 0


class Held(msgspec.Struct, frozen=True):
    """Requests in flight at an endpoint of one generation, and uncached tokens not yet answered."""

    endpoint: str
    generation: int
    requests: int
    tokens: int = 0


class Demand(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a model is asked for. ``begun`` counts requests since the worker's start."""

    in_flight: int = 0
    waiting: int = 0
    waiting_tokens: int = 0
    oldest_wait: float | UnsetType = UNSET
    wanted: bool = False
    begun: int = 0


class Down(msgspec.Struct, frozen=True):
    """An endpoint whose circuit is open here: the witness that a silent node does not serve."""

    endpoint: str
    generation: int
    since: float
    error: str


class Totals(msgspec.Struct, frozen=True):
    """Cumulative, per model, since the worker's start."""

    requests: int = 0
    failed: int = 0
    refused: int = 0
    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    first_token_buckets: list[int] = []


class Presence(msgspec.Struct, frozen=True):
    """``router:<id>``: written first with no versions, before the snapshots are read."""

    worker: str
    host: str
    versions: dict[str, Version]
    draining: bool
    held: list[Held]
    used: list[str]
    demand: dict[str, Demand]
    down: list[Down]
    totals: dict[str, Totals]
    version: str
    protocol: int = PROTOCOL


class Waiting(msgspec.Struct, frozen=True):
    """Of one model and class."""

    model: str
    klass: str = msgspec.field(name="class")
    requests: int = 0
    tokens: int = 0
    oldest: float = 0.0


class Moves(msgspec.Struct, frozen=True, tag="moves", omit_defaults=True):
    """What a worker holds, in absolute numbers; a full message lists everything, the rest is 0."""

    worker: str
    number: int
    full: bool
    held: list[Held] = []
    waiting: list[Waiting] = []
    open: dict[str, float] = {}
    sent: dict[str, list[int]] = {}


class WorkerBye(msgspec.Struct, frozen=True, tag="bye"):
    """The worker ends; what it held is dropped whole."""

    worker: str


read_presence = Reader(Presence)
read_moves: Reader[Moves | WorkerBye] = Reader(Moves | WorkerBye)  # type: ignore[arg-type]
