"""Errors of the orchestrator."""

from __future__ import annotations


class OrchestratorError(Exception):
    """Base of this package's errors; never raised itself."""


class CatalogRefused(OrchestratorError):
    """A definition, or the whole catalog, is not acceptable (R4, R10, R11).

    ``place`` is where it is written (``models[2].profiles[0].tp``), ``reason`` what is wrong there,
    ``remedy`` what to write or do instead.
    """

    def __init__(self, place: str, reason: str, remedy: str = "") -> None:
        super().__init__(f"{place}: {reason}" + (f"; {remedy}" if remedy else ""))
        self.place = place
        self.reason = reason
        self.remedy = remedy


class IllegalTransition(OrchestratorError):
    """A replica or a node was asked for a change that its table does not have; nothing was changed."""

    def __init__(self, subject: str, state: str, cause: str) -> None:
        super().__init__(f"{subject} is {state}: the table has no row for {cause!r}")
        self.subject = subject
        self.state = state
        self.cause = cause


class NotTakenOver(OrchestratorError):
    """The reconciler was used before its first event, which is the take-over."""


class UnknownSubject(OrchestratorError):
    """A person named a node, model or replica that does not exist here."""
