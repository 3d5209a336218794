"""What a profile may say, and what older ones are read as (R3, R23-R27, R181, R182).

Lenient for what is loaded (cluster.yaml, stored rows), strict for what is defined now.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import UNSET

from orchestrator.catalog.sources import FORMS, repository_of, source_kind
from orchestrator.errors import CatalogRefused
from orchestrator.wire.forbidden_env import forbidden
from orchestrator.wire.profile import CPU_ENGINES, ENGINES, Profile

#: Above every real count, and below what a message can carry.
MOST = 10**12
#: The same in GB: a petabyte.
MOST_GB = 10**6

Warn = Callable[[str], None]


def check_profile(profile: Profile, place: str, strict: bool, warn: Warn) -> Profile:
    """The profile in its present form; CatalogRefused names the place and what to write."""
    if profile.engine not in ENGINES:
        raise CatalogRefused(
            f"{place}.engine",
            f"there is no engine {profile.engine!r}",
            f"write one of {', '.join(ENGINES)}",
        )
    _environment(profile, place)
    _numbers(profile, place)
    profile = _llama_widths(profile, place, strict, warn)
    profile = _source(profile, place, strict, warn)
    _card_or_cpu(profile, place, strict)
    _arithmetic(profile, place)
    return profile


def _numbers(profile: Profile, place: str) -> None:
    for key in ("tp", "pp", "nodes", "gpus_per_node", "cpu_cores", "slots"):
        value = getattr(profile, key)
        if value is not UNSET and value < 1:
            raise CatalogRefused(
                f"{place}.{key}", f"{value} is not a count", "write 1 or more, or leave it out"
            )
        if value is not UNSET and value > MOST:
            raise CatalogRefused(f"{place}.{key}", "it is too large", f"write at most {MOST}")
    for key in ("gpu_memory_gb", "min_memory_gb", "disk_gb", "prefill_rate"):
        value = getattr(profile, key)
        if value is not UNSET and not value > 0:
            raise CatalogRefused(
                f"{place}.{key}",
                f"{value} is not above 0",
                "write a number above 0, or leave it out",
            )
        most = MOST if key == "prefill_rate" else MOST_GB
        if value is not UNSET and value > most:
            raise CatalogRefused(f"{place}.{key}", "it is too large", f"write at most {most}")
    if profile.multi_node is not UNSET:
        if profile.engine != "vllm":
            raise CatalogRefused(
                f"{place}.multi_node", f"{profile.engine} has one way only", "leave it out"
            )
        if profile.multi_node not in ("mp", "ray"):
            raise CatalogRefused(
                f"{place}.multi_node", f"{profile.multi_node!r} is unknown", "write mp or ray"
            )


def _llama_widths(profile: Profile, place: str, strict: bool, warn: Warn) -> Profile:
    """llama.cpp serves from one machine and splits layers over its cards (R24, R31, R80, R81)."""
    if profile.engine != "llama.cpp":
        return profile
    for key in ("pp", "nodes"):
        value = getattr(profile, key)
        if value is UNSET:
            continue
        if strict or value > 1:
            raise CatalogRefused(
                f"{place}.{key}",
                "llama.cpp serves from one node",
                "leave it out; gpus_per_node is its only width",
            )
        profile = msgspec.structs.replace(profile, **{key: UNSET})
    if profile.tp is UNSET:
        return profile
    if profile.gpu is UNSET:
        raise CatalogRefused(
            f"{place}.tp", "a llama.cpp profile without gpu has no width", "leave it out"
        )
    if strict:
        raise CatalogRefused(
            f"{place}.tp",
            "llama.cpp has no tensor parallelism",
            f"write gpus_per_node: {profile.tp}",
        )
    if profile.gpus_per_node is not UNSET and profile.gpus_per_node != profile.tp:
        raise CatalogRefused(
            f"{place}.tp",
            f"tp {profile.tp} and gpus_per_node {profile.gpus_per_node} differ",
            "leave tp out",
        )
    warn(f"{place}.tp: read as gpus_per_node: {profile.tp}; write that")
    return msgspec.structs.replace(profile, gpus_per_node=profile.tp, tp=UNSET)


def _source(profile: Profile, place: str, strict: bool, warn: Warn) -> Profile:
    if profile.source is UNSET:
        if profile.engine == "sim":
            return profile
        raise CatalogRefused(
            f"{place}.source", "it says nowhere to get the weights", f"write {FORMS}"
        )
    kind = source_kind(profile.source)
    if kind == "none":
        raise CatalogRefused(
            f"{place}.source", f"{profile.source!r} is no source", f"write {FORMS}"
        )
    if kind != "page":
        return profile
    repository = repository_of(profile.source)
    if profile.engine == "vllm" and not strict:
        warn(f"{place}.source: a repository page, read as {repository}; write that")
        return msgspec.structs.replace(profile, source=repository or UNSET)
    remedy = (
        "write the address of the file itself (…/resolve/main/model.gguf)"
        if profile.engine == "llama.cpp"
        else f"write {repository}"
    )
    raise CatalogRefused(f"{place}.source", "a repository page is made for people", remedy)


def _card_or_cpu(profile: Profile, place: str, strict: bool) -> None:
    if profile.gpu is not UNSET:
        return
    if profile.engine not in CPU_ENGINES:
        raise CatalogRefused(
            f"{place}.gpu",
            f"{profile.engine} needs a card and none is named",
            "write its class, for example gpu: H100-80GB",
        )
    for key in ("tp", "pp", "nodes", "gpus_per_node", "gpu_memory_gb"):
        if getattr(profile, key) is not UNSET:
            raise CatalogRefused(
                f"{place}.{key}",
                "without gpu the profile runs on the CPU of one node",
                "name the card's class in gpu, or leave this key out",
            )
    if strict and profile.min_memory_gb is UNSET:
        raise CatalogRefused(
            f"{place}.min_memory_gb",
            "a model on the CPU must say what memory it needs",
            "write for example min_memory_gb: 8",
        )


def _arithmetic(profile: Profile, place: str) -> None:
    """tp x pp = nodes x gpus_per_node; what is not written follows (R3)."""
    if profile.gpu is UNSET or profile.engine == "llama.cpp":
        return
    nodes = profile.world_size
    pp = 1 if profile.pp is UNSET else profile.pp
    if profile.gpus_per_node is UNSET:
        width = (1 if profile.tp is UNSET else profile.tp) * pp
        if width % nodes:
            raise CatalogRefused(
                f"{place}.nodes",
                f"{width} cards (tp x pp) do not divide over {nodes} nodes",
                "choose nodes so that tp x pp = nodes x gpus_per_node",
            )
        return
    cards = nodes * profile.gpus_per_node
    if profile.tp is not UNSET and profile.tp * pp != cards:
        raise CatalogRefused(
            f"{place}.tp",
            f"tp {profile.tp} x pp {pp} is not nodes {nodes} x gpus_per_node {profile.gpus_per_node}",
            "make them equal, or leave gpus_per_node out",
        )
    if profile.tp is UNSET and cards % pp:
        raise CatalogRefused(
            f"{place}.pp",
            f"{cards} cards do not divide by pp {pp}",
            "make tp x pp the count of cards",
        )


def _environment(profile: Profile, place: str) -> None:
    words = list(() if profile.args is UNSET else profile.args)
    if any("\0" in word for word in words):
        raise CatalogRefused(f"{place}.args", "one holds a NUL character", "leave it out")
    if profile.env is UNSET:
        return
    if any("\0" in name + value for name, value in profile.env.items()):
        raise CatalogRefused(f"{place}.env", "one holds a NUL character", "leave it out")
    bad = forbidden(profile.env)
    if bad:
        raise CatalogRefused(
            f"{place}.env.{bad[0]}",
            "this variable changes what runs rather than how",
            "leave it out; where it is really needed, set it for the agent itself",
        )
