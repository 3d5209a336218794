"""Errors of ctl: three lines (what, why with numbers, what to type) and an exit code."""

from __future__ import annotations

REFUSED = 1
USAGE = 2
UNREACHABLE = 3
RAN_OUT = 4
FAILED_WAITING = 5
INTERRUPTED = 130


class CtlError(Exception):
    """Base of these errors; never raised itself."""

    exit_code = REFUSED
    kind = "error"

    def __init__(self, what: str, why: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.remedy = remedy

    def lines(self) -> list[str]:
        """What is printed; a part that there is not takes no line."""
        rest = [self.why, f"try: {self.remedy}" if self.remedy else ""]
        return [f"error: {self.what}", *(f"  {line}" for line in rest if line)]


class Refused(CtlError):
    """The control plane said no."""

    kind = "refused"


class BadUsage(CtlError):
    """What was typed cannot be understood."""

    exit_code = USAGE
    kind = "usage"


class Unreachable(CtlError):
    """No control plane answers, or it does not lead."""

    exit_code = UNREACHABLE
    kind = "unreachable"


class RanOut(CtlError):
    """What was waited for did not happen in time."""

    exit_code = RAN_OUT
    kind = "ran_out"


class FailedWaiting(CtlError):
    """What was waited for failed."""

    exit_code = FAILED_WAITING
    kind = "failed"
