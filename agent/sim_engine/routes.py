"""Which path is answered by what, who may ask, and how a refusal is written."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from agent.sim_engine.answer_forms import ChatForm, CompletionForm
from agent.sim_engine.anthropic_form import MessagesForm
from agent.sim_engine.embedding import embeddings_body
from agent.sim_engine.errors import BadSetting, Rejected, bad_request
from agent.sim_engine.faults import read_faults
from agent.sim_engine.http_connection import HttpConnection, Request
from agent.sim_engine.metrics_text import CONTENT_TYPE, metrics_text
from agent.sim_engine.prefix_cache import BYTES_PER_TOKEN
from agent.sim_engine.request_forms import (
    read_chat,
    read_completion,
    read_count,
    read_embeddings,
    read_messages,
    read_tokenize,
)
from agent.sim_engine.settings import MAX_BODY

if TYPE_CHECKING:
    from agent.sim_engine.engine_server import EngineServer

Handler = Callable[["EngineServer", HttpConnection, Request], None]

OWNER = "llmgw-sim"


def dispatch(server: EngineServer, connection: HttpConnection, request: Request) -> None:
    """Answers the request, or hands it to the engine, which will."""
    if server.faults.hang and request.path != FAULTS_PATH:
        return
    try:
        _find(server, connection, request)(server, connection, request)
    except Rejected as no:
        headers = b"allow: %b\r\n" % no.param.encode() if no.status == 405 and no.param else b""
        connection.answer(no.status, _error_body(request.path, no), headers=headers)


def _find(server: EngineServer, connection: HttpConnection, request: Request) -> Handler:
    methods = _ROUTES.get(request.path)
    if methods is None:
        raise Rejected(404, "NotFoundError", f"There is no {request.path} here.")
    if request.path not in _OPEN and not _key_fits(server.settings.api_key, request.headers):
        raise Rejected(
            401,
            "AuthenticationError",
            "Wrong or missing API key: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`.",
        )
    handler = methods.get(request.method)
    if handler is None:
        allowed = ", ".join(methods)
        text = f"{request.path} takes {allowed}, not {request.method}."
        raise Rejected(405, "MethodNotAllowedError", text, allowed)
    if request.too_big:
        raise Rejected(413, "BadRequestError", f"The body is larger than {MAX_BODY} bytes.")
    if request.path in _GENERATING:
        loading = "Shutting down" if server.closing else server.loading()
        if loading is not None:
            raise Rejected(503, "ServiceUnavailableError", loading)
    return handler


def _key_fits(key: str | None, headers: dict[str, str]) -> bool:
    if key is None:
        return True
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    given = bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
    return hmac.compare_digest(given.encode("latin-1"), key.encode())


def _error_body(path: str, no: Rejected) -> bytes:
    if path.startswith("/v1/messages"):
        kinds = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large"}
        kind = kinds.get(no.status, "api_error" if no.status >= 500 else "invalid_request_error")
        return msgspec.json.encode(
            {"type": "error", "error": {"type": kind, "message": no.message}}
        )
    param = None if no.status == 405 else no.param
    error = {"message": no.message, "type": no.kind, "param": param, "code": no.status}
    return msgspec.json.encode({"error": error})


def _health(server: EngineServer, connection: HttpConnection, request: Request) -> None:
    loading = server.loading()
    if loading is not None:
        raise Rejected(503, "ServiceUnavailableError", loading)
    connection.answer(200, b'{"status":"ok"}')


def _models(server: EngineServer, connection: HttpConnection, request: Request) -> None:
    names = server.settings.names
    data = [
        {
            "id": name,
            "object": "model",
            "created": server.started,
            "owned_by": OWNER,
            "root": names[0],
            "parent": None,
            "max_model_len": server.settings.max_model_len,
        }
        for name in names
    ]
    connection.answer(200, msgspec.json.encode({"object": "list", "data": data}))


def _metrics(server: EngineServer, connection: HttpConnection, request: Request) -> None:
    connection.answer(200, metrics_text(server.model, server.settings.names[0]), CONTENT_TYPE)


def _chat(server: EngineServer, connection: HttpConnection, request: Request) -> None:
    asked = read_chat(request.body, server.limits)
    head = server.head("chatcmpl-", asked.model, asked.n)
    server.generate(connection, asked, ChatForm(head, asked.include_usage, asked.call))


def _completions(server: EngineServer, connection: HttpConnection, request: Request) -> None:
    asked = read_completion(request.body, server.limits)
    head = server.head("cmpl-", asked.model, asked.n * len(asked.prompts))
    server.generate(connection, asked, CompletionForm(head, asked.include_usage))


def _messages(server: EngineServer, connection: HttpConnection, request: Request) -> None:
    asked = read_messages(request.body, server.limits)
    head = server.head("msg_", asked.model, 1)
    server.generate(connection, asked, MessagesForm(head, asked.call))


def _count_tokens(server: EngineServer, connection: HttpConnection, request: Request) -> None:
    tokens = read_count(request.body, server.limits)
    connection.answer(200, msgspec.json.encode({"input_tokens": tokens}))


def _embeddings(server: EngineServer, connection: HttpConnection, request: Request) -> None:
    asked = read_embeddings(request.body, server.limits)
    head = server.head("embd-", asked.model, len(asked.inputs))
    size = server.settings.embedding_size
    server.embed(
        connection,
        asked.inputs,
        lambda usage: embeddings_body(asked, size, head.id, head.created, usage),
    )


def _tokenize(server: EngineServer, connection: HttpConnection, request: Request) -> None:
    text = read_tokenize(request.body, server.limits)
    starts = range(0, len(text), BYTES_PER_TOKEN)
    # A token's number is its bytes: as a prompt the numbers make the same blocks as the text.
    tokens = [int.from_bytes(text[at : at + BYTES_PER_TOKEN], "little") for at in starts]
    answer = {
        "count": len(tokens),
        "max_model_len": server.settings.max_model_len,
        "tokens": tokens,
        "token_strs": None,
    }
    connection.answer(200, msgspec.json.encode(answer))


class _FaultsBody(msgspec.Struct, forbid_unknown_fields=True):
    faults: list[str]


def _set_faults(server: EngineServer, connection: HttpConnection, request: Request) -> None:
    if not ipaddress.ip_address(connection.peer).is_loopback:
        raise Rejected(403, "ForbiddenError", "Faults are set from this machine only.")
    try:
        faults = read_faults(msgspec.json.decode(request.body, type=_FaultsBody).faults)
    except (msgspec.MsgspecError, BadSetting) as wrong:
        raise bad_request(str(wrong), "faults") from None
    server.set_faults(faults)
    connection.answer(200, request.body)


FAULTS_PATH = "/sim/faults"
_GENERATING: dict[str, Handler] = {
    "/v1/chat/completions": _chat,
    "/v1/completions": _completions,
    "/v1/messages": _messages,
    "/v1/embeddings": _embeddings,
}
_ROUTES: dict[str, dict[str, Handler]] = {
    **{path: {"POST": handler} for path, handler in _GENERATING.items()},
    "/health": {"GET": _health},
    "/metrics": {"GET": _metrics},
    "/v1/models": {"GET": _models},
    "/v1/messages/count_tokens": {"POST": _count_tokens},
    "/tokenize": {"POST": _tokenize},
    FAULTS_PATH: {"PUT": _set_faults},
}
#: Never ask for the key, as with vLLM: who watches an engine need not be able to use it.
_OPEN = frozenset({"/health", "/metrics"})
