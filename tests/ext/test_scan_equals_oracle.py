"""Property tests: whatever the body, ext.scan and its plain Python specification say the same."""

from __future__ import annotations

import dataclasses
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from ext.scan import ScanError, Scanner
from tests.ext import oracle

REFUSED = ("lora", "priority")
scanner = Scanner(REFUSED, media_tokens=500)

words = st.text(alphabet=st.sampled_from('ab Z9\n"\\é漢😀\x01/='), max_size=40)
texts = st.one_of(
    words, words.map(lambda text: text * 30), st.just("x-anthropic-billing-header: cch=1;")
)
urls = st.sampled_from(
    ["data:image/png;base64,AAAA", "https://example.org/x", "AAAA" * 40, "plain words here"]
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 2**33),
    st.floats(allow_nan=False, allow_infinity=False),
)
keys = st.sampled_from(
    [
        "role",
        "content",
        "text",
        "type",
        "url",
        "image_url",
        "data",
        "input",
        "arguments",
        "name",
        "id",
        "cache_control",
        "tool_calls",
        "function",
        "é",
    ]
)
values = st.recursive(
    st.one_of(scalars, texts, urls),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=8,
)
roles = st.sampled_from(["user", "assistant", "system", "tool", "critic"])
part = st.fixed_dictionaries({"type": st.just("text"), "text": texts})
picture = st.fixed_dictionaries({"image_url": st.fixed_dictionaries({"url": urls})})
message = st.fixed_dictionaries(
    {},
    optional={
        "role": roles,
        "content": st.one_of(texts, st.lists(part | picture, max_size=3)),
        "x": values,
    },
)
ids = st.lists(st.integers(0, 2**31 - 1), max_size=5)
prompts = st.one_of(texts, st.lists(texts, max_size=3), ids, st.lists(ids, max_size=3), values)
body_members = {
    "model": st.one_of(texts, scalars),
    "stream": st.one_of(st.booleans(), st.none(), scalars),
    "stream_options": st.one_of(
        st.none(), st.fixed_dictionaries({}, optional={"include_usage": scalars, "a": values})
    ),
    "max_tokens": st.one_of(st.integers(0, 100), scalars),
    "max_completion_tokens": st.integers(0, 100),
    "n": st.integers(1, 4),
    "cache_salt": texts,
    "messages": st.lists(st.one_of(message, message, values), max_size=5),
    "system": st.one_of(texts, st.lists(part, max_size=3)),
    "tools": st.one_of(st.lists(values, max_size=2)),
    "prompt": prompts,
    "input": prompts,
    "documents": values,
    "temperature": values,
    "lora": scalars,
}
# The refused and the mistyped are rare, so that most bodies are scanned to their end.
likely = {name: body_members[name] for name in body_members if name != "lora"}
bodies = st.one_of(
    st.fixed_dictionaries(
        {}, optional={name: likely[name] for name in ("messages", "system", "tools", "cache_salt")}
    ),
    st.fixed_dictionaries({}, optional=likely),
    st.fixed_dictionaries({}, optional=body_members),
).flatmap(lambda body: st.permutations(list(body.items())).map(dict))


def outcome(call):
    try:
        return call()
    except (ScanError, oracle.Refused) as refusal:
        return refusal.kind, refusal.member


def held_equal(body):
    found = outcome(lambda: scanner.scan(body))
    expected = outcome(lambda: oracle.scan(body, REFUSED, media_tokens=500))
    if isinstance(expected, oracle.Scanned):
        names = [field.name for field in dataclasses.fields(expected)]
        assert not isinstance(found, tuple), found
        assert {name: getattr(found, name) for name in names} == dataclasses.asdict(expected)
    else:
        assert found == expected


@given(bodies, st.booleans(), st.sampled_from([None, 1]))
@settings(max_examples=400, deadline=None)
def test_equals_the_oracle(body, ascii_only, indent):
    held_equal(
        json.dumps(body, ensure_ascii=ascii_only, indent=indent).encode(errors="surrogatepass")
    )


@given(bodies, st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_bodies_are_refused_by_both_or_by_none(body, data):
    text = bytearray(json.dumps(body, ensure_ascii=False).encode())
    at = data.draw(st.integers(0, len(text) - 1))
    if data.draw(st.booleans()):
        del text[at]
    else:
        text[at] = data.draw(st.sampled_from(b'"\\{}[]:,0-.eE \nntf\x00\x1f\xff'))
    damaged = bytes(text)
    found = outcome(lambda: scanner.scan(damaged))
    expected = outcome(lambda: oracle.scan(damaged, REFUSED, media_tokens=500))
    try:
        damaged.decode()
    except UnicodeDecodeError:
        return  # the scan does not check all of UTF-8: the engine does
    assert isinstance(found, tuple) == isinstance(expected, tuple), (found, expected)


@given(st.text(alphabet=st.sampled_from('\\ud8dcDC0019afn"/ '), max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_sequence_of_escapes_is_read_alike(inside):
    held_equal(b'{"model":"%s","messages":[{"content":"%s"}]}' % (inside.encode(), inside.encode()))
