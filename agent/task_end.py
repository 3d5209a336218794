"""Ending tasks for certain.

One ``cancel`` is not enough: a client library may lose it between two of its own timeouts, and then
the task goes on and whoever waits for it waits for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

_AGAIN = 0.2  # seconds


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels all, again and again, until each is done. What they raise is not raised here.

    A cancellation of the caller takes effect when they are done.
    """
    pending = {task for task in tasks if not task.done()}
    cancelled: asyncio.CancelledError | None = None
    while pending:
        for task in pending:
            task.cancel()
        try:
            _, pending = await asyncio.wait(pending, timeout=_AGAIN)
        except asyncio.CancelledError as error:
            cancelled = error
            pending = {task for task in pending if not task.done()}
    if cancelled is not None:
        raise cancelled


async def until_first(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Until one of them is done; then, or when cancelled, ends all. Raises what the first raised."""
    all_tasks = list(tasks)
    try:
        await asyncio.wait(all_tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        first = [task for task in all_tasks if task.done()]
        await end_tasks(all_tasks)
        for task in all_tasks:
            if not task.cancelled():
                task.exception()  # taken, so that it is not said to be lost
    for task in first:
        task.result()
