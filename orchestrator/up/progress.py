"""What `llmgw up` shows while it starts: one line a step, on standard error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.status import Status


class Step:
    """One line of progress while its step runs."""

    def __init__(self, label: str, status: Status | None) -> None:
        self._label = label
        self._status = status
        #: What is shown behind the label when it is done.
        self.said: list[str] = []

    def say(self, words: str) -> None:
        """Add to what is shown when it is done."""
        self.said.append(words)

    def doing(self, words: str) -> None:
        """What it is at just now."""
        if self._status is not None:
            self._status.update(f"{self._label}  {escape(words)} …")


class Steps:
    """One line a step on standard error: a spinner while it runs, a mark and its time when done."""

    def __init__(self, console: Console, quiet: bool) -> None:
        self._console = console
        self._quiet = quiet

    @contextmanager
    def step(self, label: str) -> Iterator[Step]:
        """Run one step; the line stays only when it succeeded."""
        if self._quiet:
            yield Step(label, None)
            return
        began = time.monotonic()
        with self._console.status(f"{label} …") as status:
            step = Step(label, status)
            yield step
        took = time.monotonic() - began
        words = escape("  ".join(step.said))
        self._console.print(
            f"[green]✓[/] {label:<13} {words}  [dim]{took:.1f} s[/]", highlight=False
        )

    def warn(self, line: str) -> None:
        """A line that a person should see."""
        self._console.print(f"[yellow]![/] {escape(line)}", highlight=False)
