"""Watches one running engine: first until it is ready, then that it goes on. Nothing here stops it.

A probe that fails proves little: it is ignored while the counters move, and one that costs a
generation is asked only of an idle engine (FO10, FO12). What is found wrong is *reported* as hung;
only the goal ``stop`` ends a process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable

from agent import engine_log
from agent.config import Limits
from agent.engines.adapters import metric_keys
from agent.engines.launch_plan import Probes
from agent.load_limit import StallClock, TokenWatch
from agent.marks import StateFolder
from agent.probe import MODELS_LIMIT, PROOF_TOKENS, EngineClient, No
from agent.process_facts import private_memory
from agent.scrape import Scraper
from agent.shard_row import ShardRow
from agent.shard_states import Event
from agent.task_end import until_first

log = logging.getLogger("agent")

_LOAD_LOOK = 0.25  # seconds between looks at a loading engine
_MEMORY_LOOK = 5.0
_LOADING_MEMORY_LOOK = 1.0
_ROTATE_LOOK = 60.0


class EngineWatch:
    """The watching of one row. ``changed`` is called when a report is due, ``ready`` once."""

    def __init__(
        self,
        row: ShardRow,
        client: EngineClient | None,
        probes: Probes | None,
        folder: StateFolder,
        limits: Limits,
        changed: Callable[[], None],
        ready: Callable[[ShardRow], None],
    ) -> None:
        self._row = row
        self._client = client
        self._probes = probes
        self._folder = folder.engine_folder(row.generation)
        self._limits = limits
        self._changed = changed
        self._ready = ready

    async def run(self) -> None:
        """Until cancelled."""
        work = [self._sample_memory(), self._rotate()]
        if self._client is not None:
            work.append(self._serve(self._client))
        await until_first([asyncio.create_task(each) for each in work])

    async def _serve(self, client: EngineClient) -> None:
        row = self._row
        if row.state == "up":
            await self._until_ready(client)
        await self._read_adapters(client)
        row.scraper = Scraper(client, metric_keys(row.shard), time.monotonic())
        await until_first(
            (
                asyncio.create_task(self._scrape(row.scraper)),
                asyncio.create_task(self._prove(client, row.scraper)),
            )
        )

    async def _until_ready(self, client: EngineClient) -> None:
        row, began = self._row, time.monotonic()
        clock = StallClock(began)
        while (no := await self._ready_answer(client)) is not None:
            now = time.monotonic()
            row.detail = no.detail
            clock.see(now, log=engine_log.size_of(self._folder / "log"), memory=row.memory)
            if row.state == "up":
                if clock.stalled(now, self._limits.load_stall):
                    self._hung(
                        "no-progress", f"no progress for {now - clock.since:.0f} s: {no.detail}"
                    )
                elif now - began > self._limits.load_total:
                    self._hung("load-limit", f"not ready after {now - began:.0f} s: {no.detail}")
            await asyncio.sleep(_LOAD_LOOK)
        row.move(Event.READY if row.state == "up" else Event.RECOVERED, time.monotonic())
        self._ready(row)
        self._changed()

    async def _ready_answer(self, client: EngineClient) -> No | None:
        no = await client.healthy(MODELS_LIMIT) or await client.listed()
        return no if no is not None else await self._proof(client)

    async def _proof(self, client: EngineClient) -> No | None:
        use = self._row.use
        use.probes_begun += PROOF_TOKENS
        use.probing = True
        try:
            return await client.proven(self._limits.proof)
        finally:
            use.probing = False

    async def _read_adapters(self, client: EngineClient) -> None:
        """Which adapters are really loaded, and under which number."""
        row = self._row
        if self._probes is None or self._probes.adapters is None:
            return
        answer = await client.text(self._probes.adapters, MODELS_LIMIT)
        if isinstance(answer, No):
            log.warning("%s: adapters unknown: %s", row.shard.replica, answer.detail)
            return
        try:
            numbers = {entry["path"]: int(entry["id"]) for entry in json.loads(answer)}
        except (ValueError, KeyError, TypeError):
            log.warning("%s: its list of adapters cannot be read", row.shard.replica)
            return
        row.adapter_names = {
            adapter.name: numbers[path]
            for adapter, path in zip(row.shard.adapters, row.adapter_paths, strict=True)
            if path in numbers
        }
        self._changed()

    async def _scrape(self, scraper: Scraper) -> None:
        row = self._row
        tokens = TokenWatch(time.monotonic(), self._limits.token_stall)
        while True:
            began = time.monotonic()
            numbers = await scraper.scrape(began)
            row.use.see(numbers)
            running = row.use.running
            if tokens.see(
                time.monotonic(), running, numbers.prompt_tokens, numbers.generated_tokens
            ):
                self._hung(
                    "no-tokens",
                    f"{running} requests run and no token came for {self._limits.token_stall:g} s",
                )
            await asyncio.sleep(max(0.05, self._limits.scrape - (time.monotonic() - began)))

    async def _prove(self, client: EngineClient, scraper: Scraper) -> None:
        """Health often, one token rarely and only when nobody else uses the engine."""
        use, limits = self._row.use, self._limits
        clock = StallClock(time.monotonic())
        proven_at, failed = clock.since, 0
        while True:
            await asyncio.sleep(limits.health)
            no = await client.healthy(limits.health)
            now, n = time.monotonic(), scraper.numbers
            moved = clock.see(now, prompt=n.prompt_tokens, generated=n.generated_tokens)
            if no is None or moved:
                clock.reset(now)
            elif clock.stalled(now, limits.token_stall):
                self._hung("health", no.detail)
            if moved and self._row.reason == "no-tokens":
                self._recovered()
            if no is not None or use.running != 0 or now - proven_at < limits.idle_proof:
                continue
            no = await self._proof(client)
            if no is None:
                proven_at, failed = time.monotonic(), 0
                self._recovered()
            elif use.running == 0:
                # One silence may be a hiccup of the machine: asked again at the next turn.
                failed += 1
                if failed >= 2:
                    self._hung("does-not-generate", no.detail)

    def _hung(self, reason: str, detail: str) -> None:
        row = self._row
        if row.state not in ("up", "ready"):
            return
        row.fail(reason, detail, int(time.time() * 1000))
        row.move(Event.HUNG, time.monotonic(), reason, detail)
        log.warning("%s of %s is hung: %s", row.shard.replica, row.shard.model, detail)
        self._changed()

    def _recovered(self) -> None:
        row = self._row
        # Another name on its page is no hiccup: that engine serves something else.
        if row.state == "hung" and row.reason != "name-not-listed":
            row.move(Event.RECOVERED, time.monotonic())
            log.info("%s of %s goes on", row.shard.replica, row.shard.model)
            self._changed()

    async def _sample_memory(self) -> None:
        while True:
            process = self._row.process
            if process is not None:
                pids = list(await asyncio.to_thread(process.members))
                self._row.memory = private_memory(pids)
            await asyncio.sleep(_LOADING_MEMORY_LOOK if self._row.state == "up" else _MEMORY_LOOK)

    async def _rotate(self) -> None:
        while True:
            await asyncio.sleep(_ROTATE_LOOK)
            await asyncio.to_thread(engine_log.rotate, self._folder)
