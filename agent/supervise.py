"""Ties want to what runs: one step decides everything, one task per shard does it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
from msgspec import UNSET

from agent import engine_log
from agent.config import AgentConfig
from agent.engine_cgroup import engine_cgroup, sweep_cgroups
from agent.engine_process import EngineProcess
from agent.engine_start import EngineStarter
from agent.engines.adapters import refusal
from agent.engines.launch_plan import NodeFacts
from agent.marks import EngineRecord, StateFolder
from agent.process_facts import Identity, boot_id, is_ours, marked, members
from agent.shard_life import ShardLife
from agent.shard_row import ShardRow
from agent.shard_states import RUNNING, Event
from agent.task_end import end_tasks
from agent.want_state import (
    TAKEN_ALONG,
    Action,
    End,
    Forget,
    Launch,
    Prepare,
    Refusal,
    Refuse,
    Stop,
    WantState,
)
from orchestrator.wire.feed import ReplicaLoad
from orchestrator.wire.reports import Applied, ReplicaUse, ShardReport, Weights
from orchestrator.wire.want import ReadLog, ShardWant, Want

log = logging.getLogger("agent")

#: A step happens at each change; this often besides, for what waits for Redis.
_STEP_EVERY = 1.0
LOG_LIMIT = 65_536
#: At an end of the agent that takes its engines with it.
_END_GRACE = 5.0
_END_LIMIT = 30.0


class Supervisor:
    """All shards of one node.

    ``confirm`` (set by the uplink) asks Redis for the newest want right before a launch and says
    whether it answered; without it nothing is launched. ``changed`` is set when a Full is due.
    """

    def __init__(
        self,
        folder: StateFolder,
        config: AgentConfig,
        node: NodeFacts,
        node_id: str,
        node_name: str,
        http: aiohttp.ClientSession,
    ) -> None:
        self._folder = folder
        self._node = node
        self._node_id = node_id
        self._state = WantState(folder.want(), folder.marks(), folder.taken_along())
        starter = EngineStarter(folder, config, node, node_id, sum(node_name.encode()) * 7)
        self._starter = starter
        self._life = ShardLife(starter, folder, self._state, config.limits, http, self._note_change)
        self._rows: dict[int, ShardRow] = {}
        self._said: set[tuple[int, int, str]] = set()
        self._kick = asyncio.Event()
        self.changed = asyncio.Event()
        self.confirm: Callable[[], Awaitable[bool]] | None = None
        #: Said no to since the uplink last looked.
        self.refusals: list[tuple[ShardWant, Refusal]] = []
        #: Another session speaks for this node: nothing is launched any more.
        self.muted = False

    @property
    def applied(self) -> Applied:
        """The highest want obeyed."""
        return self._state.applied

    @property
    def rows(self) -> list[ShardRow]:
        """Every shard known."""
        return list(self._rows.values())

    def obey(self, want: Want) -> bool:
        """Takes a want if it is above the one held, and acts on it. Says whether it was."""
        if not self._state.accept(want):
            return False
        kept = self._state.want
        assert kept is not None
        try:
            self._folder.keep_want(kept)
        except OSError as error:
            log.error("the want is not kept on disk: %s", error)
        self._said.clear()
        self.step()
        self._note_change()
        return True

    async def adopt(self) -> None:
        """Looks at every record of an engine and takes as ours what proves to be."""
        records, problems = self._folder.engines()
        for problem in problems:
            log.warning("%s", problem)
        await asyncio.gather(*(self._adopt(record) for record in records))
        self._folder.drop_old_engines(frozenset(self._rows))
        sweep_cgroups(self._node_id, self._rows)

    async def _adopt(self, record: EngineRecord) -> None:
        shard = record.shard
        self._life.mark_ended(shard.generation)
        row = ShardRow(shard, time.monotonic(), "up")
        why = is_ours(record.identity)
        if why is None:
            await self._life.adopt(row, record)
            self._rows[shard.generation] = row
            self._spawn(row, self._life.live(row))
            log.info("%s of %s adopted: pid %d", shard.replica, shard.model, record.identity.pid)
        elif why == "gone":
            self._adopt_remains(row, record)
        else:
            pid = record.identity.pid
            log.warning("pid %d is left alone: it is not %s: %s", pid, shard.replica, why)

    def _adopt_remains(self, row: ShardRow, record: EngineRecord) -> None:
        """The engine went while no agent looked; whatever is left of it is ended."""
        line = engine_log.last_line(self._folder.engine_folder(row.generation) / "log")
        text = "the engine went while no agent watched it"
        row.first_failure = record.first_failure
        row.fail("vanished", f"{text}: {line}" if line else text, int(time.time() * 1000))
        row.record = record
        row.move(Event.EXITED, time.monotonic(), "vanished", row.detail)
        self._rows[row.generation] = row
        cgroup = Path(record.cgroup) if record.cgroup else None
        if members(record.identity, cgroup):
            row.process = EngineProcess(record.identity, cgroup)
            self._spawn(row, self._life.end_rest(row))
        else:
            row.move(Event.GONE, time.monotonic(), "vanished", row.detail)
            self._life.bury(row)

    async def run(self) -> None:
        """Steps until cancelled."""
        while True:
            self.step()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STEP_EVERY):
                    await self._kick.wait()
            self._kick.clear()

    async def end_engines(self) -> None:
        """Ends every engine, as at a stop with a short grace; nothing is launched any more."""
        self.muted = True
        await end_tasks(
            row.task for row in self.rows if row.task is not None and row.state not in RUNNING
        )
        for row in self.rows:
            if row.state in RUNNING:
                row.grace = min(row.shard.grace, _END_GRACE)
                row.stop_reason, row.charged = TAKEN_ALONG, False
                self._ask_to_stop(row)
        tasks = [row.task for row in self.rows if row.state in RUNNING and row.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=_END_LIMIT)
        try:
            self._folder.keep_taken_along(
                row.generation for row in self.rows if row.state not in RUNNING
            )
        except OSError as error:
            log.error("that the engines ended with the agent is not kept on disk: %s", error)

    async def close(self) -> None:
        """Lets go of everything; engines live on."""
        await end_tasks(row.task for row in self._rows.values() if row.task is not None)
        for row in self._rows.values():
            if row.process is not None:
                row.process.unwatch()
        self._starter.close()

    def step(self) -> None:
        """Decides all that is to be done now, and begins it."""
        self._state.prune(int(time.time() * 1000))
        may_launch = self.confirm is not None and not self.muted
        here = {generation: row.here for generation, row in self._rows.items()}
        for action in self._state.next_actions(
            here, may_launch=may_launch, refusal=lambda shard: refusal(shard, self._node)
        ):
            self._do(action)

    def _do(self, action: Action) -> None:
        now = time.monotonic()
        match action:
            case Prepare(shard):
                row = self._rows[shard.generation] = ShardRow(shard, now)
                self._spawn(row, self._life.prepare(row))
                self._note_change()
            case Launch(shard):
                row = self._rows[shard.generation]
                assert self.confirm is not None
                row.shard = shard
                self._spawn(row, self._life.launch(row, self.confirm))
            case Stop(generation, grace):
                row = self._rows[generation]
                row.grace = grace
                self._ask_to_stop(row)
            case End(shard, reason):
                self._end(shard, reason, now)
            case Forget(generation):
                self._forget(generation, now)
            case Refuse(shard, no, whole):
                self._refuse(shard, no, whole, now)

    def _ask_to_stop(self, row: ShardRow) -> None:
        row.stop_asked.set()
        if row.task is None or row.task.done():  # its task broke: another one ends it
            self._spawn(row, self._life.live(row))

    def _end(self, shard: ShardWant, reason: str, now: float) -> None:
        """A shard of which nothing runs: it is over, and its mark keeps it so."""
        row = self._rows.get(shard.generation)
        if row is None and shard.generation in self._state.marks and self._end_marked(shard, now):
            return
        if row is not None and row.task is not None:
            row.task.cancel()
        if row is None or row.state == "refused":
            row = self._rows[shard.generation] = ShardRow(shard, now)
        self._life.mark_ended(shard.generation)
        row.move(Event.STOP if reason == "stopped" else Event.FAILED, now, reason)
        if reason == TAKEN_ALONG:
            row.charged = False
            row.detail = "it ended with its agent"
        elif reason != "stopped":
            row.fail(reason, "launched before and not running now", int(time.time() * 1000))
        self._starter.let_go(row, now)
        self._note_change()

    def _end_marked(self, shard: ShardWant, now: float) -> bool:
        """Ends a launched generation whose record is lost, if a process with its mark lives: nothing
        else is known of it, and it must not be called ended while it holds cards and memory."""
        mark = f"{self._node_id}:{shard.generation}:{shard.rank}"
        found = sorted(marked(mark).items(), key=lambda item: (item[1], item[0]))
        if not found:
            return False
        pid, start = found[0]
        text = f"the record of this engine is lost; what lives of it (pid {pid}) is ended"
        log.warning("%s of %s: %s", shard.replica, shard.model, text)
        row = self._rows[shard.generation] = ShardRow(shard, now, "up")
        row.fail("vanished", text, int(time.time() * 1000))
        row.move(Event.EXITED, now, "vanished", text)
        cgroup = engine_cgroup(self._node_id, shard.generation)
        row.process = EngineProcess(Identity(pid, start, boot_id(), "", mark), cgroup)
        self._spawn(row, self._life.end_rest(row))
        self._note_change()
        return True

    def _forget(self, generation: int, now: float) -> None:
        row = self._rows.pop(generation)
        if row.task is not None:
            row.task.cancel()
        self._starter.let_go(row, now)
        kept = frozenset(g for g, r in self._rows.items() if r.state in RUNNING)
        self._folder.drop_old_engines(kept)
        self._note_change()

    def _refuse(self, shard: ShardWant, no: Refusal, whole: bool, now: float) -> None:
        if whole and shard.generation not in self._rows:
            row = self._rows[shard.generation] = ShardRow(shard, now)
            row.refuse(no, now)
        key = (shard.generation, shard.rank, no.reason)
        if key not in self._said:
            self._said.add(key)
            self.refusals.append((shard, no))
            log.warning("%s of %s refused: %s", shard.replica, shard.model, no.detail)
            self._note_change()

    def _spawn(self, row: ShardRow, work: Awaitable[None]) -> None:
        async def whole() -> None:
            try:
                await work
            except Exception as error:
                log.exception("the task of %s broke", row.shard.replica)
                if row.state in ("fetching", "prepared"):
                    self._life.give_up(
                        row, Refusal("agent-fault", f"the agent's own fault: {error}")
                    )
            finally:
                self._kick.set()

        row.task = asyncio.create_task(whole())

    def _note_change(self) -> None:
        self._kick.set()
        self.changed.set()

    def shards(self) -> list[ShardReport]:
        """Every shard of the newest want and everything that runs."""
        now, wanted = time.monotonic(), self._state.shards
        return [row.report(now, unlisted=g not in wanted) for g, row in self._rows.items()]

    def weights(self) -> list[Weights]:
        """The complete weights that were looked at for the shards here."""
        return [
            Weights(
                source=row.shard.profile.source,
                complete=True,
                size=row.weights_size,
                digest=row.digest,
            )
            for row in self._rows.values()
            if row.digest is not UNSET and isinstance(row.shard.profile.source, str)
        ]

    def loads(self) -> list[ReplicaLoad]:
        """What the routers are told of each ready replica."""
        now = time.monotonic()
        return [load for row in self.rows if (load := row.load(now)) is not None]

    def take_use(self) -> list[ReplicaUse]:
        """Use of each ready replica since the last call."""
        return [use for row in self.rows if (use := row.take_use()) is not None]

    def our_pids(self) -> frozenset[int]:
        """The main processes and all that belongs to them."""
        return frozenset(
            pid
            for row in self.rows
            if row.process is not None and row.state in RUNNING
            for pid in row.process.members()
        )

    def read_log(self, question: ReadLog) -> tuple[bool, str]:
        """(found, text): the end of a shard's log, at most 64 KiB."""
        row = next(
            (
                r
                for r in self.rows
                if (r.shard.replica, r.shard.rank) == (question.replica, question.rank)
            ),
            None,
        )
        if row is None:
            return False, f"no shard {question.replica} rank {question.rank} is known on this node"
        name = "log" if question.which == "now" else "first-failure.log"
        file = self._folder.engine_folder(row.generation) / name
        if not file.exists():
            return False, "nothing was logged" if question.which == "now" else "it has not failed"
        return True, engine_log.tail(file, max(0, min(question.limit, LOG_LIMIT)))
