"""Model definitions that the tests of the reconciler share."""

from __future__ import annotations

from typing import Any


def always(name: str = "m", least: int = 1, **more: Any) -> dict[str, Any]:
    """Always ``least`` copies, one simulated card each."""
    return {
        "name": name,
        "scaling": {"min": least},
        "profiles": [{"engine": "sim", "gpu": "H100-80GB"}],
        **more,
    }


def on_demand(name: str = "m", idle_timeout: str = "5m", **more: Any) -> dict[str, Any]:
    """Loaded by a request, one simulated card."""
    return {
        "name": name,
        "scaling": {"min": 0, "max": 1, "idle_timeout": idle_timeout},
        "profiles": [{"engine": "sim", "gpu": "H100-80GB"}],
        **more,
    }


def big(name: str = "big", **more: Any) -> dict[str, Any]:
    """TP8 over two nodes, four cards on each."""
    return {
        "name": name,
        "scaling": {"min": 1},
        "profiles": [{"engine": "sim", "gpu": "H100-80GB", "tp": 8, "nodes": 2}],
        **more,
    }
