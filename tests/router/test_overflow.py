from __future__ import annotations

import json

import pytest

from router.overflow import exceeds, recognise, too_long


def body(message, **members):
    return json.dumps({"error": {"message": message, **members}}).encode()


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (body("the request exceeds the available context size", type="exceed_context_size_error",
              n_prompt_tokens=9000, n_ctx=4096), (9000, 4096)),
        (body("This model's maximum context length is 4096 tokens. However, you requested 9000 tokens "
              "(8000 in the messages, 1000 in the completion)."), (9000, 4096)),
        (body("This model's maximum context length is 2048 tokens. However, your request has prompt "
              "tokens; the prompt contains at least 2049 input tokens."), (2049, 2048)),
        (json.dumps({"object": "error", "message": "The input (9000 tokens) is longer than the model's "
                     "context length (4096 tokens).", "code": 400}).encode(), (9000, 4096)),
        (body("max_tokens must be at least 1"), None),
        (body("the model's maximum is nice"), None),
        (b'{"error":"bad"}', None),
        (b"not json", None),
        (b"{}", None),
        (b" " * 20_000 + b"{}", None),
    ],
)  # fmt: skip
def test_engines_words(raw, found):
    assert recognise(raw) == found


def test_the_check_allows_ten_per_cent_and_passes_what_is_unknown():
    assert not exceeds(110, 100)
    assert exceeds(111, 100)
    assert not exceeds(10**9, None)


def test_phrases_that_agents_look_for():
    error = too_long(9000, 4096, "openai", "messages", estimated=True)
    assert "maximum context length is 4096 tokens" in error.message
    assert "estimated 9000" in error.message
    assert error.param == "messages"
    anthropic = too_long(9000, 4096, "anthropic", "messages", estimated=False)
    assert anthropic.anthropic_message == "prompt is too long: 9000 tokens > 4096 maximum"
