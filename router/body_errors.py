"""Why a request's body could not be had. The application turns these into answers."""

from __future__ import annotations


class BodyTooLarge(Exception):
    """Over the cap (413). ``cap`` in bytes; ``length`` as announced, None when it was counted."""

    def __init__(self, cap: int, length: int | None) -> None:
        super().__init__(f"the body is larger than {cap} bytes")
        self.cap = cap
        self.length = length


class BodyTooSlow(Exception):
    """It did not arrive within ``limit`` seconds (408)."""

    def __init__(self, limit: float) -> None:
        super().__init__(f"the body did not arrive within {limit:g} s")
        self.limit = limit


class BodyCut(Exception):
    """The client broke the transfer coding or sent trailers (400); ``left``: it has gone for certain."""

    def __init__(self, *, left: bool = False) -> None:
        super().__init__("the body ended before it was whole")
        self.left = left


class BodiesHeld(Exception):
    """This worker holds as many bytes of bodies as it may (503)."""

    def __init__(self, held: int, cap: int) -> None:
        super().__init__(f"{held} of {cap} bytes are held by other requests' bodies")
        self.held = held
        self.cap = cap
