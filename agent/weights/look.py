"""Whether the weights that want names lie on this node, whole (R69, R70).

A path from the control plane is not believed: it must be absolute and normalised, and what it names
is looked at before anything is started.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

import msgspec

from agent.want_state import Refusal

_SPLIT_GGUF = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<parts>\d{5})\.gguf")
_GGUF_MAGIC = b"GGUF"
_UNFINISHED = (".tmp", ".part", ".partial", ".incomplete", ".aria2", ".download")
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


class Found(NamedTuple):
    """Complete weights. ``path``: what the engine is given. ``digest``: of names and sizes."""

    path: str
    size: int
    digest: str


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def look(source: str) -> Found | Refusal:
    """The weights named by ``source``, or why they cannot be used."""
    scheme, colon, path = source.partition(":")
    if not colon or scheme != "file":
        return Refusal(
            "fetch-not-available",
            f"fetch not available: {source!r}; write file:/path of weights that lie on the node",
        )
    if (
        not path.startswith("/")
        or path[1:2] == "/"
        or os.path.normpath(path) != path
        or "\0" in path
    ):
        return Refusal(
            "bad-path", f"{source!r}: write file: and the whole path, without .. or doubled slashes"
        )
    try:
        return _look_at(Path(path))
    except OSError as error:
        return Refusal("weights-unreadable", f"{path}: {error.strerror or error}")
    except UnicodeEncodeError as error:
        return Refusal("bad-path", f"{error.object!a}: a name that is not UTF-8; rename the file")


def _look_at(path: Path) -> Found | Refusal:
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        gguf = _gguf_of_folder(path)
        if isinstance(gguf, Refusal):
            return gguf
        if gguf is not None:
            return _look_at(gguf)
        files = _files_of_folder(path)
    elif stat.S_ISREG(mode):
        files = _parts_of_gguf(path)
    else:
        return Refusal("bad-path", f"{path} is neither a file nor a folder")
    if isinstance(files, Refusal):
        return files
    return _found(path, files)


def _found(path: Path, files: list[Path]) -> Found | Refusal:
    listing: list[tuple[str, int]] = []
    for file in files:
        try:
            facts = file.stat()
        except FileNotFoundError:
            return Refusal("weights-incomplete", f"{file} is missing")
        if not stat.S_ISREG(facts.st_mode):
            return Refusal("bad-path", f"{file} is no regular file")
        size = facts.st_size
        unfinished = next((s for s in _UNFINISHED if file.with_name(file.name + s).exists()), None)
        if unfinished is not None:
            return Refusal("weights-incomplete", f"{file}{unfinished} lies beside: still copied")
        if size == 0:
            return Refusal("weights-incomplete", f"{file} is empty")
        if not os.access(file, os.R_OK):
            return Refusal("weights-unreadable", f"{file}: no permission to read")
        listing.append((file.name, size))
    digest = hashlib.sha256(msgspec.json.encode(sorted(listing))).hexdigest()
    return Found(str(path), sum(size for _, size in listing), digest)


def _parts_of_gguf(path: Path) -> list[Path] | Refusal:
    """A GGUF, or all parts of a split one; the engine is given the first."""
    match = _SPLIT_GGUF.fullmatch(path.name)
    if match is None:
        parts = [path]
    else:
        count = int(match["parts"])
        if int(match["part"]) != 1:
            return Refusal("bad-path", f"{path} is not the first part; name the one with 00001")
        parts = [
            path.with_name(f"{match['stem']}-{n:05}-of-{count:05}.gguf")
            for n in range(1, count + 1)
        ]
    for part in parts:
        if part.is_file():  # to open a pipe would wait for ever
            with part.open("rb") as file:
                if file.read(4) != _GGUF_MAGIC:
                    return Refusal("weights-unreadable", f"{part} is not a GGUF file")
    return parts


def _gguf_of_folder(path: Path) -> Path | Refusal | None:
    """The one GGUF (or first part) of a folder; None where there is none."""
    firsts = [
        file
        for file in sorted(path.glob("*.gguf"))
        if (match := _SPLIT_GGUF.fullmatch(file.name)) is None or int(match["part"]) == 1
    ]
    if len(firsts) > 1:
        names = ", ".join(file.name for file in firsts)
        return Refusal("bad-path", f"{path} holds several models: {names}; name one of the files")
    return firsts[0] if firsts else None


def _files_of_folder(path: Path) -> list[Path] | Refusal:
    """Every file that the folder's index names; without an index, its weight files."""
    for name in _INDEXES:
        index = path / name
        if index.is_file():
            try:
                named = msgspec.json.decode(index.read_bytes(), type=_Index).weight_map.values()
            except msgspec.MsgspecError as error:
                return Refusal("weights-unreadable", f"{index}: {error}")
            if any("/" in n or n.startswith(".") for n in named):
                return Refusal("weights-unreadable", f"{index} names files outside its folder")
            return [index, *(path / n for n in sorted(set(named)))]
    files = [f for f in sorted(path.iterdir()) if f.suffix in (".safetensors", ".bin")]
    return files or Refusal("weights-incomplete", f"{path} holds no weight files")
