"""``wait MODEL --ready``: looks until it is so, cannot become so, or the time is up."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from orchestrator.ctl.errors import BadUsage, FailedWaiting, RanOut, Refused, Unreachable
from orchestrator.ctl.frame import Frame
from orchestrator.wire.durations import seconds_of
from orchestrator.wire.errors import BadDuration

#: Seconds between two looks.
LOOK = 0.3
#: Seconds after which a countdown or a percentage is said again.
SAY_AGAIN = 30.0
#: States in which it never becomes ready by waiting.
_HOPELESS = ("needs_change", "refused")


def seconds(written: str) -> float:
    """A duration of the command line."""
    try:
        return seconds_of(written)
    except BadDuration as error:
        raise BadUsage(f"--timeout: {error}") from None


def until_ready(
    frame: Frame,
    name: str,
    limit: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """The model once it is ready. RanOut, FailedWaiting; Refused where it is off or there is none."""
    client = frame.client()
    end = clock() + limit
    failures: int | None = None
    shown = said = ""
    say_again = end
    while True:
        try:
            item = client.get("models", name)
        except Unreachable as error:
            shown = news = error.what
        else:
            if _ready(item):
                return item
            failures = _check(item, failures)
            shown = ", ".join(str(item[key]) for key in ("state", "note") if item.get(key))
            # The note counts down to the next try; that is no news.
            news = f"{item.get('state')} {item.get('reason')}"
        if news != said or clock() >= say_again:
            frame.say(f"{name}: {shown}")
            said, say_again = news, clock() + SAY_AGAIN
        if clock() >= end:
            raise RanOut(
                f"model {name} was not ready within {limit:.0f} s",
                f"it is {shown}",
                f"llmgw ctl explain {name}",
            )
        sleep(LOOK)


def _ready(item: dict[str, Any]) -> bool:
    if item.get("external"):
        return item.get("state") in ("ready", "external")
    return int(item.get("ready", 0)) >= max(1, int(item.get("wanted", 0)))


def _check(item: dict[str, Any], failures: int | None) -> int:
    """Failures in a row so far; raises where waiting has become senseless."""
    name, state = item["name"], item.get("state")
    why = str(item.get("last_failure") or item.get("reason") or "")
    if state == "off":
        remedy = f"llmgw ctl model start {name}" if item.get("stopped") else "set scaling: {min: 1}"
        raise Refused(f"model {name} is off", why, remedy)
    now = int(item.get("failures", 0))
    if state in _HOPELESS or (failures is not None and now > failures):
        raise FailedWaiting(f"model {name} failed", why, f"llmgw ctl model show {name}")
    return now if failures is None else min(failures, now)
