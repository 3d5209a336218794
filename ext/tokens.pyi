"""Estimates how many tokens a text is, without a tokenizer."""

MEDIA_TOKENS: int
"""What one picture counts unless configured: 1,024."""

def estimate(text: bytes | bytearray | memoryview, media_tokens: int = ...) -> tuple[int, int]:
    """Tokens (middle, low) of `text`, the inside of a JSON string as it stands in a body (escapes count as the
    characters they are; bytes that could not stand there count as themselves).

    Middle: within 2x for English, Chinese, digits and code. Low: below the truth on real text. Both are 0 for an empty
    text and at least 1 otherwise. A base64 data URL is no text: it counts `media_tokens` (low: 64).
    ValueError: `media_tokens` is negative.
    """
