"""``llmgw``: one program whose subcommands are the processes and tools of llmgw.

Each is loaded by its module's name and only when asked for, so that no package imports another and
``llmgw ctl`` does not pay for the router's imports.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from orchestrator.near_miss import near_miss

USAGE = 2


class Subcommand(NamedTuple):
    """Where a subcommand's ``main(argv)`` is, and what it does in one line."""

    module: str
    help: str


SUBCOMMANDS = {
    "up": Subcommand("orchestrator.up.__main__", "everything on this machine, with a demo model"),
    "router": Subcommand("router.__main__", "serves clients: the OpenAI API in front of engines"),
    "orchestrator": Subcommand("orchestrator.__main__", "decides which model runs on which node"),
    "agent": Subcommand("agent.__main__", "starts and watches engines on this node"),
    "sim": Subcommand(
        "agent.sim_engine.__main__", "a simulated engine, to try things without cards"
    ),
    "ctl": Subcommand("orchestrator.ctl.__main__", "shows and changes a running cluster"),
}


def help_text() -> str:
    """What ``llmgw --help`` prints."""
    width = max(map(len, SUBCOMMANDS))
    lines = [f"  {name:<{width}}  {command.help}" for name, command in SUBCOMMANDS.items()]
    return "\n".join(
        [
            "usage: llmgw SUBCOMMAND [OPTIONS]",
            "",
            *lines,
            "",
            "llmgw SUBCOMMAND --help shows the options of each; llmgw --version the version.",
        ]
    )


def own_version() -> str:
    """The installed version; "unknown" when run from a folder that was never installed."""
    try:
        return version("llmgw")
    except PackageNotFoundError:
        return "unknown"


def run(argv: Sequence[str]) -> int:
    """Runs one subcommand and returns its exit code."""
    if not argv or argv[0] in ("--help", "-h", "help"):
        print(help_text())
        return 0 if argv else USAGE
    name, rest = argv[0], list(argv[1:])
    if name in ("--version", "version"):
        print(f"llmgw {own_version()}")
        return 0
    command = SUBCOMMANDS.get(name)
    if command is None:
        meant = near_miss(name, SUBCOMMANDS)
        hint = f"did you mean: llmgw {meant}" if meant else "see: llmgw --help"
        print(f"error: llmgw has no subcommand {name!r}\n  {hint}", file=sys.stderr)
        return USAGE
    code = importlib.import_module(command.module).main(rest)
    return 0 if code is None else int(code)


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
