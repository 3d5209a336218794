"""How the process comes to its end: by a signal, by the loss of a rank, or by a fault."""

from __future__ import annotations

import asyncio
import os
import signal

from agent.sim_engine.faults import Faults

RANK_LOST = 1  # exit code


class ProcessEnd:
    """Listens to SIGTERM and SIGINT as the faults allow. The second signal ends the process at
    once; the first one, and `ask`, are waited for with `asked`."""

    def __init__(self, faults: Faults) -> None:
        self._loop = asyncio.get_running_loop()
        self._asked: asyncio.Future[int | None] = self._loop.create_future()
        self._exit: asyncio.TimerHandle | None = None
        self._faults = faults
        self.set_faults(faults)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._signalled)

    def set_faults(self, faults: Faults) -> None:
        self._faults = faults
        if self._exit is not None:
            self._exit.cancel()
            self._exit = None
        if faults.exit_after is not None:
            seconds, code = faults.exit_after
            self._exit = self._loop.call_later(seconds, os._exit, code)

    def ask(self, code: int) -> None:
        """Ends the process with this code, without a drain."""
        if not self._asked.done():
            self._asked.set_result(code)

    async def asked(self) -> int | None:
        """The exit code for an end at once; None: end in good order."""
        return await asyncio.shield(self._asked)

    def _signalled(self) -> None:
        if self._faults.ignore_sigterm:
            return
        if self._asked.done():
            os._exit(0)
        self._asked.set_result(None)
