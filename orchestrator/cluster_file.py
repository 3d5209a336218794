"""cluster.yaml as it lies on disk: read, parsed, and noticed when it changes.

What its models mean is decided by orchestrator/catalog; here a file becomes plain values and every
refusal names the place. A key written twice is refused: the plain loader would keep the last in silence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml
from msgspec import UNSET, UnsetType

from orchestrator.errors import CatalogRefused

_KNOWN = ("models", "keys", "engine_metrics", "quotas", "mirror_url", "mirror_key_file")


class DeclaredKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An API key in cluster.yaml, by the SHA-256 of the key in hex."""

    name: str
    sha256: str
    models: list[str] | UnsetType = UNSET
    operator: bool = False
    owner: str | UnsetType = UNSET


class ClusterFile(NamedTuple):
    """One reading of the file. ``models`` are mappings as written; ``digest`` of the whole text."""

    digest: str
    models: list[dict[str, Any]]
    keys: list[DeclaredKey]
    engine_metrics: dict[str, Any]


EMPTY = ClusterFile(digest="", models=[], keys=[], engine_metrics={})


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a key written twice, and names the line of a value that is none."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        # The plain loader lets through what Python says of 2024-13-45 or of 5,000 digits, and text
        # that nobody can send on.
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, str):
                value.encode()
        except (ValueError, AttributeError, OverflowError) as error:
            raise yaml.constructor.ConstructorError(
                None, None, f"this value cannot be read ({error})", node.start_mark
            ) from None
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is written twice", key_node.start_mark
                )
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str, name: str) -> Any:
    """The value in ``text``; CatalogRefused names the line."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = name if mark is None else f"{name}, line {mark.line + 1}, column {mark.column + 1}"
        reason = error.problem or "it is not YAML"
        raise CatalogRefused(place, reason, "correct that line") from None
    except RecursionError:
        raise CatalogRefused(name, "it is nested too deeply", "write it flatter") from None
    except yaml.YAMLError as error:
        raise CatalogRefused(name, f"it is not YAML: {error}", "correct it") from None


def parse_cluster_file(text: str, name: str) -> ClusterFile:
    """The parts of the file; only their outer form is checked here."""
    whole = parse_yaml(text, name)
    if whole is None:
        # A file that is just being written begins like this; nothing must be torn down by it.
        raise CatalogRefused(name, "it is empty", "to declare no model write: models: []")
    if not isinstance(whole, dict):
        raise CatalogRefused(name, "it is not a mapping", "begin it with models:")
    for key in whole:
        if key not in _KNOWN:
            raise CatalogRefused(
                str(key), "llmgw does not know this key", f"write one of {', '.join(_KNOWN)}"
            )
    models = whole.get("models", [])
    if models is None:
        raise CatalogRefused(
            "models", "nothing follows it", "to declare no model write: models: []"
        )
    if not isinstance(models, list) or not all(isinstance(model, dict) for model in models):
        raise CatalogRefused(
            "models", "it is not a list of mappings", "write it as: models: [{name: …}]"
        )
    metrics = whole.get("engine_metrics") or {}
    if not isinstance(metrics, dict):
        raise CatalogRefused("engine_metrics", "it is not a mapping", "write ENGINE: {…}")
    return ClusterFile(
        digest=hashlib.sha256(text.encode()).hexdigest(),
        models=models,
        keys=_keys(whole.get("keys") or []),
        engine_metrics=metrics,
    )


def _keys(written: Any) -> list[DeclaredKey]:
    if not isinstance(written, list):
        raise CatalogRefused("keys", "it is not a list", "write keys: [{name: …, sha256: …}]")
    keys: list[DeclaredKey] = []
    for number, one in enumerate(written):
        place = f"keys[{number}]"
        try:
            key = msgspec.convert(one, DeclaredKey)
        except msgspec.ValidationError as error:
            raise CatalogRefused(
                place, str(error), "write name, sha256 and where wanted models, operator, owner"
            ) from None
        digest = key.sha256.lower()
        if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
            raise CatalogRefused(
                f"{place}.sha256",
                "it is not 64 hex digits",
                "write the output of: printf %s KEY | sha256sum",
            )
        keys.append(msgspec.structs.replace(key, sha256=digest))
    if len({key.name for key in keys}) < len(keys):
        raise CatalogRefused("keys", "two keys have one name", "give each a name of its own")
    return keys


class FileOnDisk:
    """Reads the file and notices when it was replaced or written."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._mark: tuple[int, int, int] | None = None
        self._last_look: tuple[int, int, int] | None = None

    def read(self) -> ClusterFile:
        """The file as it is now; EMPTY where none is named. CatalogRefused with the place."""
        if self.path is None:
            return EMPTY
        self._mark = self._look()
        try:
            text = self.path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = f"it cannot be read: {error}"
            raise CatalogRefused(str(self.path), reason, "correct --config or the file") from None
        return parse_cluster_file(text, self.path.name)

    def changed(self) -> bool:
        """Whether it is another file than at the last `read`, and the same as at the last look: half of
        a file may be good YAML. One that has gone has not changed."""
        if self.path is None:
            return False
        before, self._last_look = self._last_look, self._look()
        return self._last_look not in (None, self._mark) and self._last_look == before

    def forget(self) -> None:
        """What was read was not put in force: the next look finds it changed again."""
        self._mark = None

    def _look(self) -> tuple[int, int, int] | None:
        assert self.path is not None
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size
