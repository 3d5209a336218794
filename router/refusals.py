"""The words of every refusal of admission, made in one place from its reason."""

from __future__ import annotations

import zlib

from router.admit import (
    AllTried,
    Loading,
    NothingServes,
    QueueFull,
    Reason,
    SwitchedOff,
    WaitedTooLong,
)
from router.errors import ModelLoading, ModelOff, NoEndpoint, Overloaded, RouterError

#: Where nothing is known of how long it takes.
USUAL_WAIT_S = 5.0
SPREAD = 0.1

_KINDS = {
    "none": "no endpoint serves it",
    "removed": "it has been removed",
    "stopping": "this router is stopping",
    "no_room": "there is no room for it",
    "held_back": "it is held back for another model",
    "failed": "its last start failed",
    "needs_change": "it cannot start until its definition is changed",
}


def to_error(reason: Reason, model: str, client: str) -> RouterError:
    """The answer for a request to ``model`` that got no place; ``client`` spreads the retries."""
    match reason:
        case QueueFull(waiting, drain):
            return Overloaded(
                f"the model {model!r} is overloaded: {waiting} requests wait and no more may; try again later",
                retry_after=spread(drain, client),
            )
        case WaitedTooLong(limit, drain):
            return Overloaded(
                f"the model {model!r} is overloaded: this request waited its {limit:g} s; try again later",
                retry_after=spread(drain, client),
            )
        case Loading(limit, eta):
            about = "" if eta is None else f", about {eta:.0f} s to go"
            return ModelLoading(
                f"the model {model!r} is being loaded{about}; this request was held {limit:g} s, try again",
                param="model",
                retry_after=spread(USUAL_WAIT_S if eta is None else eta, client),
            )
        case SwitchedOff():
            return ModelOff(
                f"the model {model!r} is switched off (its maximum is 0); an operator can switch it on",
                param="model",
                hopeless=True,
            )
        case NothingServes(kind, text, next_try):
            why = _KINDS.get(kind, kind)
            told = f": {text}" if text else ""
            when = "" if next_try is None else f"; next try in {next_try:.0f} s"
            return NoEndpoint(
                f"the model {model!r} cannot answer now, {why}{told}{when}",
                param="model",
                retry_after=spread(USUAL_WAIT_S if next_try is None else next_try, client),
            )
        case AllTried():
            return NoEndpoint(
                f"the model {model!r} cannot answer now: no endpoint of it could be used; try again",
                param="model",
                retry_after=spread(1.0, client),
            )


def spread(seconds: float, client: str) -> float:
    """The wait, up to 10 % more or less by client, so that all do not return together; 1 to 60 s."""
    turn = zlib.crc32(client.encode()) / 0xFFFFFFFF * 2 - 1
    return min(max(seconds * (1 + SPREAD * turn), 1.0), 60.0)
