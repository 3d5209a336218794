"""backup.json: what this instance last saw of documents and records, for the day the store is lost.

It holds engine keys, so the file is 0600. Written whole to a side file, synced and renamed, so that
a crash leaves the old one.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from orchestrator.store import Stored

#: Raised when an older orchestrator could not read the file.
SCHEMA = 1
NAME = "backup.json"


class Backup(msgspec.Struct, frozen=True):
    """Documents and records of one moment; the rows are the store's own JSON texts.

    ``kept``: the store went back and lost every key, so this one is not written over, however far
    the store's version rises, until there is a key again.
    """

    cluster: str
    epoch: int
    doc_version: int
    documents: dict[str, dict[str, str]]
    replicas: dict[str, str]
    reservations: dict[str, str]
    models: dict[str, str]
    schema: int = SCHEMA
    kept: bool = False

    @property
    def keys(self) -> frozenset[str]:
        """Digests of the stored API keys."""
        return frozenset(self.documents.get("keys", {}))

    def is_ahead_of(self, stored: Stored) -> bool:
        """Whether it knows more than the store: that was emptied, or went back."""
        return stored.doc_version < self.doc_version or (self.kept and not stored.documents["keys"])


def backup_of(cluster: str, stored: Stored) -> Backup:
    """What of a reading of the store is kept."""
    return Backup(
        cluster=cluster,
        epoch=stored.epoch,
        doc_version=stored.doc_version,
        documents=stored.documents,
        replicas=stored.replicas,
        reservations=stored.reservations,
        models=stored.models,
    )


def write_private(path: Path, content: bytes) -> None:
    """The file with this content and mode 0600, or the file as it was: write, sync, rename."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    side = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(side, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        side.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            side.unlink()


def write_backup(folder: Path, backup: Backup) -> None:
    """Keeps the backup in the state folder."""
    write_private(folder / NAME, msgspec.json.encode(backup, order="sorted"))


def read_backup(folder: Path) -> Backup | None:
    """The backup, or None when there is none that can be read."""
    try:
        return msgspec.json.decode((folder / NAME).read_bytes(), type=Backup)
    except (OSError, msgspec.MsgspecError):
        return None
