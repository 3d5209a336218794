"""Blocks, their chained hashes, and the order in which they are dropped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.sim_engine.prefix_cache import PrefixCache, chain_blocks, count_tokens


def test_tokens_are_four_bytes_each_and_never_none():
    assert [count_tokens(b"x" * size) for size in (0, 1, 4, 5, 8)] == [1, 1, 1, 2, 2]


def test_only_whole_blocks_count():
    assert chain_blocks(b"x" * 63, 16) == ()
    assert len(chain_blocks(b"x" * 64, 16)) == 1
    assert len(chain_blocks(b"x" * 200, 16)) == 3


def test_equal_blocks_at_different_places_differ():
    first, second = chain_blocks(b"x" * 128, 16)
    assert first != second


@given(st.binary(max_size=300), st.binary(max_size=300), st.integers(1, 9))
def test_chains_agree_exactly_as_far_as_the_texts_do(one, other, block_tokens):
    size = block_tokens * 4
    same = 0
    for a, b in zip(
        chain_blocks(one, block_tokens), chain_blocks(other, block_tokens), strict=False
    ):
        if a != b:
            break
        same += 1
    common = 0
    while (common + 1) * size <= min(len(one), len(other)) and one[: (common + 1) * size] == other[
        : (common + 1) * size
    ]:
        common += 1
    assert same == common


def test_the_end_of_a_chain_is_dropped_before_its_start():
    cache = PrefixCache(4)
    cache.insert([1, 2, 3])
    cache.insert([7, 8])
    assert (cache.match([1, 2, 3]), cache.match([7, 8])) == (2, 2)


def test_of_a_chain_longer_than_the_cache_the_start_stays():
    cache = PrefixCache(3)
    cache.insert([1, 2, 3, 4, 5])
    assert cache.match([1, 2, 3, 4, 5]) == 3


def test_a_cache_of_no_size_keeps_nothing():
    cache = PrefixCache(0)
    cache.insert([1, 2])
    assert (len(cache), cache.match([1])) == (0, 0)


# Chains as paths in a small tree: what they share they share from the start.
CHAINS = st.lists(st.lists(st.integers(0, 2), max_size=5), max_size=30).map(
    lambda paths: [[hash((0, *path[: end + 1])) for end in range(len(path))] for path in paths]
)


@given(CHAINS, st.integers(0, 8))
def test_against_a_plain_list(chains, capacity):
    """The oracle: a list, newest first, in which each inserted chain comes to the front."""
    cache = PrefixCache(capacity)
    oracle: list[int] = []
    for chain in chains:
        cache.insert(chain)
        kept = chain[:capacity]
        oracle = (kept + [block for block in oracle if block not in kept])[:capacity]
        assert len(cache) == len(oracle)
        assert cache.match(chain) == len(kept)
        for other in chains:
            # Closed under "builds on": what is cached of a chain is its start, without holes.
            held = [block in oracle for block in other]
            assert cache.match(other) == sum(held)
            assert held == sorted(held, reverse=True)
