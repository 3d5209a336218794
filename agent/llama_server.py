"""``python -m agent.llama_server``: llama-server's command line over the xllamacpp wheel.

Used where no llama-server is on PATH, so that the llama.cpp adapter knows one command only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from agent.errors import BadConfig
from agent.llama_flags import help_text, read_flags

#: Fields of the settings that are not a plain attribute of the same name.
_APART = frozenset(
    {"model", "model_alias", "host", "threads", "threads_batch", "timeout", "lora"}
    | {"log_file", "seed", "temperature", "load_mode", "flash_attn_type", "split_mode"}
    | {"cache_type_k", "cache_type_v", "reasoning_format", "pooling_type"}
)


def parameters(given: Mapping[str, Any]) -> Any:
    """The wheel's own parameters for these settings."""
    import xllamacpp

    p = xllamacpp.CommonParams()
    for field, value in given.items():
        if field not in _APART:
            setattr(p, field, value)
    p.model.path = given["model"]
    p.model_alias = set(given.get("model_alias") or [given["model"]])
    p.hostnames = [given.get("host", "127.0.0.1")]
    p.port = given.get("port", 8080)
    for field, kind in (
        ("load_mode", xllamacpp.llama_load_mode),
        ("flash_attn_type", xllamacpp.llama_flash_attn_type),
        ("split_mode", xllamacpp.llama_split_mode),
        ("cache_type_k", xllamacpp.ggml_type),
        ("cache_type_v", xllamacpp.ggml_type),
        ("reasoning_format", xllamacpp.common_reasoning_format),
        ("pooling_type", xllamacpp.llama_pooling_type),
    ):
        if field in given:
            setattr(p, field, kind(given[field]))
    if "threads" in given:
        p.cpuparams.n_threads = given["threads"]
    threads_batch = given.get("threads_batch", given.get("threads"))
    if threads_batch is not None:
        p.cpuparams_batch.n_threads = threads_batch
    if "timeout" in given:
        p.timeout_read = p.timeout_write = given["timeout"]
    if "seed" in given:
        p.sampling.seed = given["seed"]
    if "temperature" in given:
        p.sampling.temp = given["temperature"]
    if given.get("lora"):
        p.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(path, 1.0) for path in given["lora"]]
    return p


def _serve(given: Mapping[str, Any]) -> int:
    try:
        import xllamacpp
    except ImportError as error:
        print(f"the xllamacpp wheel is not installed: {error}", file=sys.stderr)
        return 1
    if given.get("log_file"):
        log = os.open(given["log_file"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
    # Loading is one long call into C++ and requests run on its own threads, so the default action is
    # what ends the process at once, whatever it does; there is nothing to put away.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        server = xllamacpp.Server(parameters(given))
    except Exception as error:
        print(f"cannot serve {given['model']}: {error}", file=sys.stderr)
        return 1
    print(f"serving on {server.listening_address}", flush=True)
    while True:
        signal.pause()


def version() -> str:
    """The wheel's version, or that there is none."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        return f"xllamacpp {metadata.version('xllamacpp')}"
    return "xllamacpp absent"


def main(argv: Sequence[str] | None = None) -> int:
    """Serves until SIGTERM; 2 when a flag is wrong."""
    words = sys.argv[1:] if argv is None else list(argv)
    if {"-h", "--help"} & set(words):
        print(help_text())
        return 0
    if "--version" in words:
        print(f"version: {version()}")
        return 0
    try:
        given = read_flags(words)
    except BadConfig as error:
        print(error, file=sys.stderr)
        return 2
    return _serve(given)


if __name__ == "__main__":
    sys.exit(main())
