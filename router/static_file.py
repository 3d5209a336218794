"""The YAML of static mode, turned into the same three snapshots that the orchestrator publishes.

    models:
      - name: chat
        context_length: 8192
        endpoints:
          - url: http://127.0.0.1:8000
            slots: 8
    keys:
      - name: team-a
        sha256: <64 hex digits>         # or key_file: a file that holds the key itself
        models: [chat]

Unknown and doubled members are refused with their place: a typo must not become a default.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml
from msgspec import UNSET, UnsetType

from orchestrator.wire.durations import seconds_of
from orchestrator.wire.errors import BadDuration, NameClash
from orchestrator.wire.names import build_names
from orchestrator.wire.snapshots import (
    AccessSnapshot,
    AdapterEntry,
    CatalogSnapshot,
    Endpoint,
    EndpointsSnapshot,
    KeyEntry,
    ModelEntry,
    Timeouts,
)
from router.errors import StaticFileError
from router.snapshot import Snapshots

_DIGEST = re.compile(r"[0-9a-f]{64}")
_LONGEST_KEY = 4096


class _Times(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    first_byte: str | int | float | UnsetType = UNSET
    idle: str | int | float | UnsetType = UNSET
    total: str | int | float | UnsetType = UNSET


class _Endpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str
    id: str | UnsetType = UNSET
    engine: str = "openai"
    served_name: str | UnsetType = UNSET
    engine_key: str = ""
    slots: int | UnsetType = UNSET
    context: int | UnsetType = UNSET
    prefill_rate: float | UnsetType = UNSET
    adapters: dict[str, str | int] = {}


class _Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    endpoints: list[_Endpoint]
    description: str | UnsetType = UNSET
    aliases: list[str] = []
    context_length: int | UnsetType = UNSET
    capabilities: list[str] = []
    simulated: bool = False
    max_output_tokens: int | UnsetType = UNSET
    timeouts: _Times = _Times()


class _Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    sha256: str | UnsetType = UNSET
    key_file: str | UnsetType = UNSET
    models: list[str] | UnsetType = UNSET
    operator: bool = False


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: list[_Model]
    keys: list[_Key] = []


def load_static_file(path: str) -> Snapshots:
    """The snapshots a file makes; StaticFileError says what is wrong, where, and what to write instead."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise StaticFileError(f"{path}: cannot be read: {error}") from None
    try:
        return parse_static_text(text, folder=os.path.dirname(os.path.abspath(path)))
    except StaticFileError as error:
        raise StaticFileError(f"{path}: {error}") from None


def parse_static_text(text: str, *, folder: str) -> Snapshots:
    """The same from text; a relative ``key_file`` is looked for in ``folder``."""
    try:
        raw = yaml.load(text, _StrictLoader)
        file = msgspec.convert(raw, _File)
    except yaml.YAMLError as error:
        raise StaticFileError(f"not YAML: {' '.join(str(error).split())}") from None
    except msgspec.ValidationError as error:
        raise StaticFileError(_placed(str(error))) from None
    if not file.models:
        raise StaticFileError("models: the list is empty; name at least one model with an endpoint")
    models = [_model(model, f"models[{number}]") for number, model in enumerate(file.models)]
    try:
        build_names(models)
    except NameClash as error:
        raise StaticFileError(f"models: {error}") from None
    endpoints = [
        _endpoint(model, endpoint, f"models[{i}].endpoints[{j}]")
        for i, model in enumerate(file.models)
        for j, endpoint in enumerate(model.endpoints)
    ]
    seen: set[str] = set()
    for endpoint in endpoints:
        if endpoint.id in seen:
            raise StaticFileError(
                f"models: the endpoint {endpoint.id!r} is listed twice; give each its own id"
            )
        seen.add(endpoint.id)
    return Snapshots(
        CatalogSnapshot(0, 1, models),
        EndpointsSnapshot(0, 1, endpoints, []),
        AccessSnapshot(0, 1, _keys(file.keys, folder), {}),
    )


def check_open_access(snapshots: Snapshots, host: str) -> None:
    """StaticFileError when a router without keys would listen beyond this machine."""
    if snapshots.access.keys or _is_loopback(host):
        return
    raise StaticFileError(
        f"no keys are listed, and {host} is not loopback: everybody who reaches it could use the models; "
        "list keys:, or bind to 127.0.0.1"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _StrictLoader(yaml.SafeLoader):
    """Refuses a mapping with a doubled key, of which plain YAML silently keeps the last.

    And takes a character that JSON writes as two escapes for that character; plain YAML makes two halves
    of it, which nothing can write down.
    """

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        value = super().construct_scalar(node)
        if not isinstance(value, str) or value.isascii():
            return value
        try:
            return value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise yaml.constructor.ConstructorError(
                None, None, "half of a character is written here; write it whole", node.start_mark
            ) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is there twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def _placed(message: str) -> str:
    # msgspec names the place as `... - at `$.models[0].endpoints[0].url``.
    words, at, place = message.rpartition(" - at ")
    if not at:
        return f"the file: {message}"
    return f"{place.strip('`').removeprefix('$.').removeprefix('$') or 'the file'}: {words}"


def _model(model: _Model, place: str) -> ModelEntry:
    if not model.name:
        raise StaticFileError(f"{place}.name: is empty; give the name that clients ask for")
    if not model.endpoints:
        raise StaticFileError(f"{place}.endpoints: is empty; list at least one url")
    for member, number in (
        ("context_length", model.context_length),
        ("max_output_tokens", model.max_output_tokens),
    ):
        if number is not UNSET and number < 1:
            raise StaticFileError(f"{place}.{member}: {number} is not at least 1")
    adapters = {name for endpoint in model.endpoints for name in endpoint.adapters}
    return ModelEntry(
        name=model.name,
        description=model.description,
        aliases=model.aliases,
        adapters=[AdapterEntry(name) for name in sorted(adapters)],
        context_length=model.context_length,
        capabilities=model.capabilities,
        simulated=model.simulated,
        max_output_tokens=model.max_output_tokens,
        timeouts=_timeouts(model.timeouts, f"{place}.timeouts"),
    )


def _timeouts(times: _Times, place: str) -> Timeouts:
    given: dict[str, float] = {}
    for name in ("first_byte", "idle", "total"):
        written = getattr(times, name)
        if written is UNSET:
            continue
        try:
            given[name] = seconds_of(written)
        except BadDuration as error:
            raise StaticFileError(f"{place}.{name}: {error}") from None
        if given[name] <= 0:
            raise StaticFileError(f"{place}.{name}: is 0; write for example 300s")
    return Timeouts(**given)


def _endpoint(model: _Model, endpoint: _Endpoint, place: str) -> Endpoint:
    address = _checked_url(endpoint.url, f"{place}.url")
    if endpoint.slots is not UNSET and endpoint.slots < 1:
        raise StaticFileError(f"{place}.slots: {endpoint.slots} is not at least 1")
    if endpoint.context is not UNSET and endpoint.context < 1:
        raise StaticFileError(f"{place}.context: {endpoint.context} is not at least 1")
    if endpoint.prefill_rate is not UNSET and endpoint.prefill_rate <= 0:
        raise StaticFileError(f"{place}.prefill_rate: {endpoint.prefill_rate} is not above 0")
    if not endpoint.engine_key.isascii() or not endpoint.engine_key.isprintable():
        raise StaticFileError(f"{place}.engine_key: may have printable ASCII characters only")
    return Endpoint(
        id=f"{model.name}@{address}" if endpoint.id is UNSET else endpoint.id,
        generation=1,
        model=model.name,
        url=f"http://{address}",
        engine=endpoint.engine,
        served_name=model.name if endpoint.served_name is UNSET else endpoint.served_name,
        engine_key=endpoint.engine_key,
        slots=endpoint.slots,
        context=endpoint.context,
        adapters=endpoint.adapters,
        prefill_rate=endpoint.prefill_rate,
    )


def _checked_url(url: str, place: str) -> str:
    """``host:port`` of an engine's url."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme != "http" or not parts.hostname or port is None:
        raise StaticFileError(f"{place}: {url!r} is not http://HOST:PORT")
    if parts.path.rstrip("/") or parts.query or parts.fragment or parts.username is not None:
        raise StaticFileError(
            f"{place}: {url!r} has more than host and port; write http://{parts.hostname}:{port} "
            "(the router adds /v1/... itself)"
        )
    return parts.netloc


def _keys(keys: list[_Key], folder: str) -> dict[str, KeyEntry]:
    entries: dict[str, KeyEntry] = {}
    for number, key in enumerate(keys):
        place = f"keys[{number}]"
        digest = _digest(key, place, folder)
        if digest in entries:
            raise StaticFileError(f"{place}: the same key as {entries[digest].name!r}; remove one")
        entries[digest] = KeyEntry(
            id=key.name, name=key.name, models=key.models, operator=key.operator
        )
    return entries


def _digest(key: _Key, place: str, folder: str) -> str:
    if (key.sha256 is UNSET) == (key.key_file is UNSET):
        raise StaticFileError(f"{place}: needs either sha256: <hex>, or key_file: <path>")
    if isinstance(key.sha256, str):
        digest = key.sha256.lower()
        if _DIGEST.fullmatch(digest) is None:
            # The value is not quoted: somebody may have written the key itself.
            raise StaticFileError(
                f'{place}.sha256: is not 64 hex digits; get them by: printf %s "$KEY" | sha256sum'
            )
        return digest
    assert isinstance(key.key_file, str)
    path = os.path.join(folder, key.key_file)
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = file.read(_LONGEST_KEY + 1).strip()
    except OSError as error:
        raise StaticFileError(f"{place}.key_file: cannot be read: {error}") from None
    if mode & 0o077:
        raise StaticFileError(
            f"{place}.key_file: {path} may be read by others; run: chmod 600 {path}"
        )
    if not secret or len(secret) > _LONGEST_KEY:
        raise StaticFileError(f"{place}.key_file: {path} holds no key (1 to {_LONGEST_KEY} bytes)")
    return hashlib.sha256(secret).hexdigest()
