"""A model as a person writes it: the keys of cluster.yaml, the same as JSON for a stored model (R13).

A key that is not written is ``UNSET``; nothing is filled in here, so that a definition keeps its
meaning when a default is added later (R14, R92, R186). What an absent key means is a property.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from orchestrator.sharing.classes import ModelClass
from orchestrator.wire.durations import seconds_of
from orchestrator.wire.profile import Adapter, Profile
from orchestrator.wire.snapshots import Limits

Duration = str | int | float
Keepalive = Literal["comment", "off"]

#: 15 minutes without a request, then an on-demand model gives its room back (R94).
IDLE_TIMEOUT = 900.0


class Scaling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many copies. No section at all: off (R93)."""

    min: int | UnsetType = UNSET
    max: int | UnsetType = UNSET
    idle_timeout: Duration | UnsetType = UNSET
    headroom: int | UnsetType = UNSET


class External(msgspec.Struct, frozen=True, omit_defaults=True):
    """A provider's model (R122): base URL, its name there, the file with the key."""

    url: str
    model: str
    api_key_file: str


class TimeoutKeys(msgspec.Struct, frozen=True, omit_defaults=True):
    """Durations to the first byte, between bytes, in all."""

    first_byte: Duration | UnsetType = UNSET
    idle: Duration | UnsetType = UNSET
    total: Duration | UnsetType = UNSET


class ModelDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """One model. Either ``profiles`` (tried in order) or ``external``."""

    name: str
    description: str | UnsetType = UNSET
    aliases: list[str] = []
    context_length: int | UnsetType = UNSET
    capabilities: list[str] = []
    owner: str | UnsetType = UNSET
    klass: ModelClass | UnsetType = msgspec.field(name="class", default=UNSET)
    scaling: Scaling | UnsetType = UNSET
    fallbacks: list[str] = []
    limits: Limits = Limits()
    max_output_tokens: int | UnsetType = UNSET
    media_urls: bool = False
    timeouts: TimeoutKeys = TimeoutKeys()
    stream_keepalive: Keepalive = "comment"
    adapters: list[Adapter] = []
    profiles: list[Profile] = []
    external: External | UnsetType = UNSET

    @property
    def least(self) -> int:
        """Copies that always run."""
        if self.scaling is UNSET or self.scaling.min is UNSET:
            return 0
        return self.scaling.min

    @property
    def most(self) -> int:
        """Copies that may run: an absent maximum is the minimum, so that nothing written before it
        existed becomes on demand (R91-R93)."""
        if self.scaling is UNSET or self.scaling.max is UNSET:
            return self.least
        return self.scaling.max

    @property
    def on_demand(self) -> bool:
        """Loaded by a request, stopped when idle (R90)."""
        return self.least == 0 and self.most > 0

    @property
    def idle_timeout(self) -> float:
        """Seconds without use after which an on-demand model stops."""
        if self.scaling is UNSET or self.scaling.idle_timeout is UNSET:
            return IDLE_TIMEOUT
        return seconds_of(self.scaling.idle_timeout)

    @property
    def simulated(self) -> bool:
        """Derived, never configured: every profile is on the sim engine (R29)."""
        return bool(self.profiles) and all(profile.engine == "sim" for profile in self.profiles)
