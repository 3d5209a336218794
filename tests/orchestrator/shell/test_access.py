from __future__ import annotations

import hashlib
import re

import msgspec
import pytest
from msgspec import UNSET

from orchestrator.access import access_entries, digest_of, make_key, read_stored_keys
from orchestrator.cluster_file import DeclaredKey


def test_a_key_is_its_prefix_and_32_characters_and_only_its_digest_is_kept() -> None:
    made = make_key(bytes(range(20)), 5, name="a", models=["m"], expires_ms=9)
    assert re.fullmatch(r"sk-llmgw-[a-z2-7]{32}", made.key)
    assert made.digest == hashlib.sha256(made.key.encode()).hexdigest() == digest_of(made.key)
    kept = msgspec.json.encode(made.stored)
    assert made.key.encode() not in kept
    assert made.stored.prefix == made.key[:13]
    assert (made.stored.created_ms, made.stored.expires_ms) == (5, 9)


def test_other_random_bytes_are_another_key() -> None:
    assert make_key(b"a" * 20, 1, name="a").key != make_key(b"b" * 20, 1, name="a").key


def test_a_row_that_cannot_be_read_opens_no_door() -> None:
    good = make_key(b"a" * 20, 1, name="a")
    rows = {good.digest: msgspec.json.encode(good.stored).decode(), "x": "{", "y": "{}"}
    assert read_stored_keys(rows) == {good.digest: good.stored}


def test_the_routers_get_both_kinds_and_the_declared_one_wins() -> None:
    one = make_key(b"a" * 20, 1, name="stored", models=["m"], owner="acme")
    two = make_key(b"b" * 20, 1, name="shadowed", models=["m"])
    declared = DeclaredKey("declared", two.digest, operator=True)
    entries = access_entries([declared], {one.digest: one.stored, two.digest: two.stored})
    assert entries[one.digest].models == ["m"]
    assert entries[one.digest].scope == "acme"
    assert entries[two.digest].name == "declared"
    assert entries[two.digest].models is UNSET
    assert entries[two.digest].operator


def test_no_models_is_not_all_models() -> None:
    made = make_key(b"a" * 20, 1, name="a", models=[])
    (entry,) = access_entries([], {made.digest: made.stored}).values()
    again = msgspec.json.decode(msgspec.json.encode(made.stored), type=type(made.stored))
    assert entry.models == []
    assert again.models == []


@pytest.mark.parametrize("operator", [True, False])
def test_operator_is_kept(operator: bool) -> None:
    made = make_key(b"a" * 20, 1, name="a", operator=operator)
    (entry,) = access_entries([], {made.digest: made.stored}).values()
    assert entry.operator is operator
