"""Takes llama-server's flags and misbehaves as FAKE_LLAMA says, else serves as the sim engine.

FAKE_LLAMA: ``port-taken-once`` (complains about its port at the first start), ``port-taken``
(always), ``silent`` (never serves, never says anything).
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path


def main(argv: list[str]) -> None:
    if "--help" in argv or "--version" in argv:
        print("version: fake\n--metrics --offline")
        return
    how = os.environ.get("FAKE_LLAMA", "")
    starts = Path("starts")
    starts.write_text((starts.read_text() if starts.exists() else "") + "x")
    if how == "silent":
        time.sleep(600)
    if how == "port-taken" or (how == "port-taken-once" and starts.read_text() == "x"):
        raise SystemExit("couldn't bind HTTP server socket: Address already in use")
    flags = dict(itertools.pairwise(argv))
    given = ["--host", flags["--host"], "--port", flags["--port"]]
    given += ["--served-model-name", flags["--alias"]]
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    os.execv(sys.executable, [sys.executable, "-m", "agent.sim_engine", *given])


if __name__ == "__main__":
    main(sys.argv[1:])
