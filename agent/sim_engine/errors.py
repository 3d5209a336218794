"""What may go wrong in the simulated engine."""

from __future__ import annotations


class SimError(Exception):
    """Base; never raised itself."""


class BadSetting(SimError):
    """A flag has a value that cannot be used; the text says which and what to write instead."""


class RefusedJoin(SimError):
    """Rank 0 would not take this rank; the text is its reason."""


class Rejected(SimError):
    """A request that gets an error answer.

    status: the HTTP status. kind: the error's type as vLLM names it. param: the request's field
    that is wrong, where one is.
    """

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.param = param


def bad_request(message: str, param: str | None = None) -> Rejected:
    return Rejected(400, "BadRequestError", message, param)
