"""Results on stdout in the asked form; everything else (errors, what was done) on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from rich.console import Console
from rich.text import Text

from orchestrator.ctl.columns import Item, Listing
from orchestrator.ctl.errors import CtlError
from orchestrator.ctl.table import lines

FORMS = ("table", "wide", "json", "yaml", "name")


class Printer:
    """Prints in one form. ``colour`` None: only on a terminal."""

    def __init__(self, form: str, *, heads: bool = True, no_colour: bool = False) -> None:
        self.form = form
        self._heads = heads
        # Without colour there are no other styles either: they are escape sequences as well.
        plain = no_colour or bool(os.environ.get("NO_COLOR"))
        self._console = Console(
            file=sys.stdout,
            color_system=None if plain else "auto",
            highlight=False,
            markup=False,
            emoji=False,
        )

    @property
    def machine(self) -> bool:
        """Whether a program reads the result."""
        return self.form in ("json", "yaml")

    @property
    def width(self) -> int | None:
        """Columns that a line may have: as many as it likes where nobody looks at it."""
        return self._console.width if self._console.is_terminal else None

    def line(self, text: str | Text = "") -> None:
        """One line, never wrapped."""
        self._console.print(text, soft_wrap=True, overflow="ignore", crop=False)

    def value(self, value: Mapping[str, Any]) -> None:
        """The result as JSON or YAML."""
        if self.form == "yaml":
            text = yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True)
            sys.stdout.write(text)
        else:
            sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")

    def listing(self, listing: Listing, answer: Mapping[str, Any]) -> None:
        """A list in the asked form."""
        items: Sequence[Item] = answer["items"]
        if self.machine:
            self.value(answer)
        elif self.form == "name":
            for item in items:
                self.line(str(item.get(listing.name, "")))
        elif not items:
            self.note(listing.empty)
        else:
            self.table(listing, items)

    def table(self, listing: Listing, items: Sequence[Item]) -> None:
        """Rows, and under each the line of its own that it may have."""
        wide = self.form == "wide"
        shown = [column for column in listing.columns if wide or not column.wide]
        rows = [[column.cell(item) for column in shown] for item in items]
        width = None if wide else self.width
        made = lines([column.column for column in shown], rows, width, heads=self._heads)
        if self._heads:
            self.line(made.pop(0))
        for item, line in zip(items, made, strict=True):
            self.line(line)
            under = str(item.get(listing.under) or "") if wide and listing.under else ""
            if under:
                self.line(Text(f"    {' '.join(under.split())}", style="dim"))

    def note(self, text: str) -> None:
        """A sentence for the person, on stderr."""
        print(text, file=sys.stderr)

    def error(self, error: CtlError) -> None:
        """The three lines, or their JSON where JSON was asked for; on stderr."""
        if self.form == "json":
            parts = {
                "kind": error.kind,
                "message": error.what,
                "reason": error.why,
                "remedy": error.remedy,
                "exit": error.exit_code,
            }
            kept = {key: value for key, value in parts.items() if value != ""}
            print(json.dumps({"error": kept}, ensure_ascii=False), file=sys.stderr)
            return
        for line in error.lines():
            print(line, file=sys.stderr)
