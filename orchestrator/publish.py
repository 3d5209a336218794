"""The three snapshots for the routers: built whole, numbered, and written only when they differ.

The endpoints are numbered by the reconciler, because a drain ends when the routers have applied the
very version that withdrew them. A leader's first version of each is 1 in its own epoch, which is above everything an earlier leader
wrote. An unchanged snapshot is not written again: routers are woken for changes only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from orchestrator.store import SnapshotWrite
from orchestrator.wire.codec import encode
from orchestrator.wire.feed import SnapshotNotice
from orchestrator.wire.keys import Snapshot
from orchestrator.wire.snapshots import (
    AccessSnapshot,
    CatalogSnapshot,
    EndpointsSnapshot,
    KeyEntry,
    Limits,
    ModelEntry,
)


class Prepared(NamedTuple):
    """A snapshot on its way: ``content`` becomes the published one when the write has succeeded."""

    write: SnapshotWrite
    content: bytes


class Publisher:
    """Numbers the snapshots of one term. Nothing counts as published before `written`."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._versions: dict[Snapshot, int] = {"catalog": 0, "access": 0}
        self._published: dict[Snapshot, bytes] = {}

    @property
    def versions(self) -> Mapping[Snapshot, int]:
        """The newest version of each that was written."""
        return self._versions

    def catalog(self, models: Sequence[ModelEntry]) -> Prepared | None:
        """The catalog's next snapshot, or None when it would say the same."""
        version = self._versions["catalog"] + 1
        return self._prepare("catalog", CatalogSnapshot(self._epoch, version, list(models)))

    def access(self, keys: Mapping[str, KeyEntry], scopes: Mapping[str, Limits]) -> Prepared | None:
        """The next access snapshot, or None when it would say the same."""
        version = self._versions["access"] + 1
        return self._prepare(
            "access", AccessSnapshot(self._epoch, version, dict(sorted(keys.items())), dict(scopes))
        )

    def written(self, prepared: Prepared) -> None:
        """The snapshot is in the store."""
        self._versions[prepared.write.name] = prepared.write.version
        self._published[prepared.write.name] = prepared.content

    def _prepare(
        self, name: Snapshot, snapshot: CatalogSnapshot | AccessSnapshot
    ) -> Prepared | None:
        content = encode(msgspec.structs.replace(snapshot, version=0))
        if self._published.get(name) == content:
            return None
        return Prepared(_write(name, snapshot), content)


def endpoints_write(snapshot: EndpointsSnapshot) -> SnapshotWrite:
    """The endpoints as the reconciler has numbered them."""
    return _write("endpoints", snapshot)


def _write(
    name: Snapshot, snapshot: CatalogSnapshot | EndpointsSnapshot | AccessSnapshot
) -> SnapshotWrite:
    notice = SnapshotNotice(name, snapshot.epoch, snapshot.version)
    return SnapshotWrite(name, snapshot.version, encode(snapshot), encode(notice))
