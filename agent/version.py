"""The version of llmgw that runs."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """As installed; ``unpackaged`` when run from a source tree that is not installed."""
    try:
        return metadata.version("llmgw")
    except metadata.PackageNotFoundError:
        return "unpackaged"
