"""The routers that ours is measured against: which versions, where they are installed, how they are started.

They live in an environment of their own (`bench/.venv`, never the project's), made when it is missing and brought to
the pinned versions when it has others. They are started as well as they can be: no request log.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.errors import InstallFailed

ENVIRONMENT = Path(__file__).resolve().parent / ".venv"
SGLANG_ROUTER = "sglang-router"
VLLM_ROUTER = "vllm-router"
VERSIONS = {SGLANG_ROUTER: "0.3.2", VLLM_ROUTER: "0.1.17"}
_MODULES = {SGLANG_ROUTER: "sglang_router.launch_router", VLLM_ROUTER: "vllm_router.launch_router"}
_QUIET = {SGLANG_ROUTER: "warn", VLLM_ROUTER: "warning"}


def ensure_installed(environment: Path = ENVIRONMENT) -> None:
    """Makes the peers' environment, or brings it to the pinned versions; does nothing when it is right.

    Raises InstallFailed with what the installer said.
    """
    wanted = wrong_versions(installed_versions(environment))
    if not wanted:
        return
    print(f"installing {', '.join(wanted)} into {environment}", flush=True)
    if not _python(environment).exists():
        _run([sys.executable, "-m", "venv", "--clear", str(environment)])
    _run([str(_python(environment)), "-m", "pip", "install", "--quiet", *wanted])


def installed_versions(environment: Path) -> dict[str, str]:
    """Version by package, of the peers found in an environment; empty when there is none."""
    if not _python(environment).exists():
        return {}
    folders = [str(folder) for folder in environment.glob("lib/python*/site-packages")]
    return {
        found.name: found.version
        for found in importlib.metadata.distributions(path=folders)
        if found.name in VERSIONS
    }


def wrong_versions(installed: dict[str, str]) -> list[str]:
    """What to install ("name==version") so that every peer has its pinned version."""
    return [
        f"{name}=={version}" for name, version in VERSIONS.items() if installed.get(name) != version
    ]


def peer_command(
    package: str,
    policy: str,
    *,
    port: int,
    metrics_port: int,
    engine_urls: Sequence[str],
    environment: Path = ENVIRONMENT,
) -> list[str]:
    """The command line of a peer on loopback; both take the same flags."""
    return [
        *(str(_python(environment)), "-m", _MODULES[package]),
        *("--host", "127.0.0.1", "--port", str(port), "--policy", policy),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics_port)),
        *("--log-level", _QUIET[package], "--worker-urls", *engine_urls),
    ]


def _python(environment: Path) -> Path:
    return environment / "bin" / "python"


def _run(command: list[str]) -> None:
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise InstallFailed(
            f"`{' '.join(command)}` ended with {answer.returncode}:\n{answer.stderr or answer.stdout}"
        )
