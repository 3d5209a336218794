"""One pass over the raw JSON body of a request: what matters in it, the estimates, the routing hashes."""

from collections.abc import Iterable

MALFORMED: str
"""Not JSON: a wrong character, number, escape or literal, a body cut short, something after it, bytes not UTF-8."""
DUPLICATE: str
"""A member that is read appears twice."""
TYPE: str
"""The body is no object, or a member's value has the wrong type."""
RANGE: str
"""A number is negative, too small or too large."""
REFUSED_MEMBER: str
"""A member that must not pass is present."""
DEPTH: str
"""Containers nested more than 256 deep."""

class ScanError(Exception):
    """The body is refused. Its text never quotes the body, apart from the name of the member concerned."""

    kind: str
    """One of the constants above."""
    member: str
    """The member concerned, such as `max_tokens` or `stream_options.include_usage`; empty for the body as a whole."""
    message: str
    """What is wrong and what is right, without the member's name."""
    offset: int
    """Byte of the body where it shows."""
    def __init__(self, kind: str, member: str, message: str, offset: int) -> None: ...

class Scanned:
    """What one body says. Spans are (start, stop) in bytes of the body, (-1, -1) where the member is absent;
    a member whose value is null counts as absent except for its span."""

    @property
    def model(self) -> str | None:
        """The name as sent, unescaped; None: absent."""
    @property
    def model_span(self) -> tuple[int, int]:
        """The value of `model`, quotes included; (-1, -1) also when it is null."""
    @property
    def stream(self) -> bool: ...
    @property
    def stream_options_span(self) -> tuple[int, int]:
        """The value of `stream_options`, which may be null."""
    @property
    def include_usage(self) -> bool | None:
        """`stream_options.include_usage`; None: not said."""
    @property
    def include_usage_span(self) -> tuple[int, int]:
        """The value of `stream_options.include_usage`, which may be null."""
    @property
    def insert_at(self) -> int:
        """Where a member can be spliced in: behind the opening brace of the body."""
    @property
    def max_tokens(self) -> int | None: ...
    @property
    def max_completion_tokens(self) -> int | None: ...
    @property
    def max_output_tokens(self) -> int | None: ...
    @property
    def n(self) -> int:
        """1 when absent."""
    @property
    def best_of(self) -> int:
        """1 when absent."""
    @property
    def prompts(self) -> int:
        """Number of prompts in `prompt` or `input`: its length where it is a list of strings or of id lists, else 1."""
    @property
    def has_tools(self) -> bool:
        """`tools` or `functions` is a list that is not empty."""
    @property
    def tokens_middle(self) -> int:
        """Estimate of the prompt's tokens for limits and work: within 2x for English, Chinese, digits and code."""
    @property
    def tokens_low(self) -> int:
        """Estimate that stays below the truth on real text, for the context check."""
    @property
    def images(self) -> int:
        """Pictures and other media; each counts `media_tokens`."""
    @property
    def remote_media(self) -> int:
        """Those of them that are given by a URL other than `data:`."""
    @property
    def salt(self) -> int:
        """xxh64 of `cache_salt`; 0: absent or empty."""
    @property
    def digests(self) -> list[tuple[int, int]]:
        """Routing hashes, shortest beginning first: (digest, estimated tokens up to there). At most 128; the last is
        of the whole prompt. Unseeded: two models have the same ones."""
    def seeded(self, seed: int) -> list[tuple[int, int]]:
        """`digests`, each digest mixed with `seed` (ext.prefix.mix)."""

class Scanner:
    """Scans bodies; one object serves all requests and all threads.

    `refused`: top-level members that must not pass. `media_tokens`: what one picture counts in `tokens_middle`.
    ValueError: a refused name is empty, longer than 64 bytes, or one that the scan reads.
    """

    def __init__(self, refused: Iterable[str] = (), *, media_tokens: int = 1024) -> None: ...
    def scan(self, body: bytes) -> Scanned:
        """Time is linear in the body, whatever it holds. Bodies above 1 MiB are scanned without the GIL: call it in a
        thread for those. Raises ScanError, MemoryError."""
