"""Tasks that lose a cancellation end all the same."""

from __future__ import annotations

import asyncio

import pytest

from agent.task_end import end_tasks, until_first


async def loses(cancellations: int) -> None:
    """Goes on after that many cancellations, as a library may."""
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            if cancellations == 0:
                raise
            cancellations -= 1


async def fails() -> None:
    raise ValueError("first")


async def test_a_lost_cancellation_is_repeated():
    tasks = [asyncio.create_task(loses(n)) for n in (0, 1, 3)]
    await asyncio.sleep(0)
    await end_tasks(tasks)
    assert all(task.cancelled() for task in tasks)


async def test_the_callers_own_cancellation_comes_after():
    inner = asyncio.create_task(loses(2))
    await asyncio.sleep(0)
    outer = asyncio.create_task(end_tasks([inner]))
    await asyncio.sleep(0)
    outer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await outer
    assert inner.cancelled()


async def test_the_first_failure_ends_the_others_and_is_raised():
    other = asyncio.create_task(loses(2))
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="first"):
        await until_first([other, asyncio.create_task(fails())])
    assert other.cancelled()


async def test_cancelled_from_outside_all_end():
    inner = asyncio.create_task(loses(1))
    outer = asyncio.create_task(until_first([inner]))
    await asyncio.sleep(0.01)
    outer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await outer
    assert inner.cancelled()
