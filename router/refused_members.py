"""Request members that never pass to an engine, and what to write instead.

They would let a client choose adapters, slots, cache transfers or ids that belong to the cluster.
"""

from __future__ import annotations

from router.errors import MemberRefused

_NAME_THE_ADAPTER = "put the adapter's name into model"
_OURS = "the router sets what is needed of it; leave it out"
_CLASS_HEADER = "a lower class is asked for by the header x-llmgw-class"

REFUSED: dict[str, str] = {
    "lora": _NAME_THE_ADAPTER,
    "lora_path": _NAME_THE_ADAPTER,
    "id_slot": _OURS,
    "n_predict": "write max_tokens",
    "rid": "send the header x-request-id",
    "request_id": "send the header x-request-id",
    "kv_transfer_params": _OURS,
    "bootstrap_host": _OURS,
    "bootstrap_port": _OURS,
    "bootstrap_room": _OURS,
    "data_parallel_rank": _OURS,
    "return_hidden_states": "it is not offered; leave it out",
    "priority": _CLASS_HEADER,
}


def refuse(member: str) -> MemberRefused:
    """The answer to a body that has ``member``."""
    return MemberRefused(f"the member {member!r} is not accepted: {REFUSED[member]}", param=member)
