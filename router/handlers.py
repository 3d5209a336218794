"""What is done for each kind of route, in the order in which a request may be refused.

Credentials present, scan, name, context, key and allowlist; then ``dispatch`` takes over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import msgspec

from ext.scan import DUPLICATE, REFUSED_MEMBER, ScanError, Scanned, Scanner
from orchestrator.wire.snapshots import KeyEntry
from router.access import check_present, credentials, find_key
from router.body_errors import BodiesHeld, BodyCut, BodyTooLarge, BodyTooSlow
from router.call import Call
from router.dispatch import ClientGone, Dispatch
from router.errors import (
    BadMember,
    BodyLate,
    BodyOverCap,
    EncodedBody,
    Overloaded,
    RouterError,
    UnknownPath,
)
from router.model_list import describe, list_models
from router.overflow import exceeds, too_long
from router.page_files import HEADERS as PAGE_HEADERS
from router.page_files import PageFile
from router.refused_members import REFUSED, refuse
from router.resolve import lookup, require
from router.routes import MODEL_PREFIX, Kind, Route
from router.snapshot import State

#: Longer bodies are scanned in a thread, which the scanner does without the GIL.
SCANNED_IN_THREAD = 1 << 20
_JSON = "application/json"
MIB = 1024 * 1024


class Handlers:
    """The routes' handlers. ``clock_offset_ms``: what the store's clock has more than this machine's."""

    def __init__(self, body_cap: int, dispatch: Dispatch, pages: Mapping[str, PageFile]) -> None:
        self._body_cap = body_cap
        self._dispatch = dispatch
        self._pages = pages
        self._scanner = Scanner(REFUSED)
        self.clock_offset_ms = 0.0

    def answer_get(self, call: Call, route: Route, state: State) -> None:
        """A list, a model, or a file: answered at once, or refused by a RouterError."""
        match route.kind:
            case Kind.MODELS:
                key = self._key(call, state)
                self._respond_json(call, msgspec.json.encode(list_models(state, key)))
            case Kind.MODEL:
                name = call.exchange.path[len(MODEL_PREFIX) :]
                key = self._key(call, state)
                named = require(state.names.get(name), name, key)
                self._respond_json(call, msgspec.json.encode(describe(name, named)))

    def answer_page(self, call: Call) -> None:
        """A file of the chat page; it needs no key and no snapshot."""
        page = self._pages.get(call.exchange.path)
        if page is None:
            raise UnknownPath("there is no such file on this router")
        call.status = 200
        headers = [*call.headers(page.content_type), *PAGE_HEADERS]
        call.exchange.respond(200, headers, page.body)

    def check_head(self, call: Call, state: State) -> tuple[str, ...]:
        """What can be refused before the body is read; gives the keys that were sent."""
        header = call.exchange.header
        keys: tuple[str, ...] = ()
        if state.keys_required:
            keys = credentials(header("authorization"), header("x-api-key"))
            check_present(state, keys)
        if header("content-encoding") is not None:
            raise EncodedBody("the body is encoded; send it without content-encoding")
        return keys

    async def read_body(self, call: Call) -> Scanned:
        """The body, read and scanned. Raises a RouterError or ClientGone."""
        try:
            body = await call.exchange.read_body(self._body_cap)
            if len(body) > SCANNED_IN_THREAD:
                call.body = body
                call.body_size = len(body)
                return await asyncio.to_thread(self._scanner.scan, body)
        except ScanError as error:
            raise scan_refusal(error) from None
        except BodyCut as error:
            if error.left:
                raise ClientGone from None
            raise BadMember(
                "the body is not sent as its head says: it is cut, its chunks are broken, or trailers follow it"
            ) from None
        except (BodyTooLarge, BodyTooSlow, BodiesHeld) as error:
            raise body_refusal(error) from None
        return self.scan(call, body)

    def scan(self, call: Call, body: bytes) -> Scanned:
        """What the body says. Raises a RouterError."""
        call.body = body
        call.body_size = len(body)
        try:
            return self._scanner.scan(body)
        except ScanError as error:
            raise scan_refusal(error) from None

    def dispatch(self, call: Call, state: State, keys: tuple[str, ...], scanned: Scanned) -> None:
        """Name, window, key and allowlist, in this order; then the request is on its way."""
        name = scanned.model
        call.model = name
        call.stream = scanned.stream
        named = lookup(state, name)
        assert name is not None
        if named is not None:
            route = call.route
            _check_window(scanned, route, named.served.window)
            if scanned.remote_media and not named.served.entry.media_urls:
                raise BadMember(
                    "media must be sent as data: URLs; this model does not fetch other URLs",
                    param=route.prompt_member,
                )
        key = None
        if state.keys_required:
            key = find_key(state, keys, time.time() * 1000 + self.clock_offset_ms)
        if key is not None:
            call.key_id = key.id
            call.operator = key.operator
        self._dispatch.begin(call, require(named, name, key), scanned)

    def _key(self, call: Call, state: State) -> KeyEntry | None:
        header = call.exchange.header
        keys = credentials(header("authorization"), header("x-api-key"))
        check_present(state, keys)
        key = find_key(state, keys, time.time() * 1000 + self.clock_offset_ms)
        call.key_id = None if key is None else key.id
        return key

    def _respond_json(self, call: Call, body: bytes) -> None:
        call.status = 200
        call.exchange.respond(200, call.headers(_JSON), body)


def body_refusal(error: BodyTooLarge | BodyTooSlow | BodiesHeld) -> RouterError:
    """The answer to a body that could not be had."""
    match error:
        case BodyTooLarge():
            return BodyOverCap(
                f"the body is larger than {error.cap / MIB:g} MiB ({error.cap} bytes), "
                "the most that this router takes"
            )
        case BodyTooSlow():
            return BodyLate(f"the body did not arrive within {error.limit:.0f} s")
        case BodiesHeld():
            return Overloaded(
                f"this router holds {error.held / MIB:.0f} MiB of other requests' bodies; try again",
                retry_after=1.0,
            )


def scan_refusal(error: ScanError) -> RouterError:
    """The answer to a body that the scan refuses."""
    if error.kind == REFUSED_MEMBER and error.member in REFUSED:
        return refuse(error.member)
    if not error.member:
        return BadMember(f"the body cannot be read: {error.message} (at byte {error.offset})")
    if error.kind == DUPLICATE:
        return BadMember(
            f"the member {error.member!r} appears twice; send it once", param=error.member
        )
    return BadMember(f"the member {error.member!r} {error.message}", param=error.member)


def _check_window(scanned: Scanned, route: Route, window: int | None) -> None:
    # `window` is tested first: most models that are not declared cost nothing here.
    if window is not None and exceeds(scanned.tokens_low, window):
        raise too_long(scanned.tokens_low, window, route.form, route.prompt_member, estimated=True)
