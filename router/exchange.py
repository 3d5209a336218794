"""One request and its answer, as the router's own code sees them.

Two fronts implement it, ``http1_front`` and ``http_server``; what stands behind it cannot tell which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

Headers = Sequence[tuple[str, str]]


class Exchange(Protocol):
    """A request being answered. Exactly one of ``respond`` or ``start`` is called, once."""

    #: Upper-case method, percent-decoded path without the query string.
    method: str
    path: str
    #: ``host:port`` of the peer.
    client: str
    #: The loop's monotonic time when the request's head arrived: every deadline counts from here.
    began: float
    #: Bytes that were handed over to the client so far, head not counted.
    sent: int

    def header(self, name: str) -> str | None:
        """The first value of a request header (name in lower case), or None."""
        ...

    def whole_body(self) -> bytes | None:
        """The body when all of it is here already; None: ``read_body`` has to wait for it."""
        ...

    async def read_body(self, cap: int) -> bytes:
        """The whole body. Raises errors.BodyTooLarge (nothing read), BodyTooSlow, BodyCut, BodiesHeld."""
        ...

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """A whole answer; the length is ours. For HEAD the body is left out."""
        ...

    def start(self, status: int, headers: Headers) -> None:
        """Begin a streamed answer."""
        ...

    def send(self, chunk: bytes) -> bool:
        """Hand a chunk over at once, never waiting. False: the client has left."""
        ...

    def end(self) -> None:
        """End a streamed answer cleanly."""
        ...

    def cut(self, last: bytes) -> None:
        """End a streamed answer uncleanly: ``last`` arrives, then the connection breaks."""
        ...

    def on_gone(self, callback: Callable[[], None] | None) -> None:
        """Call once when the client leaves before the first byte of the answer; None forgets it.

        A front may call it later too, until the answer has ended.
        """
        ...

    def unsent_since(self) -> bool:
        """Whether bytes handed over earlier are still unsent (a slow reader); cheap, may be late."""
        ...
