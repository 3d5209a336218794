"""Tasks that belong together: when one ends all end, and none outlives the others.

A cancellation is repeated until the task has ended: redis-py sends through ``asyncio.wait_for``,
which on Python 3.11 drops a cancellation that comes in the moment in which its work is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

#: Seconds after which a task that has not ended is cancelled again.
CANCEL_AGAIN = 1.0


async def end_all(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancels all and returns when all have ended, even when the caller is cancelled meanwhile."""
    interrupted: asyncio.CancelledError | None = None
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        try:
            await asyncio.wait(pending, timeout=CANCEL_AGAIN)
        except asyncio.CancelledError as error:
            interrupted = error
    for task in tasks:
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not report it as forgotten
    if interrupted is not None:
        raise interrupted


async def until_one_ends(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Runs all until the first ends, ends the others, and raises what the first raised."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_all(tasks)
    for task in done:
        task.result()
