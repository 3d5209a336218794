from __future__ import annotations

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from ext import prefix
from tests.ext import oracle

U64 = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize("size", [*range(70), 255, 256, 257, 1000])
def test_xxh64_is_xxh64_at_every_tail_length(size):
    data = bytes(i * 7 % 256 for i in range(size))
    assert prefix.xxh64(data) == xxhash.xxh64_intdigest(data)
    assert prefix.xxh64(data, 2**64 - 1) == xxhash.xxh64_intdigest(data, 2**64 - 1)


@given(st.binary(max_size=600), U64)
@settings(max_examples=100, deadline=None)
def test_xxh64_equals_the_library(data, seed):
    assert prefix.xxh64(data, seed) == xxhash.xxh64_intdigest(data, seed)


@given(st.integers(0, 40_000), st.lists(st.integers(0, 40_000), max_size=100))
@settings(max_examples=60, deadline=None)
def test_chain_equals_the_oracle(length, ends):
    text = bytes(i * i % 251 for i in range(length))
    ends = sorted(end for end in ends if end <= length)
    assert prefix.chain(text, ends) == oracle.chain(text, ends)


def test_boundaries_are_dense_in_the_head_and_sparse_beyond():
    positions = [position for position, _ in prefix.chain(bytes(70_000), [5, 3000, 70_000])]
    head = [5, *range(256, 2049, 256)]
    assert positions == [*head, 3000, 4096, 8192, 16384, 32768, 65536, 70_000]


def test_a_million_ends_make_a_bounded_number_of_boundaries():
    ends = list(range(1, 100_001))
    positions = [position for position, _ in prefix.chain(bytes(100_000), ends)]
    assert len(positions) <= 128
    assert positions[:8] == list(range(1, 9))
    assert positions[-56:] == list(range(99_945, 100_001))


def test_the_next_turn_finds_the_end_of_the_last_one():
    first = bytes(i % 200 for i in range(9_777))
    then = first + b"and more" * 500
    assert prefix.chain(first, [9_777])[-1] in prefix.chain(then, [9_777, len(then)])


def test_one_changed_byte_changes_every_later_digest():
    text = bytearray(5_000)
    before = dict(prefix.chain(bytes(text), [5_000]))
    text[1_500] = 1
    after = dict(prefix.chain(bytes(text), [5_000]))
    assert {p for p in before if before[p] != after[p]} == {p for p in before if p > 1_500}


@pytest.mark.parametrize("ends", [[3, 2], [11], [-1]])
def test_chain_refuses_ends_that_do_not_ascend_within_the_text(ends):
    with pytest.raises((ValueError, OverflowError)):
        prefix.chain(b"0123456789", ends)


def test_nothing_has_no_digest():
    assert prefix.chain(b"", []) == []
    assert prefix.chain(b"", [0]) == []


@given(U64, U64, U64)
@settings(max_examples=100, deadline=None)
def test_mix_keeps_digests_apart_and_depends_on_the_seed(one, other, seed):
    assert (prefix.mix(one, seed) == prefix.mix(other, seed)) == (one == other)
    assert prefix.mix(one, seed) != prefix.mix(one, seed ^ 1)


def test_seed_depends_on_where_the_parts_are_divided():
    assert prefix.seed(b"ab", b"c") != prefix.seed(b"a", b"bc")
    assert prefix.seed(b"ab", b"c") == oracle.seed(b"ab", b"c")
    assert prefix.seed(b"ab", b"") != prefix.seed(b"ab")
    assert prefix.seed() == 0
