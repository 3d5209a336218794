from __future__ import annotations

import asyncio

import pytest

from orchestrator import run_together
from orchestrator.run_together import end_all, until_one_ends


async def forever() -> None:
    await asyncio.Event().wait()


async def test_the_first_end_ends_all_and_is_raised() -> None:
    ended: list[str] = []

    async def other() -> None:
        try:
            await forever()
        finally:
            ended.append("other")

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        await until_one_ends([other(), fails()])
    assert ended == ["other"]


async def test_a_cancellation_that_was_dropped_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_together, "CANCEL_AGAIN", 0.02)
    dropped = 0

    async def drops() -> None:
        nonlocal dropped
        while dropped < 2:
            try:
                await forever()
            except asyncio.CancelledError:
                dropped += 1
        await forever()

    task = asyncio.ensure_future(drops())
    await asyncio.sleep(0)
    await end_all([task])
    assert (dropped, task.cancelled()) == (2, True)


async def test_whoever_is_cancelled_while_ending_ends_the_rest_first() -> None:
    ended = False

    async def slow() -> None:
        nonlocal ended
        try:
            await forever()
        finally:
            await asyncio.sleep(0.05)
            ended = True

    outer = asyncio.ensure_future(until_one_ends([slow(), asyncio.sleep(0)]))
    await asyncio.sleep(0.01)
    outer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await outer
    assert len(asyncio.all_tasks()) == 1, "nothing is left running"
