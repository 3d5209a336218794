from __future__ import annotations

import pytest

from router.errors import UnknownPath, WrongMethod
from router.refused_members import REFUSED, refuse
from router.routes import ROUTES, Kind, find_route, form_of_path


@pytest.mark.parametrize(
    ("method", "path", "kind", "form"),
    [
        ("POST", "/v1/chat/completions", Kind.GENERATE, "openai"),
        ("POST", "/v1/completions", Kind.GENERATE, "openai"),
        ("POST", "/v1/responses", Kind.GENERATE, "responses"),
        ("POST", "/v1/messages", Kind.GENERATE, "anthropic"),
        ("POST", "/v1/messages/count_tokens", Kind.COMPUTE, "anthropic"),
        ("POST", "/v1/embeddings", Kind.COMPUTE, "openai"),
        ("GET", "/v1/models", Kind.MODELS, "openai"),
        ("GET", "/v1/models/org/name", Kind.MODEL, "openai"),
        ("HEAD", "/", Kind.PAGE, "openai"),
        ("GET", "/chat/chat.js", Kind.PAGE, "openai"),
    ],
)
def test_known(method, path, kind, form):
    route = find_route(method, path)
    assert (route.kind, route.form) == (kind, form)
    assert form_of_path(path) == form
    assert route.upstream in ("", path)


@pytest.mark.parametrize(
    "path",
    [
        "/metrics", "/slots", "/props", "/v1/load_lora_adapter", "/sleep", "/flush_cache",
        "/v1/chat/completions/", "/v1//chat/completions", "/v1/chat/completions\r\nx: y",
        "/v1/models/", "//", "",
    ],
)  # fmt: skip
def test_nothing_else_is_reachable(path):
    with pytest.raises(UnknownPath):
        find_route("POST", path)


def test_the_usual_mistakes_are_named():
    with pytest.raises(UnknownPath, match="write /v1/messages "):
        find_route("POST", "/v1/v1/messages")
    with pytest.raises(UnknownPath, match="write /v1/completions "):
        find_route("POST", "/completions")
    with pytest.raises(UnknownPath, match="write /v1/chat/completions "):
        find_route("POST", "/chat/completions")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [("GET", "/v1/messages", "POST"), ("DELETE", "/v1/models", "GET, HEAD"), ("POST", "/", "GET, HEAD")],
)  # fmt: skip
def test_methods(method, path, allow):
    with pytest.raises(WrongMethod) as refused:
        find_route(method, path)
    assert refused.value.allow == allow


def test_every_upstream_path_is_a_constant_of_the_table():
    assert all(route.upstream in ("", path) for path, route in ROUTES.items())


def test_each_refused_member_says_what_to_do():
    for member in REFUSED:
        error = refuse(member)
        assert (error.param, error.code) == (member, "unsupported_parameter")
        assert len(error.message) > len(member) + 30
