"""What the simulated engine says: the names of the Greek letters, separated by spaces, for ever.

"alpha beta gamma ... omega alpha ...": one letter is one token, and the space before it belongs to
it. A request with tools gets one fixed call instead. Everything a request will be answered with is
known when it arrives, so a reply is a value: so many tokens, what each one says, and why it ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

# fmt: off
LETTERS = (
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta",
    "iota", "kappa", "lambda", "mu", "nu", "xi", "omicron", "pi",
    "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
)
# fmt: on
_SPACED = tuple(f" {letter}" for letter in LETTERS)
_SHORTEST = min(len(piece) for piece in _SPACED)
_CALL_PIECE = 4  # characters of a tool call's arguments per token


class Reply(msgspec.Struct, frozen=True):
    """tokens: how many. finish: "length", "stop" or "tool_calls". stop: the stop string that was
    met. pieces: the text of each token where it is not simply the alphabet."""

    tokens: int
    finish: str
    stop: str | None = None
    pieces: tuple[str, ...] | None = None

    def text(self, start: int, end: int) -> str:
        """What the tokens from start up to end (not with it) say."""
        if self.pieces is not None:
            return "".join(self.pieces[start:end])
        return "".join([_piece(index) for index in range(start, end)])


def _piece(index: int) -> str:
    return _SPACED[index % len(LETTERS)] if index else LETTERS[0]


def greek_reply(max_tokens: int, stops: Sequence[str]) -> Reply:
    """max_tokens letters, or fewer when a stop string comes up first; the text ends before it."""
    if not stops:
        return Reply(max_tokens, "length")
    # The text repeats: a stop string that comes up at all begins in the first round, or with the
    # space that only the second round's first letter has.
    horizon = len(LETTERS) + 1 + max(len(stop) for stop in stops) // _SHORTEST + 2
    pieces = [_piece(index) for index in range(min(max_tokens, horizon))]
    text = ""
    for index, piece in enumerate(pieces):
        text += piece
        for stop in stops:
            at = text.find(stop)
            if at >= 0:
                said = _clip(pieces[: index + 1], at)
                return Reply(index + 1, "stop", stop, said)
    return Reply(max_tokens, "length")


def _clip(pieces: list[str], length: int) -> tuple[str, ...]:
    clipped = []
    for piece in pieces:
        clipped.append(piece[:length])
        length = max(0, length - len(piece))
    return tuple(clipped)


def call_reply(arguments: str, max_tokens: int) -> Reply:
    """A tool call's arguments, cut into tokens; cut off when max_tokens is too small for them."""
    pieces = tuple(arguments[at : at + _CALL_PIECE] for at in range(0, len(arguments), _CALL_PIECE))
    if len(pieces) > max_tokens:
        return Reply(max_tokens, "length", None, pieces[:max_tokens])
    return Reply(len(pieces), "tool_calls", None, pieces)


NOTHING = Reply(0, "stop")
