"""CPU time of a whole process tree, from /proc.

A router may be one process or many (a parent, workers, a metrics process), so the tree is counted: the root, all
that descend from it, and all of its session (a child whose parent has died is still there). Children that
have ended are in their parent's figure once it has waited for them; until then they are zombies and still
listed. So the sum over the tree never loses what a waited-for child spent.

The unit of /proc is the clock tick (10 ms): take windows of at least a second of CPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from bench.errors import ContestantFailed

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class ProcessTimes(msgspec.Struct, frozen=True):
    """One process; `ticks` are its own (user and system), `waited_ticks` those of ended children."""

    pid: int
    parent: int
    session: int
    command: str
    ticks: int
    waited_ticks: int


def parse_stat(text: str) -> ProcessTimes:
    """Reads one /proc/<pid>/stat; the command may hold spaces and brackets."""
    before, _, after = text.rpartition(")")
    pid, _, command = before.partition(" (")
    fields = after.split()
    # fields[0] is the third of proc(5), the state.
    return ProcessTimes(
        pid=int(pid),
        parent=int(fields[1]),
        session=int(fields[3]),
        command=command,
        ticks=int(fields[11]) + int(fields[12]),
        waited_ticks=int(fields[13]) + int(fields[14]),
    )


def tree_of(root: int, processes: Iterable[ProcessTimes]) -> tuple[ProcessTimes, ...]:
    """The root, its descendants and the session it leads, in order of pid."""
    listed = {process.pid: process for process in processes}
    members = {process.pid for process in listed.values() if process.session == root}
    members.add(root)
    grown = True
    while grown:
        children = {process.pid for process in listed.values() if process.parent in members}
        grown = not children <= members
        members |= children
    return tuple(listed[pid] for pid in sorted(members) if pid in listed)


def tree_ticks(tree: Iterable[ProcessTimes]) -> int:
    """All that the tree has spent since its start, ended children included."""
    return sum(process.ticks + process.waited_ticks for process in tree)


def spent_us(before: Iterable[ProcessTimes], after: Iterable[ProcessTimes]) -> float:
    """CPU in microseconds that a tree spent between two readings."""
    return _ticks_to_us(tree_ticks(after) - tree_ticks(before))


def spent_by_process_us(
    before: Iterable[ProcessTimes], after: Iterable[ProcessTimes]
) -> dict[str, float]:
    """The same by process ("command pid"), own time only, processes of the second reading."""
    earlier = {process.pid: process.ticks for process in before}
    return {
        f"{process.command} {process.pid}": _ticks_to_us(
            process.ticks - earlier.get(process.pid, 0)
        )
        for process in after
    }


def read_tree(root: int) -> tuple[ProcessTimes, ...]:
    """Reads the tree now; raises ContestantFailed when the root is gone."""
    tree = tree_of(root, _all_processes())
    if all(process.pid != root for process in tree):
        raise ContestantFailed(f"process {root} is gone: its CPU time cannot be read")
    return tree


def surviving_members(root: int) -> tuple[int, ...]:
    """Pids of what is left of a tree, also when its root has ended."""
    return tuple(process.pid for process in tree_of(root, _all_processes()))


def _all_processes() -> list[ProcessTimes]:
    processes = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            text = Path(entry.path, "stat").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended between the listing and the read
        processes.append(parse_stat(text))
    return processes


def _ticks_to_us(ticks: int) -> float:
    return ticks * 1_000_000 / TICKS_PER_SECOND
