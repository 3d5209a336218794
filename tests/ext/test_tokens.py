"""The truth of each text below is the range that usual tokenizers (GPT-4, Llama 3, Qwen, SmolLM2) give for it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ext.tokens import MEDIA_TOKENS, estimate
from tests.ext import oracle

ENGLISH = (
    "The engineers had spent most of the winter on the new bridge, and when the ice broke in April they were "
    "surprised to find that nearly every part of it had survived. A report was written, read by three people, and "
    "put on a shelf where it stayed for eleven years. "
) * 20
CHINESE = (
    "今天的天气很好，我们一起去公园散步，然后在湖边的餐厅吃午饭。工程师们花了整个冬天的时间来建造这座新桥。"
    * 100
)
CODE = '''
def totals(rows: list[dict[str, int]], key: str) -> dict[str, int]:
    """Sums of each group."""
    found: dict[str, int] = {}
    for row in rows:
        if key not in row:
            raise KeyError(f"no {key!r} in {row}")
        found[row["name"]] = found.get(row["name"], 0) + row[key]
    return found
'''
MINIFIED = "function a(b,c){return b.d(function(e){return e.f===c&&!e.g})}var h=[1,2,3];for(let i=0;i<h.length;i++){h[i]+=1}"


def within_a_factor_of_two(text, least, most):
    middle, low = estimate(json.dumps(text)[1:-1].encode())
    assert most / 2 <= middle <= least * 2
    assert low <= least
    return True


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        pytest.param(ENGLISH, len(ENGLISH) / 4.9, len(ENGLISH) / 4.2, id="english"),
        pytest.param(CHINESE, len(CHINESE) / 1.8, len(CHINESE) / 1.0, id="chinese"),
        pytest.param("0123456789" * 1000, 10_000 / 3, 10_000, id="digits"),
        pytest.param(CODE * 20, len(CODE) * 20 / 4.2, len(CODE) * 20 / 3.0, id="code"),
        pytest.param(
            MINIFIED * 20, len(MINIFIED) * 20 / 2.4, len(MINIFIED) * 20 / 1.6, id="minified code"
        ),
    ],
)
def test_each_kind_of_text_is_within_a_factor_of_two(text, least, most):
    assert within_a_factor_of_two(text, least, most)


def test_ten_thousand_chinese_characters():
    middle, low = estimate(("学" + "习").encode() * 5_000)
    assert 5_000 <= middle <= 11_000
    assert 2_500 <= low <= 5_600


@pytest.mark.parametrize("character", ["a", " ", "=", "-"])
def test_a_run_of_one_character_is_sixteen_to_a_token_at_most(character):
    _, low = estimate(character.encode() * 16_000)
    assert low <= 1_003


@given(st.text(max_size=700))
@settings(max_examples=150, deadline=None)
def test_equals_the_oracle(text):
    inside = json.dumps(text, ensure_ascii=False)[1:-1].encode(errors="surrogatepass")
    plain = oracle.utf8(text)
    expected = oracle.whole(oracle.thousandths(plain))
    assert estimate(inside) == expected
    if text.isascii():
        assert estimate(bytearray(inside)) == expected


@given(st.text(alphabet=st.sampled_from('aaAb1  =\n.é中😀漢あ한–\\"'), max_size=900))
@settings(max_examples=150, deadline=None)
def test_equals_the_oracle_on_runs_and_mixtures(text):
    expected = oracle.whole(oracle.thousandths(text.encode()))
    assert estimate(json.dumps(text)[1:-1].encode()) == expected
    assert estimate(json.dumps(text, ensure_ascii=False)[1:-1].encode()) == expected


POINTS = [
    *range(32, 127),
    *(1 << n for n in range(7, 17)),
    0x24F,
    0x280,
    0x1FFF,
    0x2014,
    0x3001,
    0x3FFF,
    0x4E00,
]
POINTS += [0x9FFF, 0xA000, 0xAC00, 0xD7FF, 0xE000, 0xFF0C, 0x10FFFF]


@pytest.mark.parametrize("point", POINTS, ids=hex)
def test_every_weight_equals_the_oracle(point):
    # A thousand of each, so that a thousandth of a token shows; tabs between, and then as one run.
    for text in ((chr(point) + "\t") * 1000, chr(point) * 1000):
        expected = oracle.whole(oracle.thousandths(text.encode()))
        assert estimate(json.dumps(text)[1:-1].encode()) == expected


def test_escapes_count_as_the_characters_they_are():
    assert estimate(rb"\u4f60\u597d\n") == estimate("你好\n".encode())
    assert estimate(rb"\ud83d\ude00") == estimate("😀".encode())


def test_bytes_that_no_string_holds_count_without_being_marks():
    assert estimate(b"\xff\xfe\xfc") == estimate(b"???")
    assert estimate(b'a"\x01\\q') == oracle.whole(oracle.thousandths(b'a"\x01\\q'))


def test_a_data_url_is_a_picture():
    url = b"data:image/png;base64," + b"iVBORw0KGgo" * 100_000
    assert estimate(url) == (MEDIA_TOKENS, 64)
    assert estimate(url, media_tokens=77) == (77, 64)
    assert estimate(b"data: the results are base64, they say")[0] < 20


def test_nothing_is_nothing_and_something_is_at_least_one():
    assert estimate(b"") == (0, 0)
    assert estimate(b" ") == (1, 1)


def test_a_negative_picture_is_refused():
    with pytest.raises(ValueError, match="media_tokens"):
        estimate(b"x", media_tokens=-1)
