"""Embedding vectors of the simulated engine: fixed by the text, of length 1, without meaning."""

from __future__ import annotations

import base64
import math
from array import array

import msgspec
from xxhash import xxh3_64_intdigest

from agent.sim_engine.answer_forms import Usage
from agent.sim_engine.request_forms import Embeddings

_HALF = float(1 << 63)


def unit_vector(text: bytes, size: int) -> list[float]:
    """`size` numbers, the same for the same text, whose squares add up to 1."""
    digest = xxh3_64_intdigest(text).to_bytes(8, "little")
    raw = [xxh3_64_intdigest(digest, seed=index) / _HALF - 1.0 for index in range(size)]
    length = math.sqrt(sum(value * value for value in raw))
    return [value / length for value in raw]


def embeddings_body(asked: Embeddings, size: int, id: str, created: int, usage: Usage) -> bytes:
    data = []
    for index, text in enumerate(asked.inputs):
        vector: list[float] | str = unit_vector(text, asked.dimensions or size)
        if asked.base64:
            vector = base64.b64encode(array("f", vector).tobytes()).decode()
        data.append({"object": "embedding", "index": index, "embedding": vector})
    return msgspec.json.encode(
        {
            "id": id,
            "object": "list",
            "created": created,
            "model": asked.model,
            "data": data,
            "usage": {
                "prompt_tokens": usage.prompt,
                "total_tokens": usage.prompt,
                "completion_tokens": 0,
                "prompt_tokens_details": None,
            },
        }
    )
