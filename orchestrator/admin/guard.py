"""The loopback guard in front of every route, unknown ones and streams included (R166-R168)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from orchestrator.admin.answers import error_answer
from orchestrator.wire.loopback_guard import refusal

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_CODES = {403: "cross_site", 405: "method_not_allowed", 415: "not_json", 421: "wrong_host"}


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuses by the request as it was sent: aiohttp's own ``host`` follows an absolute target."""
    headers = [
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in request.raw_headers
    ]
    refused = refusal(request.method, request.raw_path, headers)
    if refused is not None:
        return error_answer(refused.status, _CODES[refused.status], refused.reason)
    return await handler(request)
