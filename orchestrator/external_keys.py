"""API keys of external models, read from their files on this machine.

A file is looked at again when its mtime or inode changes; missing or empty means that the model has
no key to send, and the reconciler withdraws its endpoint with that reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import UNSET

from orchestrator.catalog.catalog import Catalog


def key_files(catalog: Catalog) -> dict[str, Path]:
    """Model name -> the file with its key."""
    return {
        name: Path(model.definition.external.api_key_file)
        for name, model in catalog.models.items()
        if model.definition.external is not UNSET
    }


class ExternalKeys:
    """What the files held at the last look."""

    def __init__(self) -> None:
        self._marks: dict[Path, tuple[int, int]] = {}
        self._keys: dict[Path, str] = {}

    def look(self, files: Mapping[str, Path]) -> dict[str, str]:
        """Model name -> key, for those whose file has one now."""
        for path in set(files.values()):
            self._look_at(path)
        return {name: self._keys[path] for name, path in files.items() if path in self._keys}

    def _look_at(self, path: Path) -> None:
        try:
            status = path.stat()
            mark = (status.st_mtime_ns, status.st_ino)
            if self._marks.get(path) == mark:
                return
            key = path.read_text().strip()
        except (OSError, UnicodeDecodeError):
            self._marks.pop(path, None)
            self._keys.pop(path, None)
            return
        self._marks[path] = mark
        if key:
            self._keys[path] = key
        else:
            self._keys.pop(path, None)
