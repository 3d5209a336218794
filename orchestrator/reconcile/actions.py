"""What the reconciler asks the shell to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from orchestrator.reconcile.records import ModelState, Record
from orchestrator.wire.snapshots import EndpointsSnapshot
from orchestrator.wire.want import Command, Want

Level = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Commit:
    """One fenced write, in this order: records, models, wants, notices, the endpoints snapshot.

    When it fails the shell drops the reconciler and takes over anew, so nothing is undone here.
    ``records`` are put by their id, ``deleted`` removed; ``models`` are put by name; ``wants`` go to
    ``want:<node>``, ``notices`` are added to ``cmd:<node>``; ``endpoints`` is a whole snapshot with
    its (epoch, version), or None when it has not changed.
    """

    records: tuple[Record, ...] = ()
    deleted: tuple[str, ...] = ()
    models: dict[str, ModelState] = field(default_factory=dict)
    wants: tuple[tuple[str, Want], ...] = ()
    notices: tuple[tuple[str, Command], ...] = ()
    endpoints: EndpointsSnapshot | None = None


@dataclass(frozen=True, slots=True)
class SayEvent:
    """A line of the stream ``events``: what happened, to whom, why."""

    level: Level
    subject: str
    what: str
    reason: str = ""


Action = Commit | SayEvent
