"""The settings of one simulated engine, their defaults, and the check of them."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from agent.sim_engine.errors import BadSetting
from agent.sim_engine.faults import Faults
from agent.sim_engine.model import EngineShape

DEFAULT_NAME = "greek"
DEFAULT_SLOTS = 8
DEFAULT_PREFILL_RATE = 6000.0  # tokens/s: a mid-size model on one good card
DEFAULT_DECODE_RATE = 50.0  # tokens/s per request: faster than reading, slow enough to watch
DEFAULT_CACHE_TOKENS = 131_072
DEFAULT_BLOCK_TOKENS = 16  # vLLM's
DEFAULT_MAX_MODEL_LEN = 32_768
DEFAULT_EMBEDDING_SIZE = 64
DEFAULT_KEEP_ALIVE = 5.0  # seconds; real engines close idle connections at 5
DEFAULT_GRACE = 30.0  # seconds
MAX_BODY = 64 * 1024 * 1024  # bytes: twice what the router lets through

Address = tuple[str, int]


class World(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks that make up this engine. master: where rank 0 listens for the others."""

    size: int
    rank: int
    master: Address
    on_loss: Literal["hang", "exit"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All of one engine. Durations in seconds; api_key None: nobody is asked for one."""

    host: str = "127.0.0.1"
    port: int = 0
    names: tuple[str, ...] = (DEFAULT_NAME,)
    shape: EngineShape
    max_model_len: int = DEFAULT_MAX_MODEL_LEN
    embedding_size: int = DEFAULT_EMBEDDING_SIZE
    tools: bool = True
    api_key: str | None = None
    start_delay: float = 0.0
    keep_alive: float = DEFAULT_KEEP_ALIVE
    grace: float = DEFAULT_GRACE
    world: World | None = None
    faults: Faults = Faults()
    log_requests: bool = False


def read_address(text: str) -> Address:
    """ "host:port" or "[v6 address]:port"; raises BadSetting."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise BadSetting(f"address {text!r}: write HOST:PORT, as in 127.0.0.1:5000")
    return host.strip("[]"), int(port)


def check_settings(settings: Settings) -> None:
    """Raises BadSetting for what cannot work, naming the flag."""
    shape = settings.shape
    at_least = (
        ("--slots", shape.slots, 1),
        ("--cache-tokens", shape.cache_tokens, 0),
        ("--block-tokens", shape.block_tokens, 1),
        ("--max-model-len", settings.max_model_len, 2),
        ("--embedding-size", settings.embedding_size, 1),
        ("--prefill-rate", shape.prefill_rate, 0),
        ("--decode-rate", shape.decode_rate, 0),
        ("--start-delay", settings.start_delay, 0),
        ("--keep-alive", settings.keep_alive, 0),
        ("--grace", settings.grace, 0),
    )
    for flag, value, least in at_least:
        if not least <= value < math.inf:
            raise BadSetting(f"{flag} {value}: write a number of at least {least}")
    if not settings.names or not all(settings.names):
        raise BadSetting("--served-model-name: write at least one name, none of them empty")
    if settings.api_key is not None and not settings.api_key:
        raise BadSetting("the API key is empty; leave it out where no key is to be asked for")
    world = settings.world
    if world is not None and not 0 <= world.rank < world.size:
        raise BadSetting(f"--rank {world.rank}: write 0 to {world.size - 1} (--world-size less 1)")
