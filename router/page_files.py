"""The chat page: the files of a folder, read once at start and served from memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "chat_page"
INDEX = "index.html"

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
#: No inline script, nothing from elsewhere, no frame around it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-cache"),
)


class PageFile(NamedTuple):
    """One file as it is served."""

    content_type: str
    body: bytes


def read_page_files(folder: Path = FOLDER) -> Mapping[str, PageFile]:
    """Path under the router -> file: ``/`` is the index, the rest lies under ``/chat/``."""
    files: dict[str, PageFile] = {}
    for path in sorted(folder.rglob("*")):
        content_type = _TYPES.get(path.suffix)
        if content_type is None or not path.is_file():
            continue
        name = path.relative_to(folder).as_posix()
        file = PageFile(content_type, path.read_bytes())
        files[f"/chat/{name}"] = file
        if name == INDEX:
            files["/"] = file
    return files
