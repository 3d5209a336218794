"""What is done for one shard, one task at a time: prepare, launch, live, end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import msgspec
from msgspec import UNSET

from agent import engine_log
from agent.config import Limits
from agent.engine_process import EngineProcess
from agent.engine_start import EngineStarter
from agent.engines.adapters import ADAPTERS
from agent.errors import LaunchFailed
from agent.marks import EngineRecord, StateFolder
from agent.ports import Band
from agent.probe import EngineClient, No
from agent.shard_row import ShardRow
from agent.shard_states import Event
from agent.task_end import end_tasks
from agent.want_state import Refusal, WantState
from agent.watch_engine import EngineWatch
from agent.weights.look import look
from orchestrator.wire.reports import Failure

log = logging.getLogger("agent")

#: "Address in use" so soon after the start means the port, not the model.
_PORT_TROUBLE = 30.0  # seconds
#: How often what could not be killed is looked at again.
_STUCK_LOOK = 5.0
#: Before a watch that broke is begun again.
_WATCH_PAUSE = 5.0
#: Before a launch that Redis did not confirm is thought of again.
_UNREACHABLE_PAUSE = 1.0
#: Reasons of the machine rather than the model: they do not count for the model's back-off.
_UNCHARGED = frozenset({"no-ports", "address-in-use", "state-folder"})


class ShardLife:
    """The doing, for every row of one agent. ``changed`` is called when a report is due."""

    def __init__(
        self,
        starter: EngineStarter,
        folder: StateFolder,
        state: WantState,
        limits: Limits,
        http: aiohttp.ClientSession,
        changed: Callable[[], None],
    ) -> None:
        self._starter = starter
        self._folder = folder
        self._state = state
        self._limits = limits
        self._http = http
        self._changed = changed

    async def prepare(self, row: ShardRow) -> None:
        """Weights complete and, for several ranks, ports held: prepared. Else ended with the reason."""
        no = await self._look(row)
        if no is None and row.shard.world_size > 1:
            no = self._starter.reserve(row, time.monotonic())
        if no is not None:
            self.give_up(row, no)
        else:
            row.move(Event.COMPLETE, time.monotonic())
        self._changed()

    async def _look(self, row: ShardRow) -> Refusal | None:
        source = row.shard.profile.source
        sources = [a.source for a in row.shard.adapters]
        needs = ADAPTERS[row.shard.profile.engine].needs_weights
        if needs:
            if not isinstance(source, str):
                return Refusal("no-source", "the profile names no source of weights")
            sources.insert(0, source)
        found = []
        for each in sources if needs else []:
            answer = await asyncio.to_thread(look, each)
            if isinstance(answer, Refusal):
                return answer
            found.append(answer)
        if found:
            row.weights, row.weights_size = found[0].path, found[0].size
            row.digest = found[0].digest
            row.adapter_paths = tuple(f.path for f in found[1:])
        return None

    async def launch(self, row: ShardRow, confirm: Callable[[], Awaitable[bool]]) -> None:
        """Starts the row if Redis answers now and the newest want still says run; then lives with it."""
        if not await confirm():
            await asyncio.sleep(_UNREACHABLE_PAUSE)
            return
        wanted = self._state.shards.get(row.generation)
        if wanted is None or wanted.goal != "run" or row.generation in self._state.marks:
            return
        row.shard = wanted
        if not self._start(row):
            return
        row.move(Event.LAUNCHED, time.monotonic())
        self._changed()
        await self.live(row)

    def _start(self, row: ShardRow) -> bool:
        try:
            no = self._starter.start(row, lambda: self.mark(row.generation))
        except LaunchFailed as error:
            no = Refusal("not-started", str(error))
        except OSError as error:
            no = Refusal("state-folder", f"nothing is launched without its mark on disk: {error}")
        if no is not None:
            self.give_up(row, no)
            return False
        shard = row.shard
        pid = None if row.process is None else row.process.identity.pid
        log.info("%s of %s rank %d launched as pid %s", shard.replica, shard.model, shard.rank, pid)
        return True

    def mark(self, generation: int) -> None:
        """The generation may not be launched from now on: on disk when this returns."""
        now_ms = int(time.time() * 1000)
        self._folder.keep_marks({**self._state.marks, generation: now_ms})
        self._state.mark(generation, now_ms)

    def mark_ended(self, generation: int) -> None:
        """Marks what was never launched, so that no later want revives it."""
        if generation in self._state.marks:
            return
        try:
            self.mark(generation)
        except OSError as error:
            log.error("the end of generation %d is not kept on disk: %s", generation, error)
            self._state.mark(generation, int(time.time() * 1000))

    def give_up(self, row: ShardRow, no: Refusal) -> None:
        """Nothing runs of the row and nothing will."""
        row.fail(no.reason, no.detail, int(time.time() * 1000))
        row.charged = no.reason not in _UNCHARGED
        self.mark_ended(row.generation)
        row.move(Event.FAILED, time.monotonic(), no.reason, no.detail)
        self._starter.let_go(row, time.monotonic())
        log.warning("%s of %s: %s", row.shard.replica, row.shard.model, no.detail)
        self._changed()

    async def adopt(self, row: ShardRow, record: EngineRecord) -> None:
        """Takes a found engine as ours: ready at once when it was and its page lists our name."""
        row.record = record
        row.digest, row.fabric_address = record.digest, record.fabric_address
        row.adapter_paths = record.adapter_paths
        row.first_failure = row.last_failure = record.first_failure
        row.band = Band(record.ports[0])
        self._starter.ports.take(row.generation, row.band)
        cgroup = Path(record.cgroup) if record.cgroup else None
        row.process = EngineProcess(record.identity, cgroup)
        client = self._client(row)
        no = None if client is None else await client.listed()
        if no is not None and no.reason == "name-not-listed":
            row.fail(no.reason, no.detail, int(time.time() * 1000))
            row.move(Event.HUNG, time.monotonic(), no.reason, no.detail)
        elif record.was_ready and not _is_dead(no):
            row.move(Event.ADOPTED_READY, time.monotonic())

    def _client(self, row: ShardRow) -> EngineClient | None:
        record = row.record
        if record is None or record.probes is None or record.url is UNSET:
            return None
        shard = record.shard
        return EngineClient(
            self._http, record.url, shard.served_name, shard.engine_key, record.probes
        )

    async def live(self, row: ShardRow) -> None:
        """From launch or adoption to the end of the row's process, asked for or not."""
        assert row.process is not None
        while True:
            await self._until_stop_or_exit(row, row.process)
            now = time.monotonic()
            if row.stop_asked.is_set():
                row.move(Event.STOP, now, row.stop_reason)
                grace = row.grace
                break
            if await self._restarted_on_new_band(row):
                continue
            failure = self._note_exit(row)
            row.move(Event.EXITED, now, failure.kind, failure.text)
            grace = 0.0
            break
        self._changed()
        await self._end(row, row.process, grace)

    async def _until_stop_or_exit(self, row: ShardRow, process: EngineProcess) -> None:
        probes = None if row.record is None else row.record.probes
        watch = EngineWatch(
            row,
            self._client(row),
            probes,
            self._folder,
            self._limits,
            self._changed,
            self._is_ready,
        )
        watching = asyncio.create_task(_kept_up(watch, row))
        waits = [
            asyncio.create_task(process.exited()),
            asyncio.create_task(row.stop_asked.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks((watching, *waits))
            row.scraper = None

    def _is_ready(self, row: ShardRow) -> None:
        log.info("%s of %s is ready", row.shard.replica, row.shard.model)
        if row.record is not None:
            row.record = msgspec.structs.replace(row.record, was_ready=True)
            self._keep(row)

    async def _restarted_on_new_band(self, row: ShardRow) -> bool:
        """World size 1: a port that somebody took meanwhile is answered once by another band."""
        assert row.process is not None
        young = time.monotonic() - row.since < _PORT_TROUBLE
        folder = self._folder.engine_folder(row.generation)
        if row.state != "up" or not young or not engine_log.says_address_in_use(folder / "log"):
            return False
        row.charged = False
        if row.shard.world_size > 1 or row.reason == "second-band":
            return False
        if (await row.process.end(0.0, self._limits.verify)).left:
            return False
        log.warning("%s: its port was taken; once more on other ports", row.shard.replica)
        self._starter.let_go(row, time.monotonic())
        try:
            if self._starter.start(row, lambda: None) is not None:
                return False
        except (LaunchFailed, OSError):
            return False
        row.reason = "second-band"
        row.charged = True
        return True

    def _note_exit(self, row: ShardRow) -> Failure:
        """An exit that nobody asked for is a failure, whatever its code (FO10)."""
        assert row.process is not None
        folder = self._folder.engine_folder(row.generation)
        code = row.process.exit_code
        how = (
            "went"
            if code is None
            else f"was ended by signal {-code}"
            if code < 0
            else f"exited with code {code}"
        )
        kind = "exited" if row.charged else "address-in-use"
        last = engine_log.last_line(folder / "log")
        if row.state == "up" and (cause := engine_log.first_error(folder / "log")):
            last = f"{cause} ... {last}"
        text = f"the engine {how} unasked after {time.monotonic() - row.since:.0f} s in state {row.state}"
        failure = row.fail(kind, f"{text}: {last}" if last else text, int(time.time() * 1000))
        log.warning("%s of %s: %s", row.shard.replica, row.shard.model, failure.text)
        try:
            engine_log.keep_first_failure(folder)
        except OSError as error:
            log.warning("the log of %s is not kept: %s", row.shard.replica, error)
        if row.record is not None:
            row.record = msgspec.structs.replace(row.record, first_failure=row.first_failure)
            self._keep(row)
        return failure

    async def end_rest(self, row: ShardRow) -> None:
        """Ends what is left of an engine whose main process is gone."""
        assert row.process is not None
        await self._end(row, row.process, 0.0)

    async def _end(self, row: ShardRow, process: EngineProcess, grace: float) -> None:
        reason, detail = row.reason or "stopped", row.detail
        left = (await process.end(grace, self._limits.verify)).left
        while left:
            if row.state == "stopping":
                names = ", ".join(str(pid) for pid in left)
                row.fail("stuck", f"cannot be ended: pid {names}", int(time.time() * 1000))
                row.move(Event.NOT_GONE, time.monotonic(), "stuck", f"cannot be ended: pid {names}")
                log.error("%s of %s is stuck: pid %s", row.shard.replica, row.shard.model, names)
                self._changed()
            await asyncio.sleep(_STUCK_LOOK)
            left = (await process.end(0.0, _STUCK_LOOK)).left
        row.move(Event.GONE, time.monotonic(), reason, detail)
        self.bury(row)
        self._changed()

    def bury(self, row: ShardRow) -> None:
        """The row's engine is gone: its record says so and its ports rest."""
        if row.process is not None:
            row.process.unwatch()
        row.memory = None
        self._starter.let_go(row, time.monotonic())
        if row.record is not None:
            row.record = msgspec.structs.replace(row.record, ended=True)
            self._keep(row)
        log.info("%s of %s ended: %s", row.shard.replica, row.shard.model, row.reason)

    def _keep(self, row: ShardRow) -> None:
        assert row.record is not None
        try:
            self._folder.keep_engine(row.record)
        except OSError as error:
            log.error("the record of %s is not kept: %s", row.shard.replica, error)


def _is_dead(no: No | None) -> bool:
    """Whether the answer contradicts "it serves"; silence of a busy engine does not."""
    return no is not None and not no.silent


async def _kept_up(watch: EngineWatch, row: ShardRow) -> None:
    """A watch that breaks is our own fault: it is said and begun again, and the engine goes on."""
    while True:
        try:
            await watch.run()
        except Exception:
            log.exception("watching %s broke", row.shard.replica)
        await asyncio.sleep(_WATCH_PAUSE)
