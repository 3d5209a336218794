"""Errors of ``llmgw up``: each is three lines for a person (what, why, what to type)."""

from __future__ import annotations


class UpError(Exception):
    """Base; never raised itself."""

    def __init__(self, what: str, why: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.remedy = remedy

    def lines(self) -> list[str]:
        """The error as it is printed."""
        found = [f"error: {self.what}"]
        if self.why:
            found.append(f"  {self.why}")
        if self.remedy:
            found.append(f"  try: {self.remedy}")
        return found


class CannotStart(UpError):
    """A part did not start; its log's last lines are the why."""


class PortTaken(UpError):
    """A port that was asked for by name belongs to another process."""


class MissingPart(UpError):
    """Something that only an installation can bring."""


class AlreadyRunning(UpError):
    """Another ``llmgw up`` holds this state folder."""


class NoAnswer(UpError):
    """The model was there and did not answer as it should."""
