"""One request on its way: what is known of it, and what will be written down when it ends."""

from __future__ import annotations

import asyncio

from ext.scan import Scanned
from router.admit import Want
from router.exchange import Exchange
from router.relay import Relay
from router.routes import NO_ROUTE, Route
from router.snapshot import Named

LONGEST_ID = 128


class Call:
    """Filled in step by step; ``Accounts`` reads it once, at the end."""

    # Defaults are on the class: most requests change a few of them only.
    route: Route = NO_ROUTE
    #: As the client wrote it; a label only where it is a configured name.
    model: str | None = None
    #: The name that answered, and the model that it belongs to.
    served_by: str | None = None
    served_model: str | None = None
    endpoint: str | None = None
    key_id: str | None = None
    #: The key may see where a request went.
    operator = False
    stream = False
    body_size: int | None = None
    #: Kept until the answer begins: until then it may have to be sent again.
    body = b""
    status = 0
    #: ok, client_gone, broken, refused or failed.
    outcome = "ok"
    reason: str | None = None
    #: Seconds that it waited for a place; None: it never waited.
    queued: float | None = None
    first_byte: float | None = None
    #: (prompt, completion, cached) as the engine counted them.
    tokens: tuple[int | None, int | None, int | None] | None = None
    tries = 0
    #: Of these, the ones that count against the number of retries.
    failures = 0
    #: The client left, or the request was given up.
    left = False
    #: The client's answer has begun, and cannot be another one any more.
    streaming = False
    named: Named | None = None
    scanned: Scanned | None = None
    want: Want | None = None
    #: Loop time since which it waits for a place; None: it does not.
    waiting_since: float | None = None
    relay: Relay | None = None
    #: Set by whoever waits for the end.
    ended: asyncio.Future[None] | None = None

    def __init__(self, exchange: Exchange, request_id: str) -> None:
        self.exchange = exchange
        self.request_id = request_id

    def headers(self, content_type: str | None = None) -> list[tuple[str, str]]:
        """Headers of ours that are on every answer."""
        headers = [("x-request-id", self.request_id)]
        if content_type is not None:
            headers.append(("content-type", content_type))
        if self.served_by is not None:
            headers.append(("x-llmgw-served-by", _header_text(self.served_by)))
        if self.route.form == "anthropic":
            headers.append(("request-id", self.request_id))
        if self.operator and self.endpoint is not None:
            headers.append(("x-llmgw-endpoint", _header_text(self.endpoint)))
            headers.append(("x-llmgw-queue-ms", str(round((self.queued or 0.0) * 1000))))
        return headers

    def begin_stream(self) -> list[tuple[str, str]]:
        """The headers of a stream that begins now; its request is not needed any more."""
        self.body = b""
        self.streaming = True
        return self.headers()


def own_or_new_id(sent: str | None, fresh: str) -> str:
    """The client's request id where it is short printable ASCII, else ``fresh``."""
    if (
        sent
        and len(sent) <= LONGEST_ID
        and sent.isascii()
        and sent.isprintable()
        and " " not in sent
    ):
        return sent
    return fresh


def _header_text(name: str) -> str:
    if name.isascii() and name.isprintable():
        return name
    return name.encode("ascii", "backslashreplace").decode().replace("\n", "\\n")
