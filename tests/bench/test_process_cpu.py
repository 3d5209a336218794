"""CPU of a process tree: what belongs to it, and that nothing is lost or counted twice."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bench.errors import ContestantFailed
from bench.process_cpu import (
    TICKS_PER_SECOND,
    ProcessTimes,
    parse_stat,
    read_tree,
    spent_by_process_us,
    spent_us,
    surviving_members,
    tree_of,
    tree_ticks,
)


def process(pid, parent, *, session=1, ticks=0, waited=0):
    return ProcessTimes(pid, parent, session, f"p{pid}", ticks, waited)


def test_stat_of_a_command_with_spaces_and_brackets():
    text = "42 (a (b) c) S 7 40 41 0 -1 4194304 100 0 0 0 11 22 33 44 20 0 5 0 900\n"
    assert parse_stat(text) == ProcessTimes(42, 7, 41, "a (b) c", ticks=33, waited_ticks=77)


def test_tree_is_descendants_and_session_only():
    root, child, grandchild = process(10, 1, session=10), process(11, 10), process(12, 11)
    orphan_of_session = process(13, 1, session=10)
    stranger = process(14, 1)
    listed = [grandchild, stranger, orphan_of_session, child, root]
    assert tree_of(10, listed) == (root, child, grandchild, orphan_of_session)


def test_child_of_an_orphan_belongs_too():
    orphan, its_child = process(13, 1, session=10), process(20, 13, session=20)
    assert tree_of(10, [its_child, orphan]) == (orphan, its_child)


def test_a_waited_for_child_moves_into_its_parent_and_is_not_lost():
    before = [process(10, 1, ticks=5), process(11, 10, ticks=100)]
    after = [process(10, 1, ticks=6, waited=120)]
    assert tree_ticks(before) == 105
    assert tree_ticks(after) == 126
    assert spent_us(before, after) == 21 * 1_000_000 / TICKS_PER_SECOND


def test_by_process_counts_own_time_and_new_processes_from_zero():
    before = [process(10, 1, ticks=5, waited=3)]
    after = [process(10, 1, ticks=9, waited=50), process(12, 10, ticks=2)]
    us_per_tick = 1_000_000 / TICKS_PER_SECOND
    assert spent_by_process_us(before, after) == {
        "p10 10": 4 * us_per_tick,
        "p12 12": 2 * us_per_tick,
    }


def test_real_tree_counts_a_child_that_burnt_cpu_and_ended():
    # The parent waits for a child that burns 0.2 s of CPU, then tells us and waits for the end of its input.
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    parent = (
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {burn!r}], check=True)\n"
        "print('done', flush=True)\nsys.stdin.read()"
    )
    root = subprocess.Popen(
        [sys.executable, "-c", parent],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with root:
        before = read_tree(root.pid)
        assert root.stdout is not None
        assert root.stdout.readline() == b"done\n"
        assert spent_us(before, read_tree(root.pid)) >= 150_000
        root.communicate()
    assert surviving_members(root.pid) == ()


def test_a_root_that_is_gone_is_an_error_not_zero():
    ended = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    ended.wait()
    with pytest.raises(ContestantFailed, match=str(ended.pid)):
        read_tree(ended.pid)


def test_own_process_is_read():
    assert [one.pid for one in read_tree(os.getpid()) if one.pid == os.getpid()] == [os.getpid()]
