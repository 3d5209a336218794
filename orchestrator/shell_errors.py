"""Errors of the orchestrator's I/O side; each message says what a person can do."""

from __future__ import annotations

from orchestrator.errors import OrchestratorError


class StoreAway(OrchestratorError):
    """Redis cannot be reached or refuses. ``unsure``: a write may have happened all the same."""

    def __init__(self, reason: str, *, unsure: bool = False) -> None:
        super().__init__(reason)
        self.unsure = unsure


class Stale(OrchestratorError):
    """A fenced write was refused: the store's epoch is not the caller's. ``stored`` None: there is none."""

    def __init__(self, own: int, stored: int | None) -> None:
        super().__init__(f"the store's epoch is {stored}, not {own}; nothing was written")
        self.own = own
        self.stored = stored


class LeaseLost(OrchestratorError):
    """This instance leads no longer; what it was about to do is left undone."""


class HigherEpochSeen(OrchestratorError):
    """An agent, a router or the store knows a higher epoch than ours: take over again above it."""

    def __init__(self, seen: int, whose: str) -> None:
        super().__init__(f"{whose} knows epoch {seen}")
        self.seen = seen


class StoreWentBack(OrchestratorError):
    """The store holds less than it did: read everything anew."""


class StoreTooNew(OrchestratorError):
    """A newer version wrote a document; this one stays standby."""

    def __init__(self, row: str, schema: int, known: int) -> None:
        super().__init__(
            f"{row} has schema {schema} and this version knows {known}; upgrade this orchestrator"
        )


class NotLeader(OrchestratorError):
    """A change was asked of a standby. ``leader``: the instance that leads, "" when none does."""

    def __init__(self, leader: str) -> None:
        super().__init__(f"{leader} leads" if leader else "nobody leads at this moment")
        self.leader = leader


class ChangeRefused(OrchestratorError):
    """A change that is not made: what, why, and what to type instead."""

    def __init__(self, what: str, why: str = "", remedy: str = "") -> None:
        super().__init__(what + (f": {why}" if why else "") + (f"; {remedy}" if remedy else ""))
        self.what = what
        self.why = why
        self.remedy = remedy


class BadRequest(ChangeRefused):
    """A request to the admin API that cannot be understood; nothing was looked at."""


class NothingSuch(ChangeRefused):
    """The thing that a change or a question names does not exist."""


class SettingsRefused(OrchestratorError):
    """The command line or a settings file cannot be used."""
