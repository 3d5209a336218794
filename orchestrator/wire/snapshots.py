"""Leader to routers: three whole snapshots, each with (epoch, version)."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from orchestrator.wire.codec import PROTOCOL, Reader

EndpointState = Literal["ready", "unconfirmed", "draining"]
#: Why a model has no ready endpoint.
AbsenceKind = Literal["off", "idle", "loading", "no_room", "held_back", "failed", "needs_change"]


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Per minute: requests, tokens; at once: concurrency. Unset: no limit; 0: nothing passes."""

    rpm: int | UnsetType = UNSET
    tpm: int | UnsetType = UNSET
    concurrency: int | UnsetType = UNSET


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds: to the first byte, between bytes, in all."""

    first_byte: float = 300.0
    idle: float = 120.0
    total: float = 3600.0


class AdapterEntry(msgspec.Struct, frozen=True):
    """An adapter as a client-visible name."""

    name: str


class ModelEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model as a router needs it. ``created`` is Unix seconds; an absent key means absent (R19)."""

    name: str
    created: int = 0
    description: str | UnsetType = UNSET
    aliases: list[str] = []
    adapters: list[AdapterEntry] = []
    fallbacks: list[str] = []
    context_length: int | UnsetType = UNSET
    capabilities: list[str] = []
    simulated: bool = False
    external: bool = False
    owner: str | UnsetType = UNSET
    klass: str = msgspec.field(name="class", default="standard")
    limits: Limits = Limits()
    max_output_tokens: int | UnsetType = UNSET
    media_urls: bool = False
    timeouts: Timeouts = Timeouts()
    stream_keepalive: str = "comment"


class CatalogSnapshot(msgspec.Struct, frozen=True):
    """Every model of the cluster."""

    epoch: int
    version: int
    models: list[ModelEntry]
    protocol: int = PROTOCOL


class External(msgspec.Struct, frozen=True):
    """Where an external model really is."""

    url: str
    model: str
    key: str


class Endpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """One replica that answers. ``prefill_rate`` in tokens/s; ``context`` per request."""

    id: str
    generation: int
    model: str
    url: str
    engine: str
    served_name: str
    state: str = "ready"
    engine_key: str = ""
    slots: int | UnsetType = UNSET
    context: int | UnsetType = UNSET
    adapters: dict[str, str | int] = {}
    fabric: str | UnsetType = UNSET
    hardware: str | UnsetType = UNSET
    prefill_rate: float | UnsetType = UNSET
    external: External | UnsetType = UNSET


class Absence(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a model has no ready endpoint; times in seconds from the snapshot's making."""

    model: str
    kind: str
    text: str = ""
    since_ms: int | UnsetType = UNSET
    eta: float | UnsetType = UNSET
    next_try: float | UnsetType = UNSET


class EndpointsSnapshot(msgspec.Struct, frozen=True):
    """Every endpoint, and beside it each model without a ready one."""

    epoch: int
    version: int
    endpoints: list[Endpoint]
    absences: list[Absence]
    protocol: int = PROTOCOL


class KeyEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An API key. ``models`` unset: every name; ``expires_ms`` on Redis's clock."""

    id: str
    name: str
    models: list[str] | UnsetType = UNSET
    scope: str | UnsetType = UNSET
    klass: str = msgspec.field(name="class", default="standard")
    limits: Limits = Limits()
    expires_ms: int | UnsetType = UNSET
    operator: bool = False


class AccessSnapshot(msgspec.Struct, frozen=True):
    """Who may ask: hex SHA-256 of a key -> what it may do; limits of scopes."""

    epoch: int
    version: int
    keys: dict[str, KeyEntry]
    scopes: dict[str, Limits]
    protocol: int = PROTOCOL


read_catalog = Reader(CatalogSnapshot)
read_endpoints = Reader(EndpointsSnapshot)
read_access = Reader(AccessSnapshot)


def versions_field(epoch: int, version: int) -> str:
    """The value of one field of ``versions``."""
    return f"{epoch} {version}"


def parse_versions_field(value: bytes) -> tuple[int, int]:
    """(epoch, version) of one field of ``versions``."""
    epoch, _, version = value.partition(b" ")
    return int(epoch), int(version)
