"""Timing a command until its answer: the right text, the failures, and nothing left running."""

from __future__ import annotations

import sys

import pytest

from bench.errors import ContestantFailed, WrongAnswer
from bench.first_token import Run, targets, time_answer
from bench.process_cpu import surviving_members
from bench.report import Verdict


def run(tmp_path, program, give_up_s=30.0):
    log = tmp_path / "up.log"
    return time_answer([sys.executable, "-c", program], "Stockholm", log, give_up_s)


def test_answer_is_timed_before_the_end(tmp_path):
    program = (
        "import time; print('starting'); print('It is Stockholm.', flush=True); time.sleep(0.3)"
    )
    found = run(tmp_path, program)
    assert found.output == "starting\nIt is Stockholm.\n"
    assert 0 < found.answer_s < found.stopped_s


def test_answer_may_come_in_pieces(tmp_path):
    program = "import time\nfor part in ('Stock', 'holm'): print(part, end='', flush=True); time.sleep(0.05)"
    assert run(tmp_path, program).output == "Stockholm"


def test_wrong_answer(tmp_path):
    with pytest.raises(WrongAnswer, match="Oslo"):
        run(tmp_path, "print('It is Oslo.')")


def test_failure_shows_what_it_said(tmp_path):
    with pytest.raises(ContestantFailed, match=r"ended with 3.*no room"):
        run(tmp_path, "import sys; print('no room', file=sys.stderr); sys.exit(3)")


def test_a_run_that_hangs_is_given_up_and_stopped(tmp_path):
    program = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
    program = program.replace("'pid'", repr(str(tmp_path / "pid")))
    with pytest.raises(ContestantFailed, match="not over after 1 s"):
        run(tmp_path, program, give_up_s=1.0)
    assert surviving_members(int((tmp_path / "pid").read_text())) == ()


def test_the_slowest_run_counts():
    (target,) = targets([Run(3.0, 4.0, ""), Run(10.5, 11.0, ""), Run(2.0, 3.0, "")])
    assert target.figure == 10.5
    assert target.verdict is Verdict.MISSED
