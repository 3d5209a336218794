"""What can be seen in the folders that the agent was told to look in (R69, R70).

Storage is observed, not managed: how the files came there is nobody's business. A node that was told
nothing reports nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from agent.weights.look import Found, look
from orchestrator.wire.reports import Weights

#: The folders may be on slow storage, so what was seen is believed for a while.
_BELIEVED = 60.0  # seconds


class ToldFolders:
    """Looks one level deep: a folder of a model, or a GGUF file."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = folders
        self._seen: list[Weights] = []
        self._until = 0.0

    def seen(self) -> list[Weights]:
        """The complete weights there. Blocks on the storage."""
        if self._folders and time.monotonic() >= self._until:
            self._seen = [found for folder in self._folders for found in _seen_in(Path(folder))]
            self._until = time.monotonic() + _BELIEVED
        return self._seen


def _is_utf8(path: Path) -> bool:
    """Whether the name can be said in a message."""
    return os.fsencode(path).decode(errors="replace") == str(path)


def _seen_in(folder: Path) -> list[Weights]:
    try:
        entries = sorted(
            e for e in folder.iterdir() if _is_utf8(e) and (e.is_dir() or e.suffix == ".gguf")
        )
    except OSError:
        return []
    found = [(f"file:{entry}", look(f"file:{entry}")) for entry in entries]
    return [
        Weights(source=source, complete=True, size=answer.size, digest=answer.digest)
        for source, answer in found
        if isinstance(answer, Found)
    ]
