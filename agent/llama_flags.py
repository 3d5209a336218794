"""llama-server's flags as the shim over the xllamacpp wheel takes them: one table, parsed purely.

A flag that is not in the table is refused by name: to ignore one would run something else than was
asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from agent.errors import BadConfig

ALL_LAYERS = 1_000_000
_LOAD_MODES = {"auto": -1, "none": 0, "mmap": 1, "mlock": 2, "dio": 4}
_FLASH = {"auto": -1, "off": 0, "on": 1}
_SPLIT = {"none": 0, "layer": 1, "row": 2, "tensor": 3}
_REASONING = {"none": 0, "auto": 1, "deepseek-legacy": 2, "deepseek": 3}
_POOLING = {"none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}
_CACHE_TYPES = {
    "f32": 0,
    "f16": 1,
    "bf16": 30,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "iq4_nl": 20,
}


class Flag(NamedTuple):
    """``names`` as llama-server spells them; ``field`` of the settings; ``read`` None: no value."""

    names: tuple[str, ...]
    field: str
    read: Callable[[str], Any] | None
    #: What a flag without a value sets.
    sets: Any = True
    #: Values add up.
    adds: bool = False


def _choice(values: dict[str, int]) -> Callable[[str], int]:
    def read(text: str) -> int:
        if text not in values:
            raise ValueError(f"write one of {', '.join(values)}")
        return values[text]

    return read


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("write a whole number") from None


def _layers(text: str) -> int:
    return {"auto": -1, "all": ALL_LAYERS}.get(text) or _integer(text)


def _on_off(text: str) -> bool:
    return bool(_choice({"off": 0, "on": 1})(text))


def _list(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _key_lines(path: str) -> list[str]:
    try:
        with open(path) as file:
            keys = [line.strip() for line in file]
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    return [key for key in keys if key]


def _whole(text: str) -> str:
    return text


FLAGS: tuple[Flag, ...] = (
    Flag(("-m", "--model"), "model", _whole),
    Flag(("-a", "--alias"), "model_alias", _list, adds=True),
    Flag(("--host",), "host", _whole),
    Flag(("--port",), "port", _integer),
    Flag(("-np", "--parallel"), "n_parallel", _integer),
    Flag(("-c", "--ctx-size"), "n_ctx", _integer),
    Flag(("-n", "--predict", "--n-predict"), "n_predict", _integer),
    Flag(("-b", "--batch-size"), "n_batch", _integer),
    Flag(("-ub", "--ubatch-size"), "n_ubatch", _integer),
    Flag(("-t", "--threads"), "threads", _integer),
    Flag(("-tb", "--threads-batch"), "threads_batch", _integer),
    Flag(("--threads-http",), "n_threads_http", _integer),
    Flag(("-ngl", "--gpu-layers", "--n-gpu-layers"), "n_gpu_layers", _layers),
    Flag(("-sm", "--split-mode"), "split_mode", _choice(_SPLIT)),
    Flag(("-mg", "--main-gpu"), "main_gpu", _integer),
    Flag(("-fit", "--fit"), "fit_params", _on_off),
    Flag(("-fa", "--flash-attn"), "flash_attn_type", _choice(_FLASH)),
    Flag(("-ctk", "--cache-type-k"), "cache_type_k", _choice(_CACHE_TYPES)),
    Flag(("-ctv", "--cache-type-v"), "cache_type_v", _choice(_CACHE_TYPES)),
    Flag(("-cram", "--cache-ram"), "cache_ram_mib", _integer),
    Flag(("--cache-reuse",), "n_cache_reuse", _integer),
    Flag(("--load-mode",), "load_mode", _choice(_LOAD_MODES)),
    Flag(("--mlock",), "load_mode", None, 2),
    Flag(("--no-mmap",), "load_mode", None, 0),
    Flag(("-kvu", "--kv-unified"), "kv_unified", None),
    Flag(("-no-kvu", "--no-kv-unified"), "kv_unified", None, False),
    Flag(("-cb", "--cont-batching"), "cont_batching", None),
    Flag(("--metrics",), "endpoint_metrics", None),
    Flag(("--slots",), "endpoint_slots", None),
    Flag(("--no-slots",), "endpoint_slots", None, False),
    Flag(("--offline",), "offline", None),
    Flag(("--jinja",), "use_jinja", None),
    Flag(("--no-jinja",), "use_jinja", None, False),
    Flag(("--chat-template",), "chat_template", _whole),
    Flag(("--reasoning-format",), "reasoning_format", _choice(_REASONING)),
    Flag(("--embedding", "--embeddings"), "embedding", None),
    Flag(("--pooling",), "pooling_type", _choice(_POOLING)),
    Flag(("--webui", "--ui"), "ui", None),
    Flag(("--no-webui", "--no-ui"), "ui", None, False),
    Flag(("--no-warmup",), "warmup", None, False),
    Flag(("--api-key",), "api_keys", _list, adds=True),
    Flag(("--api-key-file",), "api_keys", _key_lines, adds=True),
    Flag(("--cors-origins",), "cors_origins", _whole),
    Flag(("-to", "--timeout"), "timeout", _integer),
    Flag(("--lora",), "lora", _list, adds=True),
    Flag(("--lora-init-without-apply",), "lora_init_without_apply", None),
    Flag(("-lv", "--verbosity", "--log-verbosity"), "verbosity", _integer),
    Flag(("--log-file",), "log_file", _whole),
    Flag(("-s", "--seed"), "seed", _integer),
    Flag(("--temp", "--temperature"), "temperature", float),
)
_BY_NAME = {name: flag for flag in FLAGS for name in flag.names}


def read_flags(argv: Sequence[str]) -> dict[str, Any]:
    """Field -> value of what was given; BadConfig names the flag that is unknown or does not fit."""
    given: dict[str, Any] = {}
    words = iter(argv)
    for word in words:
        name, equals, inline = word.partition("=")
        flag = _BY_NAME.get(name)
        if flag is None:
            raise BadConfig(
                f"{name}: this llama-server (over the xllamacpp wheel) has no such flag;"
                " --help lists those it has, and a real llama-server on PATH has them all"
            )
        value = _value(flag, name, inline if equals else None, words)
        if flag.adds:
            given.setdefault(flag.field, []).extend(value)
        else:
            given[flag.field] = value
    if not given.get("model"):
        raise BadConfig("-m FILE is missing: name the model's GGUF file")
    return given


def _value(flag: Flag, name: str, inline: str | None, words: Any) -> Any:
    if flag.read is None:
        if inline is not None:
            raise BadConfig(f"{name} takes no value")
        return flag.sets
    text = next(words, None) if inline is None else inline
    if text is None:
        raise BadConfig(f"{name} needs a value")
    try:
        return flag.read(text)
    except ValueError as error:
        raise BadConfig(f"{name} {text}: {error}") from None


def help_text() -> str:
    """One line per flag, in llama-server's own form."""
    lines = ["usage: python -m agent.llama_server -m FILE [flags of llama-server]", ""]
    for flag in FLAGS:
        value = "" if flag.read is None else " " + flag.field.upper()
        lines.append(f"{', '.join(flag.names)}{value}")
    lines.append("-h, --help, --version")
    return "\n".join(lines)
