"""The leader's loop: one queue for everything that comes in, so that nobody else touches the term."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from orchestrator.changes import Change
from orchestrator.errors import CatalogRefused, IllegalTransition, UnknownSubject
from orchestrator.inflow import Inflow
from orchestrator.reconcile.events import Event, PresenceSeen, ReportRead
from orchestrator.run_together import until_one_ends
from orchestrator.shell_errors import ChangeRefused, StoreAway
from orchestrator.term import Term
from orchestrator.wire.reports import Full

log = logging.getLogger("llmgw.orchestrator")

Answer = dict[str, Any]
#: Makes one change on the term and returns what its asker is told.
CarryOut = Callable[[Term, Change], Awaitable[Answer]]

#: Refusals of a change: told to the asker; the term goes on.
REFUSALS = (CatalogRefused, ChangeRefused, IllegalTransition, UnknownSubject)


class Asked(NamedTuple):
    """A change on its way through the queue; the future takes its answer or its refusal."""

    change: Change
    answer: asyncio.Future[Answer]


class Leading:
    """One term at work. `run` ends only by an exception."""

    def __init__(self, term: Term, carry_out: CarryOut) -> None:
        self.term = term
        self._carry_out = carry_out
        self._times = term.around.times
        self._queue: asyncio.Queue[Event | Asked] = asyncio.Queue()
        #: Whether the take-over is done, so that there is something to show and to change.
        self.begun = False

    async def run(self) -> None:
        """Takes over, then leads until a write or the store says that this cannot go on."""
        inflow = Inflow(self.term.around, self.term.epoch, self._queue.put_nowait)
        try:
            reader = await self.term.take_over()
            self.begun = True
            await until_one_ends(
                [
                    self._loop(),
                    inflow.echoes(reader),
                    inflow.reports(reader),
                    inflow.presences(),
                    inflow.wanted(),
                    inflow.external_keys(lambda: self.term.catalog),
                ]
            )
        finally:
            self.begun = False
            self._refuse_what_waits()

    def submit(self, change: Change) -> asyncio.Future[Answer]:
        """Puts a change into the queue; its answer comes when its write has succeeded."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(Asked(change, answer))
        return answer

    async def _loop(self) -> None:
        await self.term.make_pass()
        ended = self.term.now()
        while True:
            wait = self._pass_wait() - (self.term.now() - ended)
            one = await self._next(max(wait, 0.0))
            if one is not None:
                await self._take_in(one)
            if self.term.now() - ended >= self._pass_wait():
                await self.term.make_pass()
                ended = self.term.now()

    def _pass_wait(self) -> float:
        return self._times.pass_gap if self.term.reconciler.due else self._times.pass_limit

    async def _next(self, wait: float) -> Event | Asked | None:
        """What came first, or None when nothing came in time."""
        if not self._queue.empty():
            return self._queue.get_nowait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                return await self._queue.get()
        return None

    async def _take_in(self, one: Event | Asked) -> None:
        if isinstance(one, Asked):
            await self._answer(one)
            return
        if isinstance(one, ReportRead) and isinstance(one.report, Full):
            self.term.fulls[one.report.node] = one.report
        if isinstance(one, PresenceSeen):
            self.term.presences = tuple(one.presences.values())
        try:
            actions = self.term.reconciler.handle(one, self.term.now())
        except (IllegalTransition, UnknownSubject) as error:
            # It raised and changed nothing; one odd report must not end every term that reads it.
            log.error("an event was left out: %s", error)
            return
        await self.term.perform(actions)

    async def _answer(self, asked: Asked) -> None:
        if asked.answer.done():
            return
        try:
            answer = await self._carry_out(self.term, asked.change)
        except REFUSALS as error:
            _refuse(asked, error)
        except asyncio.CancelledError:
            _refuse(asked, StoreAway("leadership ended", unsure=True))
            raise
        except Exception as error:
            _refuse(asked, error)
            raise
        else:
            if not asked.answer.done():
                asked.answer.set_result(answer)

    def _refuse_what_waits(self) -> None:
        while not self._queue.empty():
            one = self._queue.get_nowait()
            if isinstance(one, Asked):
                _refuse(one, StoreAway("leadership ended before it was begun"))


def _refuse(asked: Asked, error: Exception) -> None:
    if not asked.answer.done():
        asked.answer.set_exception(error)
