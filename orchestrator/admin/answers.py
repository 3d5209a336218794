"""JSON answers of the admin API; an error has the three lines that ctl and the page show."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import web

from orchestrator.errors import CatalogRefused, IllegalTransition, OrchestratorError, UnknownSubject
from orchestrator.shell_errors import (
    BadRequest,
    ChangeRefused,
    HigherEpochSeen,
    LeaseLost,
    NothingSuch,
    NotLeader,
    Stale,
    StoreAway,
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
log = logging.getLogger("llmgw.orchestrator")
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def answer(value: Any, status: int = 200) -> web.Response:
    """A JSON answer."""
    return web.json_response(value, status=status, dumps=_dumps, headers=_HEADERS)


def listing(items: Sequence[dict[str, Any]], as_of: str, **more: Any) -> web.Response:
    """A list, and the moment at which it was so."""
    return answer({"items": list(items), "as_of": as_of, **more})


def error_answer(
    status: int, code: str, message: str, reason: str = "", remedy: str = "", **more: Any
) -> web.Response:
    """What is wrong, why, what to do; parts that there are not are absent."""
    error = {"code": code, "message": message, "reason": reason, "remedy": remedy, **more}
    return answer({"error": {key: value for key, value in error.items() if value}}, status)


def error_of(error: Exception, *, reading: bool = False) -> web.Response:
    """The answer to an error that a read or a change ended with."""
    match error:
        case CatalogRefused():
            return error_answer(
                422, "refused", "the definition is refused", f"{error.place}: {error.reason}",
                error.remedy, place=error.place,
            )  # fmt: skip
        case NothingSuch():
            return error_answer(404, "not_found", error.what, error.why, error.remedy)
        case BadRequest():
            return error_answer(422, "bad_request", error.what, error.why, error.remedy)
        case ChangeRefused():
            return error_answer(409, "refused", error.what, error.why, error.remedy)
        case UnknownSubject():
            what, _, why = str(error).partition("; ")
            return error_answer(404, "not_found", what, why)
        case IllegalTransition():
            return error_answer(409, "refused", "nothing was changed", str(error))
        case NotLeader():
            return error_answer(
                503, "not_leader", f"nothing was changed: {error}",
                remedy=f"ask the orchestrator of {error.leader}" if error.leader else "try again",
                leader=error.leader,
            )  # fmt: skip
        case StoreAway():
            what = "whether it was changed is not known" if error.unsure else "nothing was changed"
            if reading:
                what = "nothing can be shown"
            return error_answer(
                503, "store_away", f"{what}: Redis is away", str(error), "llmgw ctl status"
            )
        case Stale() | HigherEpochSeen():
            return error_answer(
                503, "not_leader", "whether it was changed is not known: another epoch began",
                str(error), "look, and try again",
            )  # fmt: skip
        case LeaseLost():
            return error_answer(503, "not_leader", f"nothing was changed: {error}")
    log.error("an error that has no answer of its own: %r", error)
    return error_answer(500, "internal", "the orchestrator failed at this", "its log says why")


@web.middleware
async def errors_as_answers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors of the orchestrator, and aiohttp's own (unknown path, wrong method), in our form."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        code = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}.get(
            error.status, "bad_request"
        )
        return error_answer(error.status, code, error.text or error.reason)
    except OrchestratorError as error:
        return error_of(error, reading=request.method == "GET")
    except Exception:
        log.exception("%s %s failed: a fault of llmgw itself", request.method, request.path)
        return error_answer(500, "internal", "the orchestrator failed at this", "its log says why")
