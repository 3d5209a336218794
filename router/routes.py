"""The route table: each path is a constant of ours, and so is the path written to the engine.

``scope.path`` (percent-decoded, CR and LF included) is only ever compared with these constants, so no
engine management path and no smuggled line can be reached.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from router.errors import Form, UnknownPath, WrongMethod

MODELS_PATH = "/v1/models"
MODEL_PREFIX = "/v1/models/"
CHAT_PAGE_PREFIX = "/chat/"


class Kind(enum.Enum):
    """What is done with a request of this route."""

    GENERATE = "generate"
    #: One whole answer, never a stream; no output of its own (embeddings, scores, token counts).
    COMPUTE = "compute"
    MODELS = "models"
    MODEL = "model"
    PAGE = "page"


class Terminator(enum.Enum):
    """How a stream of this route ends when it is whole."""

    DONE = "[DONE]"
    RESPONSE = "response.completed"
    MESSAGE = "message_stop"
    NONE = ""


class Route(NamedTuple):
    """One row. ``upstream`` is written to the engine as it stands; "" where nothing is forwarded."""

    kind: Kind
    form: Form
    upstream: str
    methods: tuple[str, ...]
    terminator: Terminator
    #: The route's label in metrics and the access log.
    label: str
    #: The member named when the prompt is longer than the window.
    prompt_member: str


def _post(
    path: str, kind: Kind, prompt: str, form: Form = "openai", end: Terminator = Terminator.NONE
) -> Route:
    return Route(kind, form, path, ("POST",), end, path, prompt)


def _get(kind: Kind, label: str) -> Route:
    return Route(kind, "openai", "", ("GET", "HEAD"), Terminator.NONE, label, "")


ROUTES: dict[str, Route] = {
    route.upstream: route
    for route in (
        _post("/v1/chat/completions", Kind.GENERATE, "messages", end=Terminator.DONE),
        _post("/v1/completions", Kind.GENERATE, "prompt", end=Terminator.DONE),
        _post("/v1/responses", Kind.GENERATE, "input", "responses", Terminator.RESPONSE),
        _post("/v1/messages", Kind.GENERATE, "messages", "anthropic", Terminator.MESSAGE),
        _post("/v1/messages/count_tokens", Kind.COMPUTE, "messages", "anthropic"),
        _post("/v1/embeddings", Kind.COMPUTE, "input"),
        _post("/v1/rerank", Kind.COMPUTE, "documents"),
        _post("/v1/score", Kind.COMPUTE, "text_1"),
        _post("/tokenize", Kind.COMPUTE, "content"),
        _post("/detokenize", Kind.COMPUTE, "tokens"),
    )
} | {
    MODELS_PATH: _get(Kind.MODELS, MODELS_PATH),
    "/": _get(Kind.PAGE, "/"),
}

_MODEL = _get(Kind.MODEL, "/v1/models/{id}")
_PAGE_FILE = _get(Kind.PAGE, "/chat/")
#: Of a request whose path is none of ours, or not looked at yet.
NO_ROUTE = Route(Kind.PAGE, "openai", "", (), Terminator.NONE, "unknown", "")


def find_route(method: str, path: str) -> Route:
    """The row for a request; UnknownPath or WrongMethod."""
    route = ROUTES.get(path)
    if route is None:
        if path.startswith(MODEL_PREFIX) and len(path) > len(MODEL_PREFIX):
            route = _MODEL
        elif path.startswith(CHAT_PAGE_PREFIX) and "/v1" + path not in ROUTES:
            route = _PAGE_FILE
        else:
            raise UnknownPath(_unknown_path_text(path))
    if method not in route.methods:
        allow = ", ".join(route.methods)
        raise WrongMethod(f"this path takes {allow} only", allow=allow)
    return route


def form_of_path(path: str) -> Form:
    """The protocol in which a refusal of this path is worded."""
    if path.startswith("/v1/messages"):
        return "anthropic"
    return "responses" if path == "/v1/responses" else "openai"


def _unknown_path_text(path: str) -> str:
    # A base URL with /v1 twice or not at all is the usual cause; the right one is named.
    if path.startswith("/v1/v1/") and path[3:] in ROUTES:
        return f"there is no such path; write {path[3:]} (the base URL has /v1 twice)"
    if "/v1" + path in ROUTES:
        return f"there is no such path; write /v1{path} (the base URL lacks /v1)"
    return "there is no such path on this router"
