"""How long from `llmgw up` to the demo model's first answer, with everything installed?

Each run has a state folder of its own, so nothing is running and nothing is remembered; weights and programs are
installed before. Timed from the start of the command until the right answer stands on its output: that is later
than the first token, never earlier, and cannot be met by printing something else. The figure is the slowest run.

    python -m bench.first_token [--runs N]
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import selectors
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench import report
from bench.contestant_process import stop_all_on_sigterm, stop_tree
from bench.errors import BenchError, ContestantFailed, WrongAnswer

NAME = "first_token"
QUESTION = "What is the capital of Sweden?"
EXPECTED = "Stockholm"
LIMIT_S = 10.0
#: When a run is given up: far beyond the target, so that a slow run gives a figure.
GIVE_UP_S = 120.0
DEFAULT_RUNS = 3


class Run(msgspec.Struct, frozen=True):
    """One run: seconds until the answer was there, seconds until everything was stopped again."""

    answer_s: float
    stopped_s: float
    output: str


def up_command(state: Path) -> list[str]:
    """`llmgw up` of the environment that runs the bench, for one question."""
    llmgw = Path(sys.executable).with_name("llmgw")
    if not llmgw.exists():
        raise ContestantFailed(f"{llmgw} is missing: install the project there (`make up` does)")
    return [str(llmgw), "up", "--once", QUESTION, "--state", str(state)]


def time_answer(command: Sequence[str], expected: str, log: Path, give_up_s: float) -> Run:
    """Runs `command` until it ends; when did `expected` stand on its standard output?

    Raises WrongAnswer when it ends without, ContestantFailed when it fails or does not end in time. Its
    standard error goes to `log`.
    """
    started = time.monotonic()
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
    assert process.stdout is not None
    output, answer_s = b"", None
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                left_s = started + give_up_s - time.monotonic()
                if left_s <= 0 or not selector.select(left_s):
                    raise ContestantFailed(f"not over after {give_up_s:g} s; {_said(output, log)}")
                part = os.read(process.stdout.fileno(), 65536)
                if not part:
                    break
                output += part
                if answer_s is None and expected.encode() in output:
                    answer_s = time.monotonic() - started
        try:
            code = process.wait(max(1.0, started + give_up_s - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise ContestantFailed(f"does not end; {_said(output, log)}") from error
    finally:
        stop_tree(process)
        process.stdout.close()
    if code != 0:
        raise ContestantFailed(f"ended with {code}; {_said(output, log)}")
    if answer_s is None:
        raise WrongAnswer(f"no {expected!r} in the answer; {_said(output, log)}")
    return Run(answer_s, time.monotonic() - started, output.decode(errors="replace"))


def _said(output: bytes, log: Path) -> str:
    errors = log.read_text(errors="replace")
    return f"it said {output[-1000:].decode(errors='replace')!r} and {errors[-1000:]!r}"


def targets(runs: Sequence[Run]) -> list[report.Target]:
    """The slowest run must be in time."""
    slowest = max(run.answer_s for run in runs)
    return [report.Target("`llmgw up` to the first answer", slowest, LIMIT_S, "s")]


def bench(count: int = DEFAULT_RUNS) -> list[report.Target]:
    """Runs it, writes the result, gives the targets; raises BenchError when there is no answer."""
    runs = []
    for number in range(1, count + 1):
        with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as folder:
            log = Path(folder, "up.log")
            run = time_answer(up_command(Path(folder, "state")), EXPECTED, log, GIVE_UP_S)
        print(f"run {number}: answer after {run.answer_s:.2f} s", flush=True)
        runs.append(run)
    result = report.Result(
        bench=NAME,
        question="How long from `llmgw up` to the demo model's first answer?",
        versions={"llmgw": importlib.metadata.version("llmgw")},
        settings={"runs": count, "question": QUESTION, "expected": EXPECTED},
        rounds=runs,
        figures={"llmgw up": {"answer_s": statistics.median(run.answer_s for run in runs)}},
        targets=targets(runs),
    )
    print(f"written: {report.write_result(result)}")
    return result.targets


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it from the command line; 0: met, 1: missed, 2: it could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.first_token")
    parser.add_argument("--runs", type=int, default=DEFAULT_RUNS)
    given = parser.parse_args(arguments)
    if given.runs < 1:
        parser.error("--runs is at least 1")
    stop_all_on_sigterm()
    try:
        found = bench(given.runs)
    except BenchError as error:
        print(f"{NAME}: {error}")
        return 2
    for target in found:
        print(target.line())
    return 1 if report.any_missed(found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
