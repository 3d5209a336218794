"""What does a router cost per request and per streamed chunk?

Our router and its peers stand in front of one and the same instant engine, all in one run: routers on the first core,
engine and load (wrk) on the second. Rounds are interleaved (A B C, A B C, ...), so that what the machine does besides
falls on all of them; the figures are medians over the rounds.

- **CPU per request**: CPU of the router's whole process tree over the requests that wrk saw answered.
- **CPU per chunk**: CPU of the tree while paced streams run over the chunks that the *engine* sent in that window.
  The engine counts, so the chunks of streams that were cut off at the end of the window are in. A stream's head is
  spread over its chunks. Chunks come one by one, with a gap between them: that is what an engine does, and a
  router that waits in order to join them is refused by the check before it is timed.

Requests that fail under load end the bench. `processes` in the raw rounds shows how the tree's CPU is shared out.

    python -m bench.router_overhead [--only NAME,...] [--rounds N] [--seconds S]

A run with --only is written as `router_overhead_partial.json`: it never replaces the whole bench's result.
"""

from __future__ import annotations

import argparse
import contextlib
import enum
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench import contestants, peers, report
from bench.answer_check import check_answers, get_json
from bench.chat_bodies import PATH, chat_body
from bench.contestant_process import (
    RunningContestant,
    running_contestant,
    running_engine,
    stop_all_on_sigterm,
)
from bench.contestants import Contestant, all_contestants
from bench.errors import BenchError, LoadFailed, MissingTool
from bench.instant_engine import Counts
from bench.process_cpu import spent_by_process_us, spent_us
from bench.wrk_load import LoadSummary, find_wrk, run_wrk, wrk_version

NAME = "router_overhead"
WARM_UP_S = 1.0
#: A stream lasts less than a second; one that nobody reads any more is over by then.
QUIET_LIMIT_S = 30.0


class Kind(enum.Enum):
    """What the load asks for."""

    PLAIN = "plain"
    STREAM = "stream"


class Settings(msgspec.Struct, frozen=True):
    """How much is measured. More streams than plain connections: a chunk every 10 ms is little load."""

    rounds: int = 5
    seconds: float = 3.0
    plain_connections: int = 32
    stream_connections: int = 128
    chunks: int = 64
    gap_s: float = 0.01


class Measured(msgspec.Struct, frozen=True):
    """One contestant under one load in one round. CPU is of the whole tree; None: it has no process."""

    contestant: str
    round: int
    kind: Kind
    load: LoadSummary
    engine_requests: int
    engine_chunks: int
    cpu_us: float | None
    processes: dict[str, float]


def run(settings: Settings, chosen: Sequence[Contestant]) -> report.Result:
    """Starts everything, checks the answers, measures, stops everything.

    Raises BenchError when a contestant fails, answers wrongly, or a tool is missing.
    """
    router_core, load_core = two_cores()
    load_before = os.getloadavg()[0]
    find_wrk()
    peers.ensure_installed()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="llmgw-bench-")))
        engine = stack.enter_context(running_engine(settings.chunks, settings.gap_s, load_core))
        running = []
        for number, contestant in enumerate(chosen):
            own_folder = folder / str(number)
            running.append(
                stack.enter_context(
                    running_contestant(contestant, (engine,), own_folder, router_core)
                )
            )
        for one in running:
            check_answers(one.name, one.url, engine)
            print(f"{one.name}: answers as the engine does", flush=True)
        rounds = _measure_rounds(settings, running, engine, load_core)
    figures = medians(rounds)
    whole = len(chosen) == len(all_contestants())
    return report.Result(
        bench=NAME if whole else f"{NAME}_partial",
        question="What does a router cost per request and per streamed chunk?",
        versions={one.name: one.version for one in chosen if one.version} | {"wrk": wrk_version()},
        settings=msgspec.to_builtins(settings)
        | {
            "plain_body_bytes": len(chat_body(stream=False)),
            "cores": [router_core, load_core],
            # How alone the bench was: near 0 on a machine that does nothing else.
            "load_average_before": load_before,
        },
        rounds=rounds,
        figures=figures,
        targets=targets(rounds),
    )


def two_cores() -> tuple[int, int]:
    """The router's core and the load's core; raises MissingTool when this process may use only one."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise MissingTool("this bench needs two cores: one for the router, one for load and engine")
    return usable[0], usable[1]


def medians(rounds: Sequence[Measured]) -> dict[str, dict[str, float]]:
    """Figure by contestant and name, each the median over its rounds; what was not measured is absent."""
    samples: dict[str, dict[str, list[float]]] = {}
    for measured in rounds:
        for name, value in _figures_of(measured).items():
            samples.setdefault(measured.contestant, {}).setdefault(name, []).append(value)
    return {
        contestant: {name: statistics.median(values) for name, values in by_name.items()}
        for contestant, by_name in samples.items()
    }


def targets(rounds: Sequence[Measured]) -> list[report.Target]:
    """What our router must show against the peers of the same run.

    A figure is the median over the rounds of ours / theirs in one round: the two were measured within
    seconds of each other, so a machine that grows slower meanwhile does so for both.
    """

    def figure_in(number: int, contestant: str, figure: str) -> float | None:
        for measured in rounds:
            if (measured.round, measured.contestant) == (number, contestant):
                value = _figures_of(measured).get(figure)
                if value is not None:
                    return value
        return None

    def compared(figure: str, peer: str) -> float | None:
        ratios = [
            ratio
            for number in sorted({measured.round for measured in rounds})
            if (
                ratio := report.percent(
                    figure_in(number, contestants.LLMGW, figure), figure_in(number, peer, figure)
                )
            )
            is not None
        ]
        return statistics.median(ratios) if ratios else None

    def target(what: str, figure: str, peer: str, limit: float) -> report.Target:
        return report.Target(f"{what} against {peer}", compared(figure, peer), limit, "%")

    request, chunk = "cpu_us_per_request", "cpu_us_per_chunk"
    return [
        target("CPU per request", request, contestants.SGLANG_CACHE_AWARE, 60.0),
        target("CPU per request", request, contestants.VLLM_ROUND_ROBIN, 100.0),
        target("CPU per SSE chunk", chunk, contestants.VLLM_ROUND_ROBIN, 110.0),
    ]


def _measure_rounds(
    settings: Settings, running: Sequence[RunningContestant], engine: str, load_core: int
) -> list[Measured]:
    def measure(one: RunningContestant, kind: Kind, number: int, seconds: float) -> Measured:
        plain = kind is Kind.PLAIN
        counts_before, before = _quiet_engine_counts(engine), one.read_cpu()
        load = run_wrk(
            one.url + PATH,
            chat_body(stream=not plain),
            connections=settings.plain_connections if plain else settings.stream_connections,
            seconds=seconds,
            core=load_core,
        )
        after, counts_after = one.read_cpu(), _engine_counts(engine)
        engine_requests = counts_after.requests - counts_before.requests
        if engine_requests < load.requests:
            raise LoadFailed(
                f"{one.name}: {load.requests} answers, but the engine was asked {engine_requests} times"
            )
        return Measured(
            contestant=one.name,
            round=number,
            kind=kind,
            load=load,
            engine_requests=engine_requests,
            engine_chunks=counts_after.chunks - counts_before.chunks,
            cpu_us=None if one.root is None else spent_us(before, after),
            processes=spent_by_process_us(before, after),
        )

    for one in running:
        for kind in Kind:
            measure(one, kind, 0, WARM_UP_S)
    rounds = []
    for number in range(1, settings.rounds + 1):
        # Another one begins each round: whoever comes first finds the cores as the last round left them.
        order = [*running[number % len(running) :], *running[: number % len(running)]]
        for kind in Kind:
            for one in order:
                measured = measure(one, kind, number, settings.seconds)
                rounds.append(measured)
                told = ", ".join(f"{k} {v:.1f}" for k, v in _figures_of(measured).items())
                print(f"round {number} {one.name}: {told}", flush=True)
    return rounds


def _quiet_engine_counts(engine: str) -> Counts:
    # A router may go on reading streams whose clients have left; those of the measurement before, be it another
    # contestant's, must not count in this one.
    give_up_at = time.monotonic() + QUIET_LIMIT_S
    while (counts := _engine_counts(engine)).open_streams:
        if time.monotonic() > give_up_at:
            raise LoadFailed(
                f"the engine still has open streams after {QUIET_LIMIT_S:g} s: {counts}"
            )
        time.sleep(0.05)
    return counts


def _engine_counts(engine: str) -> Counts:
    return msgspec.convert(get_json(engine, "/counts"), Counts)


def _figures_of(measured: Measured) -> dict[str, float]:
    if measured.kind is Kind.STREAM:
        seconds = measured.load.duration_us / 1_000_000
        figures = {"chunks_per_s": measured.engine_chunks / seconds}
        if measured.cpu_us is not None:
            figures["cpu_us_per_chunk"] = measured.cpu_us / measured.engine_chunks
        return figures
    figures = {
        "requests_per_s": measured.load.requests_per_s,
        "p50_ms": measured.load.p50_us / 1000,
        "p99_ms": measured.load.p99_us / 1000,
    }
    if measured.cpu_us is not None:
        figures["cpu_us_per_request"] = measured.cpu_us / measured.load.requests
    return figures


def table(figures: dict[str, dict[str, float]]) -> str:
    """The medians for people: one row per contestant."""
    columns = {
        "cpu_us_per_request": "us/request",
        "requests_per_s": "requests/s",
        "p50_ms": "p50 ms",
        "p99_ms": "p99 ms",
        "cpu_us_per_chunk": "us/chunk",
        "chunks_per_s": "chunks/s",
    }
    lines = [f"{'':27}" + "".join(f"{title:>12}" for title in columns.values())]
    for contestant, by_name in figures.items():
        cells = (f"{by_name[name]:.1f}" if name in by_name else "-" for name in columns)
        lines.append(f"{contestant:27}" + "".join(f"{cell:>12}" for cell in cells))
    return "\n".join(lines)


def choose(names: str | None) -> tuple[Contestant, ...]:
    """The contestants of a comma-separated list, or all; raises ValueError naming the known ones."""
    everyone = all_contestants()
    if names is None:
        return everyone
    wanted = [name.strip() for name in names.split(",")]
    known = {one.name for one in everyone}
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError(f"no contestant {unknown[0]!r}; there are: {', '.join(sorted(known))}")
    return tuple(one for one in everyone if one.name in wanted)


def bench() -> list[report.Target]:
    """The whole bench with its defaults: prints the table, writes the result, gives the targets."""
    return _run_and_report(Settings(), all_contestants())


def _run_and_report(settings: Settings, chosen: Sequence[Contestant]) -> list[report.Target]:
    result = run(settings, chosen)
    print(table(result.figures))
    print(f"written: {report.write_result(result)}")
    return result.targets


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it from the command line; 0: no target missed, 1: one missed, 2: it could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.router_overhead")
    parser.add_argument("--only", metavar="NAME,...", help="contestants to run; default: all")
    parser.add_argument("--rounds", type=int, default=Settings().rounds)
    parser.add_argument("--seconds", type=float, default=Settings().seconds, help="per measurement")
    given = parser.parse_args(arguments)
    try:
        chosen = choose(given.only)
    except ValueError as error:
        parser.error(str(error))
    if given.rounds < 1 or given.seconds < 1:
        parser.error("--rounds and --seconds are at least 1")
    stop_all_on_sigterm()
    try:
        found = _run_and_report(Settings(rounds=given.rounds, seconds=given.seconds), chosen)
    except BenchError as error:
        print(f"{NAME}: {error}")
        return 2
    for target in found:
        print(target.line())
    return 1 if report.any_missed(found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
