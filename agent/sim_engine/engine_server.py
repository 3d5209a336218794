"""The engine as a server: start, ranks, the one timer that drives all sequences, and the end."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable
from itertools import count

from agent.sim_engine.answer import Answer, Choice
from agent.sim_engine.answer_forms import Form, Head, Usage
from agent.sim_engine.faults import Faults
from agent.sim_engine.greek_reply import NOTHING, Reply, call_reply, greek_reply
from agent.sim_engine.http_connection import HttpConnection, Request
from agent.sim_engine.model import EngineModel, State
from agent.sim_engine.prefix_cache import chain_blocks, count_tokens
from agent.sim_engine.process_end import RANK_LOST, ProcessEnd
from agent.sim_engine.ranks import Meeting, Worker
from agent.sim_engine.request_forms import Generation, Limits
from agent.sim_engine.routes import dispatch
from agent.sim_engine.settings import Settings, World

_TICK = 0.001  # seconds: finest time of the loop's timers; what is due within one is done together
_BACKLOG = 1024  # connections: a load test opens all of its own at once
_DRAIN_LOOK = 0.02  # seconds between looks whether the last answer is out

Announce = Callable[[dict[str, object]], None]


class EngineServer:
    """One engine with HTTP: alone, or rank 0 of several."""

    def __init__(self, settings: Settings, end: ProcessEnd) -> None:
        self.settings = settings
        self.limits = Limits(settings.names, settings.max_model_len, settings.tools)
        self.log_requests = settings.log_requests
        self.connections: set[HttpConnection] = set()
        self.closing = False
        self.faults = settings.faults
        self.model: EngineModel[Choice] = EngineModel(settings.shape)
        self.started = int(time.time())
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._ids = count()
        self._id_base = os.urandom(8).hex()
        self._loading = settings.world is not None or settings.start_delay > 0
        self._rank_lost = False
        self._meeting: Meeting | None = None
        self._apply_freeze()

    async def run(self, announce: Announce) -> int:
        """Serves until the process is to end; returns the exit code."""
        server = await self._loop.create_server(
            lambda: HttpConnection(self),
            self.settings.host,
            self.settings.port,
            backlog=_BACKLOG,
        )
        said: dict[str, object] = {"listening": _shown(server.sockets[0].getsockname())}
        world = self.settings.world
        if world is not None:
            self._meeting = Meeting(world, self.settings.names[0], self._lose_rank)
            said["master"] = _shown(await self._meeting.listen())
        announce(said)
        background = [asyncio.create_task(self._load()), asyncio.create_task(self._close_idle())]
        try:
            code = await self._end.asked()
            self.closing = True
            server.close()
            if code is None:
                await self._drain()
            return code or 0
        finally:
            for task in background:
                task.cancel()
            if self._meeting is not None:
                self._meeting.close()
            for connection in list(self.connections):
                connection.abort()

    def handle(self, connection: HttpConnection, request: Request) -> None:
        dispatch(self, connection, request)

    def loading(self) -> str | None:
        """Why the engine cannot generate yet; None: it can."""
        if not self._loading:
            return None
        missing = self._meeting.missing() if self._meeting is not None else []
        if missing:
            return f"Loading model: waiting for rank {', '.join(map(str, missing))}"
        return "Loading model"

    def head(self, prefix: str, model: str, choices: int) -> Head:
        return Head(f"{prefix}{self._id_base}{next(self._ids):x}", int(time.time()), model, choices)

    def generate(self, connection: HttpConnection, asked: Generation, form: Form) -> None:
        if asked.call is not None:
            reply = call_reply(asked.call.arguments, asked.max_tokens)
        else:
            reply = greek_reply(asked.max_tokens, asked.stops)
        choices = self._choices(asked.prompts, asked.n, reply)

        def body(usage: Usage) -> bytes:
            return form.whole([choice.reply for choice in choices], usage)

        stream = form if asked.stream else None
        self._submit(
            Answer(connection, choices, asked.n, body, stream, self.faults.break_stream), connection
        )

    def embed(
        self,
        connection: HttpConnection,
        inputs: tuple[bytes, ...],
        body: Callable[[Usage], bytes],
    ) -> None:
        """Prefills the inputs and answers with the body."""
        choices = self._choices(inputs, 1, NOTHING)
        self._submit(Answer(connection, choices, 1, body, None, None), connection)

    def set_faults(self, faults: Faults) -> None:
        self.faults = faults
        self._end.set_faults(faults)
        self._apply_freeze()
        self._wake()

    def _choices(self, prompts: tuple[bytes, ...], n: int, reply: Reply) -> list[Choice]:
        choices: list[Choice] = []
        for prompt in prompts:
            tokens = count_tokens(prompt)
            chain = chain_blocks(prompt, self.settings.shape.block_tokens)
            for _ in range(n):
                choices.append(Choice(prompt, tokens, chain, reply, len(choices)))
        return choices

    def _submit(self, answer: Answer, connection: HttpConnection) -> None:
        def cancel() -> None:
            now = time.monotonic()
            for choice in answer.choices:
                self.model.cancel(choice, now)
            self._wake()

        connection.cancel = cancel
        now = time.monotonic()
        for choice in answer.choices:
            self.model.submit(choice, now)
        self._wake()

    def _wake(self) -> None:
        """Sets the timer to the model's next event."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.model.next_event()
        if due is None:
            return
        if due <= time.monotonic():
            self._timer = self._loop.call_later(0, self._tick)
        else:
            ticks = math.ceil((due - time.monotonic()) / _TICK)
            self._timer = self._loop.call_later(max(1, ticks) * _TICK, self._tick)

    def _tick(self) -> None:
        self._timer = None
        for choice in self.model.advance(time.monotonic()):
            choice.answer.progress(choice)
            if choice.state is State.FINISHED:
                self._remember(choice)
        self._wake()

    def _remember(self, choice: Choice) -> None:
        """What was said is in the KV cache too, and is the start of the conversation's next turn."""
        reply = choice.reply
        if reply.tokens and reply.pieces is None:
            said = choice.prompt + reply.text(0, reply.tokens).encode()
            self.model.cache.insert(chain_blocks(said, self.settings.shape.block_tokens))

    async def _load(self) -> None:
        if self._meeting is not None:
            await self._meeting.wait()
        await asyncio.sleep(self.settings.start_delay)
        self._loading = False

    def _lose_rank(self, rank: int) -> None:
        world = self.settings.world
        if world is not None and world.on_loss == "exit":
            self._end.ask(RANK_LOST)
        self._rank_lost = True
        self._apply_freeze()

    def _apply_freeze(self) -> None:
        now = time.monotonic()
        if self._rank_lost or self.faults.hang or self.faults.health_lies:
            self.model.freeze(now)
        else:
            self.model.thaw(now)

    async def _close_idle(self) -> None:
        limit = self.settings.keep_alive
        while True:
            await asyncio.sleep(min(1.0, max(limit / 4, 0.01)))
            since = time.monotonic() - limit
            for connection in list(self.connections):
                connection.close_if_idle(since)

    async def _drain(self) -> None:
        """Lets running answers end, for at most the grace; each closes its connection."""
        until = time.monotonic() + self.settings.grace
        while time.monotonic() < until:
            for connection in list(self.connections):
                connection.close_if_idle(math.inf)
            if not self.connections:
                return
            await asyncio.sleep(_DRAIN_LOOK)


async def run_worker(settings: Settings, world: World, end: ProcessEnd, announce: Announce) -> int:
    """Rank 1 and up: no HTTP, only the connection to rank 0. Returns the exit code; raises
    RefusedJoin. When rank 0 is lost it hangs on until it is told to end, or ends, as set."""
    worker = Worker(world, settings.names[0])
    asked = asyncio.create_task(end.asked())
    live = asyncio.create_task(_live(worker, world, end, announce))
    try:
        await asyncio.wait((asked, live), return_when=asyncio.FIRST_COMPLETED)
        if live.done():
            live.result()
        return await asked or 0
    finally:
        live.cancel()
        asked.cancel()
        worker.close()


async def _live(worker: Worker, world: World, end: ProcessEnd, announce: Announce) -> None:
    await worker.join()
    announce({"met": _shown(world.master), "rank": world.rank})
    await worker.lost()
    if world.on_loss == "exit":
        end.ask(RANK_LOST)


def _shown(address: tuple[str | int, ...]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
