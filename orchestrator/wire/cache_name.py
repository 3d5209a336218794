"""The folder name of fetched weights: a hash of their source, so the wanted set follows exactly (R131)."""

from __future__ import annotations

import hashlib
import re

_FORM = re.compile(r"w-[0-9a-f]{40}")


def cache_name(source: str) -> str:
    """The name of the folder in a node's cache that holds this source, and nothing else."""
    return "w-" + hashlib.sha256(source.encode()).hexdigest()[:40]


def is_cache_name(name: str) -> bool:
    """Whether a folder of that name was made by us; any other was put there by an operator (R132)."""
    return _FORM.fullmatch(name) is not None
