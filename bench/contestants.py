"""Who is measured: our router, the peers, and no router at all.

The one place that knows how our router is configured and started for a bench.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml

from bench import peers
from bench.chat_bodies import MODEL

PROJECT = Path(__file__).resolve().parent.parent
LLMGW = "llmgw"
SGLANG_CACHE_AWARE = "sglang-router cache_aware"
SGLANG_ROUND_ROBIN = "sglang-router round_robin"
VLLM_ROUND_ROBIN = "vllm-router round_robin"
VLLM_CACHE_AWARE = "vllm-router cache_aware"
#: The load generator straight at the engine: what both can do at most, and that the check itself is right.
DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class Launch:
    """What a contestant is given to start with; `folder` is its own and empty."""

    port: int
    metrics_port: int
    engine_urls: tuple[str, ...]
    folder: Path


@dataclass(frozen=True, slots=True)
class Contestant:
    """`command` gives the command line and writes what it needs into the launch's folder; None: no process."""

    name: str
    version: str
    command: Callable[[Launch], list[str]] | None


def all_contestants() -> tuple[Contestant, ...]:
    """In the order in which they are measured within a round."""
    return (
        Contestant(LLMGW, _own_version(), _llmgw_command),
        _peer(SGLANG_CACHE_AWARE),
        _peer(VLLM_ROUND_ROBIN),
        _peer(SGLANG_ROUND_ROBIN),
        _peer(VLLM_CACHE_AWARE),
        Contestant(DIRECT, "", None),
    )


def llmgw_config(engine_urls: tuple[str, ...]) -> dict[str, object]:
    """Our router's static configuration: one model, the engines, nothing else switched on or off."""
    return {"models": [{"name": MODEL, "endpoints": [{"url": url} for url in engine_urls]}]}


def _own_version() -> str:
    # From the tree that is measured, not from what happens to be installed.
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def _llmgw_command(launch: Launch) -> list[str]:
    config = launch.folder / "router.yaml"
    config.write_text(yaml.safe_dump(llmgw_config(launch.engine_urls)))
    return [
        *(sys.executable, "-m", "router", "--config", str(config)),
        *("--bind", f"127.0.0.1:{launch.port}", "--workers", "1"),
        *("--metrics-bind", f"127.0.0.1:{launch.metrics_port}"),
        # No load balancer has to notice that it goes away.
        *("--grace", "0"),
    ]


def _peer(name: str) -> Contestant:
    package, policy = name.split()
    return Contestant(name, peers.VERSIONS[package], partial(_peer_command, package, policy))


def _peer_command(package: str, policy: str, launch: Launch) -> list[str]:
    return peers.peer_command(
        package,
        policy,
        port=launch.port,
        metrics_port=launch.metrics_port,
        engine_urls=launch.engine_urls,
    )
