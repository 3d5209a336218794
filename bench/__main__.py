"""Runs the benches, all or those named, and ends with one line per target.

python -m bench [NAME ...]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from bench import first_token, report, router_overhead
from bench.contestant_process import stop_all_on_sigterm
from bench.errors import BenchError

BENCHES: dict[str, Callable[[], list[report.Target]]] = {
    router_overhead.NAME: router_overhead.bench,
    first_token.NAME: first_token.bench,
}


def main(
    arguments: Sequence[str] | None = None,
    benches: dict[str, Callable[[], list[report.Target]]] = BENCHES,
) -> int:
    """0: every target met, 1: one missed, 2: a bench could not be run (the others are)."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(benches))
    names: list[str] = parser.parse_args(arguments).names
    if unknown := [name for name in names if name not in benches]:
        parser.error(f"no bench {unknown[0]!r}; there are: {', '.join(benches)}")
    targets: list[report.Target] = []
    failures: list[str] = []
    for name in names or benches:
        print(f"== {name}", flush=True)
        try:
            targets += benches[name]()
        except BenchError as error:
            failures.append(f"{name}: not measured: {error}")
    print("== targets")
    for line in [target.line() for target in targets] + failures:
        print(line)
    if failures:
        return 2
    return 1 if report.any_missed(targets) else 0


if __name__ == "__main__":
    stop_all_on_sigterm()
    raise SystemExit(main())
