from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from ext.prefix import mix
from ext.scan import ScanError, Scanner
from tests.ext import oracle

REFUSED = ("lora", "priority", "id_slot")
scanner = Scanner(REFUSED)


def scan(body):
    return scanner.scan(body if isinstance(body, bytes) else json.dumps(body).encode())


def digests(**body):
    return scan(body).digests


def user(content):
    return [{"role": "user", "content": content}]


def test_reads_the_members_of_a_chat_request():
    body = (
        b' {"model": "m-1", "messages": [{"role": "user", "content": "hi"}], "stream": true, "max_tokens": 7,'
        b' "max_completion_tokens": 8, "max_output_tokens": 9, "n": 2, "best_of": 3, "temperature": 0.5,'
        b' "stream_options": {"x": [1], "include_usage": false}, "tools": [{"a": 1}], "cache_salt": "s"}\n'
    )
    found = scan(body)
    assert found.model == "m-1"
    assert body[slice(*found.model_span)] == b'"m-1"'
    assert found.stream is True
    assert (found.max_tokens, found.max_completion_tokens, found.max_output_tokens) == (7, 8, 9)
    assert (found.n, found.best_of, found.prompts) == (2, 3, 1)
    assert found.include_usage is False
    assert body[slice(*found.stream_options_span)] == b'{"x": [1], "include_usage": false}'
    assert body[slice(*found.include_usage_span)] == b"false"
    assert found.has_tools is True
    assert found.salt == oracle.xxh64(b"s")
    assert body[: found.insert_at] == b" {"


def test_what_is_absent():
    for body in (
        b"{}",
        b'{"model":null,"stream":null,"max_tokens":null,"n":null,"tools":null,"messages":null}',
    ):
        found = scan(body)
        assert found.model is None
        assert found.model_span == (-1, -1)
        assert found.stream is False
        assert found.max_tokens is found.max_completion_tokens is found.max_output_tokens is None
        assert (found.n, found.best_of, found.prompts, found.salt, found.images) == (1, 1, 1, 0, 0)
        assert found.include_usage is None
        assert found.stream_options_span == found.include_usage_span == (-1, -1)
        assert found.has_tools is False
        assert (found.tokens_middle, found.tokens_low, found.digests) == (0, 0, [])


def test_null_stream_options_have_a_span_to_splice():
    body = b'{"stream_options": null}'
    found = scan(body)
    assert body[slice(*found.stream_options_span)] == b"null"
    assert found.include_usage is None


def test_an_escaped_member_name_is_the_member():
    found = scan(rb'{"mod\u0065l":"a\u0062\n\ud83d\ude00","str\u0065am":true}')
    assert found.model == "ab\n😀"
    assert found.stream is True
    with pytest.raises(ScanError) as refusal:
        scan(rb'{"lor\u0061":[]}')
    assert (refusal.value.kind, refusal.value.member) == ("refused", "lora")


def test_members_in_text_have_no_effect():
    text = '"user":"x","model":"y","stream":true,"max_tokens":5,"lora":1}'
    found = scan({"messages": user(text), "metadata": {"model": "z", "lora": 1, "max_tokens": "a"}})
    assert found.model is None
    assert found.stream is False
    assert found.max_tokens is None


@pytest.mark.parametrize(
    ("body", "kind", "member"),
    [
        (b"", "malformed", ""),
        (b"  ", "malformed", ""),
        (b"\xef\xbb\xbf{}", "malformed", ""),
        (b"{", "malformed", ""),
        (b'{"a"', "malformed", ""),
        (b'{"a":', "malformed", ""),
        (b'{"a":1', "malformed", ""),
        (b'{"a":1,}', "malformed", ""),
        (b'{"a":[1,]}', "malformed", ""),
        (b'{"a":[1 2]}', "malformed", ""),
        (b'{"a":[1}', "malformed", ""),
        (b'{"a":{"b":1]}', "malformed", ""),
        (b'{,"a":1}', "malformed", ""),
        (b"{a:1}", "malformed", ""),
        (b"{'a':1}", "malformed", ""),
        (b'{"a" 1}', "malformed", ""),
        (b"{} {}", "malformed", ""),
        (b"{}\x00", "malformed", ""),
        (b"\x00", "malformed", ""),
        (b'{"a":"\n"}', "malformed", ""),
        (b'{"a":"\\x"}', "malformed", ""),
        (b'{"a":"\\u12g4"}', "malformed", ""),
        (b'{"a":"\\u12', "malformed", ""),
        (b'{"a":"\\', "malformed", ""),
        (b'{"a":"\xff"}', "malformed", ""),
        (b'{"messages":[{"content":"\xfe"}]}', "malformed", ""),
        (b'{"model":"\x80"}', "malformed", ""),
        *(
            (b'{"a":%s}' % n, "malformed", "")
            for n in b"01 -  1. .5 +1 1e 1e+ 0x1 NaN Infinity -Infinity".split()
        ),
        *(
            (b'{"messages":[{"x":%s}]}' % n, "malformed", "")
            for n in b"01 - 1. tru nul True".split()
        ),
        (b"[]", "type", ""),
        (b'"text"', "type", ""),
        (b"12", "type", ""),
        (b"[", "malformed", ""),
        (b"hello", "malformed", ""),
        (b'{"model":1}', "type", "model"),
        (b'{"model":["m"]}', "type", "model"),
        (b'{"stream":"true"}', "type", "stream"),
        (b'{"stream":1}', "type", "stream"),
        (b'{"stream_options":true}', "type", "stream_options"),
        (b'{"stream_options":{"include_usage":1}}', "type", "stream_options.include_usage"),
        (
            b'{"stream_options":{"include_usage":true,"include_usage":true}}',
            "duplicate",
            "stream_options.include_usage",
        ),
        (b'{"cache_salt":5}', "type", "cache_salt"),
        *(
            (b'{"max_tokens":%s}' % v, "type", "max_tokens")
            for v in b'true "10" 1.0 1e3 [] {}'.split()
        ),
        *(
            (b'{"max_tokens":%s}' % v, "range", "max_tokens")
            for v in b"-1 2147483648 1000000000000 -99".split()
        ),
        (b'{"max_completion_tokens":99999999999999999999999999}', "range", "max_completion_tokens"),
        (b'{"max_output_tokens":-1}', "range", "max_output_tokens"),
        (b'{"n":0}', "range", "n"),
        (b'{"best_of":0}', "range", "best_of"),
        (b'{"n":"2"}', "type", "n"),
        (b'{"messages":{}}', "type", "messages"),
        (b'{"messages":"hi"}', "type", "messages"),
        (b'{"tools":{}}', "type", "tools"),
        (b'{"system":{}}', "type", "system"),
        (b'{"prompt":1}', "type", "prompt"),
        (b'{"input":{}}', "type", "input"),
        (b'{"prompt":[1,"a"]}', "type", "prompt"),
        (b'{"prompt":[[1],2]}', "type", "prompt"),
        (b'{"prompt":[1.5]}', "type", "prompt"),
        (b'{"prompt":[[1e3]]}', "type", "prompt"),
        (b'{"input":[-1]}', "range", "input"),
        (b'{"input":[[2147483648]]}', "range", "input"),
        (b'{"priority":null}', "refused", "priority"),
        *(
            (b'{"%s":null,"x":1,"%s":null}' % (name, name), "duplicate", name.decode())
            for name in (
                b"model stream max_tokens max_completion_tokens max_output_tokens n best_of stream_options messages "
                b"prompt input system tools cache_salt instructions"
            ).split()
        ),
        (rb'{"model":"a","mod\u0065l":"b"}', "duplicate", "model"),
    ],
)
def test_refuses(body, kind, member):
    with pytest.raises(ScanError) as refusal:
        scan(body)
    assert (refusal.value.kind, refusal.value.member) == (kind, member)
    assert 0 <= refusal.value.offset <= len(body)
    assert refusal.value.message
    with pytest.raises(oracle.Refused) as expected:
        oracle.scan(body, REFUSED)
    assert (expected.value.kind, expected.value.member) == (kind, member)


def test_a_member_that_does_not_matter_may_appear_twice():
    scan(b'{"metadata":1,"metadata":2}')


def test_the_refusal_says_what_and_where():
    with pytest.raises(ScanError, match=r"^max_tokens: must be an integer, without quotes"):
        scan(b'{"max_tokens":"5"}')
    with pytest.raises(
        ScanError, match=r"^a comma or the closing bracket was expected \(byte 6\)$"
    ):
        scan(b'{"a":1 "b":2}'.replace(b" ", b""))
    with pytest.raises(ScanError, match=r"^the body ends before the JSON is complete \(byte 6\)$"):
        scan(b'{"a":1')


def test_the_refusal_never_quotes_the_conversation():
    with pytest.raises(ScanError) as refusal:
        scan(b'{"messages":[{"role":"user","content":"SECRET"} "SECRET"]}')
    assert "SECRET" not in str(refusal.value)


@pytest.mark.parametrize("member", ["x", "messages", "tools", "stream_options", "system"])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_nesting_stops_at_256(member, opening):
    closing = "]" if opening == "[" else "}"

    def nested(depth):
        inner = opening * depth + "1" + closing * depth
        # Each of these members wants its own container first.
        wrapped = '{"a":%s}' if member == "stream_options" else "[%s]"
        return b'{"%s":%s}' % (member.encode(), (wrapped % inner).encode())

    scan(nested(254))
    with pytest.raises(ScanError) as refusal:
        scan(nested(255))
    assert refusal.value.kind == "depth"
    with pytest.raises(ScanError) as refusal:
        scan(nested(100_000))
    assert refusal.value.kind == "depth"


@pytest.mark.parametrize(
    ("value", "prompts"),
    [
        ("one", 1),
        (["a", "b", "c"], 3),
        ([1, 2, 3], 1),
        ([[1, 2], [3]], 2),
        ([], 1),
        (["one"], 1),
    ],
)
@pytest.mark.parametrize("member", ["prompt", "input"])
def test_counts_prompts(member, value, prompts):
    assert scan({member: value}).prompts == prompts


def test_items_of_a_responses_request_are_one_prompt():
    found = scan({"input": [*user("a"), {"type": "message", "role": "assistant", "content": "b"}]})
    assert found.prompts == 1


def test_token_ids_count_one_each():
    found = scan({"prompt": list(range(1000, 3000))})
    assert found.tokens_middle == found.tokens_low == 2000


@pytest.mark.parametrize("member", ["tools", "functions"])
def test_tools_present(member):
    assert scan({member: [{"name": "f"}]}).has_tools
    none = scan({member: [], "messages": user("x")})
    assert not none.has_tools
    assert none.digests == digests(messages=user("x"))


# FR09: pairs that must differ, and pairs that must not.


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param({"tools": [{"name": "f"}]}, {"tools": [{"name": "g"}]}, id="tools"),
        pytest.param(
            {"tools": [{"name": "f"}], "messages": user("x")},
            {"messages": user("x")},
            id="no tools",
        ),
        pytest.param({"messages": user("x")}, {"messages": user("y")}, id="text"),
        pytest.param(
            {"messages": user("x")}, {"messages": [{"role": "system", "content": "x"}]}, id="role"
        ),
        pytest.param(
            {
                "messages": user(
                    [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
                )
            },
            {
                "messages": user(
                    [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAB"}}]
                )
            },
            id="image",
        ),
        pytest.param({"prompt": [1, 2, 3]}, {"prompt": [1, 2, 4]}, id="ids"),
        pytest.param({"prompt": [12, 3]}, {"prompt": [1, 23]}, id="ids of the same digits"),
        pytest.param({"system": "a", "messages": user("b")}, {"messages": user("b")}, id="system"),
    ],
)
def test_different_prompts_have_different_digests(one, other):
    assert digests(**one)[-1][0] != digests(**other)[-1][0]


def test_other_salts_differ():
    assert scan({"cache_salt": "a"}).salt != scan({"cache_salt": "b"}).salt != 0


def test_what_does_not_reach_the_prompt_does_not_count():
    plain = {
        "model": "m",
        "messages": user("hello"),
        "tools": [{"name": "f", "parameters": {"a": 1}}],
    }
    other = {
        "user": "u",
        "metadata": {"k": "v"},
        "tools": plain["tools"],
        "temperature": 1,
        "max_tokens": 5,
        "messages": [{"content": "hello", "role": "user"}],
        "model": "m",
        "seed": 4,
    }
    assert digests(**plain) == digests(**other)
    assert scan(json.dumps(plain, indent=2).encode()).digests == digests(**plain)


def test_a_string_equals_a_list_of_one_part():
    parts = [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}]
    assert digests(system="be brief") == digests(system=parts)
    system = {"role": "system"}
    assert digests(messages=[{**system, "content": "be brief"}]) == digests(
        messages=[{**system, "content": parts}]
    )


def test_two_parts_are_not_their_concatenation():
    assert digests(system=[{"text": "ab"}, {"text": "c"}]) != digests(
        system=[{"text": "a"}, {"text": "bc"}]
    )


def test_escaped_and_plain_text_are_the_same():
    body = {"messages": user("naïve 你好 😀\n")}
    assert (
        scan(json.dumps(body).encode()).digests
        == scan(json.dumps(body, ensure_ascii=False).encode()).digests
    )


def test_the_attribution_block_is_left_out():
    def claude(cch):
        header = f"x-anthropic-billing-header: cc_version=2.1; cch={cch};"
        return [{"type": "text", "text": header}, {"type": "text", "text": "You are Claude Code"}]

    assert (
        digests(system=claude("1"))
        == digests(system=claude("2"))
        == digests(system=claude("3")[1:])
    )
    chat = [digests(messages=[{"role": "system", "content": claude(cch)}]) for cch in "12"]
    assert chat[0] == chat[1]
    swapped = claude("1")[::-1]
    assert digests(system=swapped) != digests(system=claude("2")[::-1])


def test_the_next_turn_matches_all_of_the_last_one():
    turns = [
        {"role": "user" if i % 2 == 0 else "assistant", "content": f"turn {i} " * 200}
        for i in range(21)
    ]
    last = digests(messages=turns[:19], tools=[{"name": "f"}])
    following = digests(messages=turns, tools=[{"name": "f"}])
    assert last[-1] in following
    assert set(last[:-60]) <= set(following)


def test_tokens_at_boundaries_ascend_to_the_whole():
    found = scan({"messages": [*user("word " * 5000), *user("你好" * 3000)]})
    tokens = [at for _, at in found.digests]
    assert tokens == sorted(tokens)
    assert tokens[-1] == found.tokens_middle


def test_seeded_digests_are_mixed_ones():
    found = scan({"messages": user("x" * 600)})
    assert found.seeded(7) == [(mix(digest, 7), tokens) for digest, tokens in found.digests]
    assert len(found.seeded(7)) == 3


# FR20: pictures


PICTURE = "data:image/png;base64," + "iVBORw0KGgo/" * 90_000


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": PICTURE, "detail": "high"}},
        {"type": "input_image", "image_url": PICTURE},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": PICTURE[22:]},
        },
        {"type": "input_audio", "input_audio": {"format": "wav", "data": PICTURE[22:]}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": PICTURE}},
    ],
)
def test_a_megabyte_of_picture_is_no_text(part):
    found = scan({"messages": user([{"type": "text", "text": "What is this?"}, part])})
    assert found.images == 1
    assert found.remote_media == 0
    assert 1024 < found.tokens_middle < 1050
    assert 64 < found.tokens_low < 80


def test_remote_pictures_are_counted_apart():
    url = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    found = scan(
        {"messages": user([url, {"type": "image", "source": {"type": "url", "url": "http://x/y"}}])}
    )
    assert (found.images, found.remote_media) == (2, 2)


def test_a_plain_text_document_is_text():
    source = {"type": "text", "media_type": "text/plain", "data": "some plain words here " * 100}
    found = scan(
        {"messages": user([{"type": "text", "text": "a"}, {"type": "document", "source": source}])}
    )
    assert found.images == 0
    assert found.tokens_middle > 300


def test_a_picture_counts_what_is_configured():
    body = json.dumps({"messages": user([{"image_url": {"url": "data:,x"}}])}).encode()
    assert (
        Scanner(media_tokens=300).scan(body).tokens_middle
        - Scanner(media_tokens=0).scan(body).tokens_middle
        == 300
    )


def test_all_of_the_conversation_is_estimated():
    tools = [{"type": "function", "function": {"name": "f", "description": "many words " * 100}}]
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "f", "arguments": "x y " * 100}}],
    }
    use = [{"type": "tool_use", "id": "1", "name": "f", "input": {"path": "some words " * 100}}]
    bare = scan({"messages": user("hi")}).tokens_middle
    for extra in (
        {"messages": user("hi"), "tools": tools},
        {"messages": [*user("hi"), call]},
        {"messages": [*user("hi"), {"role": "assistant", "content": use}]},
        {"messages": user("hi"), "system": "words again " * 100},
        {"messages": user("hi"), "instructions": "words again " * 100},
    ):
        assert scan(extra).tokens_middle > bare + 100


def test_a_scan_without_the_gil_says_the_same():
    body = json.dumps({"model": "m", "tools": [], "messages": user("text " * 300_000)}).encode()
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: scanner.scan(body).digests, range(8)))
    assert all(result == results[0] for result in results)
    assert results[0] == [
        (digest, tokens)
        for digest, tokens in scan({"messages": user("text " * 300_000), "tools": []}).digests
    ]


def test_one_scanner_keeps_nothing_of_the_last_body():
    long = scan({"messages": user("y" * 5000), "prompt": "z" * 3000})
    short = scan({"messages": user("hi")})
    assert short.digests == Scanner().scan(json.dumps({"messages": user("hi")}).encode()).digests
    assert long.digests != short.digests


@pytest.mark.parametrize(
    ("refused", "says"),
    [([""], "1 to 64"), (["x" * 65], "1 to 64"), (["model"], "model cannot be refused")],
)
def test_a_scanner_refuses_names_it_cannot_refuse(refused, says):
    with pytest.raises(ValueError, match=says):
        Scanner(refused)


def test_only_bytes_are_scanned():
    with pytest.raises(TypeError):
        scanner.scan("{}")  # type: ignore[arg-type]
