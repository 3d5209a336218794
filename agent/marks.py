"""What must survive the agent: node id, newest want, marks of launched generations, engines' records.

    <state>/lock                     held while an agent works here
    <state>/node_id                  drawn once; tells a re-imaged machine
    <state>/want.msgpack             the highest want obeyed
    <state>/marks.json               generation -> when it was marked (ms)
    <state>/taken_along.json         generations that ended with an agent told to take them along
    <state>/engines/<generation>/    engine.msgpack (record), log, and the files its plan asked for

Every write is: temporary file, fsync, rename, fsync of the folder. Files are 0600 and folders 0700,
for they hold engine keys.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from agent.engines.launch_plan import Probes
from agent.errors import BadStateFolder, StateFolderBusy
from agent.process_facts import Identity
from orchestrator.wire.codec import encode
from orchestrator.wire.errors import UnreadableMessage
from orchestrator.wire.reports import Failure
from orchestrator.wire.want import ShardWant, Want, read_want

_NODE_ID = re.compile(rb"[A-Za-z0-9_-]{1,64}")
_GENERATION = re.compile(r"[1-9][0-9]{0,18}")
#: Folders of ended engines that are kept for their logs.
ENDED_KEPT = 20


class EngineRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One engine as it was started: enough to adopt it."""

    shard: ShardWant
    identity: Identity
    ports: list[int]
    launched_ms: int
    url: str | UnsetType = UNSET
    fabric_address: str | UnsetType = UNSET
    digest: str | UnsetType = UNSET
    cgroup: str = ""
    adapter_paths: tuple[str, ...] = ()
    #: None: this rank serves no HTTP.
    probes: Probes | None = None
    was_ready: bool = False
    ended: bool = False
    first_failure: Failure | UnsetType = UNSET


class StateFolder:
    """The files of one agent. Opening takes the lock; StateFolderBusy when another agent has it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._engines = path / "engines"
        for folder in (path, self._engines):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise StateFolderBusy(
                f"another agent works on {path}; end it, or give this one its own --state folder"
            ) from None

    def close(self) -> None:
        """Gives the lock back."""
        os.close(self._lock)

    def node_id(self, fresh: str) -> str:
        """The id kept here; ``fresh`` is kept where there is none yet."""
        file = self.path / "node_id"
        kept = b""
        with contextlib.suppress(FileNotFoundError):
            kept = file.read_bytes().strip()
        if not kept:
            write_durably(file, fresh.encode())
            return fresh
        if _NODE_ID.fullmatch(kept) is None:
            raise BadStateFolder(
                f"{file} holds no node id ({kept[:40]!r}); engines are known by it. Put it back from a"
                " copy, or stop the engines of this node and delete the whole state folder"
            )
        return kept.decode()

    def want(self) -> Want | None:
        """The want on disk; BadStateFolder where it cannot be read."""
        try:
            return read_want((self.path / "want.msgpack").read_bytes())
        except FileNotFoundError:
            return None
        except UnreadableMessage as error:
            raise BadStateFolder(_unreadable(self.path / "want.msgpack", error)) from None

    def keep_want(self, want: Want) -> None:
        """Replaces the want on disk."""
        write_durably(self.path / "want.msgpack", encode(want))

    def marks(self) -> dict[int, int]:
        """Generation -> when it was marked; BadStateFolder where it cannot be read."""
        try:
            return msgspec.json.decode((self.path / "marks.json").read_bytes(), type=dict[int, int])
        except FileNotFoundError:
            return {}
        except msgspec.MsgspecError as error:
            raise BadStateFolder(_unreadable(self.path / "marks.json", error)) from None

    def keep_marks(self, marks: Mapping[int, int]) -> None:
        """Replaces the marks on disk; on return they survive a crash."""
        write_durably(self.path / "marks.json", msgspec.json.encode(marks))

    def taken_along(self) -> frozenset[int]:
        """Generations whose engines ended with an agent that was told to take them along."""
        try:
            kept = (self.path / "taken_along.json").read_bytes()
            return frozenset(msgspec.json.decode(kept, type=list[int]))
        except (FileNotFoundError, msgspec.MsgspecError):
            return frozenset()

    def keep_taken_along(self, generations: Iterable[int]) -> None:
        """Replaces the list of them."""
        write_durably(self.path / "taken_along.json", msgspec.json.encode(sorted(generations)))

    def engine_folder(self, generation: int) -> Path:
        """The folder of one generation's engine; made when it is not there."""
        folder = self._engines / str(generation)
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def keep_engine(self, record: EngineRecord) -> None:
        """Replaces the record of an engine."""
        folder = self.engine_folder(record.shard.generation)
        write_durably(folder / "engine.msgpack", encode(record))

    def engines(self) -> tuple[list[EngineRecord], list[str]]:
        """The records of engines not yet ended, and what could not be read, in words."""
        records: list[EngineRecord] = []
        problems: list[str] = []
        for folder in sorted(self._engines.iterdir()):
            if _GENERATION.fullmatch(folder.name) is None:
                continue
            try:
                record = msgspec.msgpack.decode(
                    (folder / "engine.msgpack").read_bytes(), type=EngineRecord
                )
            except FileNotFoundError:
                continue
            except (OSError, msgspec.MsgspecError) as error:
                problems.append(
                    f"{folder}: its record cannot be read and it is left alone: {error}"
                )
                continue
            if not record.ended:
                records.append(record)
        return records, problems

    def drop_old_engines(self, kept: frozenset[int]) -> None:
        """Deletes the folders of engines that are not in ``kept``, but for the newest few."""
        names = [f for f in self._engines.iterdir() if _GENERATION.fullmatch(f.name)]
        ended = sorted((f for f in names if int(f.name) not in kept), key=lambda f: int(f.name))
        for folder in ended[:-ENDED_KEPT]:
            shutil.rmtree(folder, ignore_errors=True)


def write_durably(file: Path, content: bytes) -> None:
    """Replaces ``file`` so that after a crash it holds the old content or the new, whole."""
    temporary = file.with_name(file.name + ".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb", closefd=False) as out:
            out.write(content)
        os.fsync(fd)
    finally:
        os.close(fd)
    temporary.rename(file)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _unreadable(file: Path, error: Exception) -> str:
    return (
        f"{file} cannot be read ({error}); without it a generation could be launched twice. Put it"
        " back from a copy, or stop the engines of this node and delete the whole state folder"
    )
