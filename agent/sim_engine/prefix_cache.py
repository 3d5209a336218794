"""Which prompt blocks the engine still has, and how a prompt is counted and cut into blocks.

The token rule: a prompt of B bytes has ceil(B / 4) tokens, at least 1. A block of T tokens is
therefore 4 * T bytes of the prompt; only whole blocks can be cached. A block's hash takes the hash
of the block before it as seed, so equal hashes mean equal prompts up to there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

BYTES_PER_TOKEN = 4
_CHAIN_START = 0


def count_tokens(prompt: bytes) -> int:
    """Tokens of a prompt by the rule above."""
    return max(1, -(-len(prompt) // BYTES_PER_TOKEN))


def chain_blocks(prompt: bytes, block_tokens: int) -> tuple[int, ...]:
    """The chained hashes of the prompt's whole blocks, first block first."""
    size = block_tokens * BYTES_PER_TOKEN
    parent = _CHAIN_START
    chain = []
    for start in range(0, len(prompt) - size + 1, size):
        parent = xxh3_64_intdigest(prompt[start : start + size], seed=parent)
        chain.append(parent)
    return tuple(chain)


class PrefixCache:
    """Block hashes in order of last use, at most `capacity` of them.

    A chain is always touched from its end to its start, so a block is older than the block that it
    builds on: the oldest block is never one that another cached block needs.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def match(self, chain: Sequence[int]) -> int:
        """How many blocks at the start of the chain are cached."""
        cached = 0
        for block in chain:
            if block not in self._blocks:
                break
            cached += 1
        return cached

    def insert(self, chain: Sequence[int]) -> None:
        """Makes the chain the newest; of one longer than the cache only the start is kept."""
        for block in reversed(chain[: self._capacity]):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
