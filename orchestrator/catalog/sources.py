"""Where weights come from: the four forms, and the repository page that is none of them (R23)."""

from __future__ import annotations

import re
from typing import Literal

SourceKind = Literal["hf", "http", "mirror", "file", "page", "none"]

_HF = re.compile(r"hf:[\w.-]+/[\w.-]+(@[\w./-]+)?")
_MIRROR = re.compile(r"mirror:[A-Za-z0-9][\w./-]*@[\w.-]+")
_FILE = re.compile(r"file:/\S.*")
_HTTP = re.compile(r"https?://[^\s/]+/\S+")
_PAGE = re.compile(
    r"https?://(?:www\.)?(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+)"
    r"(?:/|/(?:tree|blob)/\S*|[?#]\S*)?"
)

FORMS = (
    "hf:org/repo, the address of a file (https://…/model.gguf), mirror:name@version or file:/path"
)


def source_kind(source: str) -> SourceKind:
    """Which form it has; ``page`` is a hub's page made for people, ``none`` is no form at all."""
    if _PAGE.fullmatch(source):
        return "page"
    for form, kind in ((_HF, "hf"), (_MIRROR, "mirror"), (_FILE, "file"), (_HTTP, "http")):
        if form.fullmatch(source):
            return kind  # type: ignore[return-value]
    return "none"


def repository_of(page: str) -> str | None:
    """``hf:org/repo`` of a repository page."""
    match = _PAGE.fullmatch(page)
    return None if match is None else f"hf:{match[1]}"
