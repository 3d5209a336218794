"""The guard by raw sockets: what a browser's page could send, not what a client library would."""

from __future__ import annotations

import asyncio
import json

import pytest

from orchestrator.admin.app import admin_app
from tests.fakes.local_orchestrator import LocalOrchestrator
from tests.fakes.redis_server import RedisServer


async def send(port: int, head: str, body: bytes = b"") -> tuple[int, bytes]:
    """(status, body) of one request, written as it stands."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head.replace("\n", "\r\n").encode() + b"Connection: close\r\n\r\n" + body)
        raw = await reader.read()
    finally:
        writer.close()
    headers, _, rest = raw.partition(b"\r\n\r\n")
    assert b"access-control" not in headers.lower()
    return int(headers.split()[1]), rest


@pytest.mark.parametrize(
    ("status", "head"),
    [
        (200, "GET /api/status HTTP/1.1\nHost: 127.0.0.1:8090\n"),
        (200, "GET /api/status HTTP/1.1\nHost: LocalHost\n"),
        (200, "GET /api/status HTTP/1.1\nHost: [::1]:8090\n"),
        (200, "GET http://127.0.0.1/api/status HTTP/1.1\nHost: 127.0.0.1\n"),
        (200, "GET /api/status HTTP/1.1\nHost: localhost\nOrigin: http://localhost\n"),
        (200, "GET /api/status HTTP/1.1\nHost: localhost\nSec-Fetch-Site: same-origin\n"),
        (421, "GET /api/status HTTP/1.1\nHost: evil.example\n"),
        (421, "GET /api/status HTTP/1.1\nHost: evil.example\nOrigin: http://evil.example\n"),
        (421, "GET /api/status HTTP/1.1\nHost: 127.0.0.1.evil.example\n"),
        (421, "GET /api/status HTTP/1.0\n"),
        (421, "GET http://evil.example/api/status HTTP/1.1\nHost: 127.0.0.1\n"),
        (421, "GET /metrics HTTP/1.1\nHost: evil.example\n"),
        (421, "GET /debug/stacks HTTP/1.1\nHost: evil.example\n"),
        (421, "GET /healthz HTTP/1.1\nHost: evil.example\n"),
        (421, "GET /no/such/path HTTP/1.1\nHost: evil.example\n"),
        (403, "GET /api/status HTTP/1.1\nHost: localhost\nOrigin: http://evil.example\n"),
        (403, "GET /api/status HTTP/1.1\nHost: localhost\nOrigin: null\n"),
        (403, "GET /api/status HTTP/1.1\nHost: localhost\nOrigin: https://localhost\n"),
        (403, "GET /api/status HTTP/1.1\nHost: localhost\nSec-Fetch-Site: cross-site\n"),
        (403, "GET /api/status HTTP/1.1\nHost: localhost\nSec-Fetch-Site: same-site\n"),
        (415, "POST /api/keys HTTP/1.1\nHost: localhost\nContent-Type: text/plain\n"),
        (415, "POST /api/keys HTTP/1.1\nHost: localhost\n"),
        (415, "DELETE /api/models/greek HTTP/1.1\nHost: localhost\n"),
        (415, "PUT /no/such/path HTTP/1.1\nHost: localhost\n"),
        (405, "OPTIONS /api/keys HTTP/1.1\nHost: localhost\n"),
        (405, "OPTIONS * HTTP/1.1\nHost: localhost\n"),
    ],
)
async def test_who_may_talk(orchestrator: LocalOrchestrator, status: int, head: str) -> None:
    found, body = await send(orchestrator.port, head)
    assert found == status, body
    if status >= 400:
        assert json.loads(body)["error"]["code"]


@pytest.mark.parametrize("hosts", ["", "Host: localhost\nHost: evil.example\n"])
async def test_no_host_and_two_hosts_are_refused(
    orchestrator: LocalOrchestrator, hosts: str
) -> None:
    """The server's own parser may be the first to refuse them."""
    status, body = await send(orchestrator.port, f"GET /api/status HTTP/1.1\n{hosts}")
    assert status in (400, 421)
    assert b"cluster" not in body


async def test_a_cross_site_form_changes_nothing(
    orchestrator: LocalOrchestrator, redis_server: RedisServer
) -> None:
    body = b'{"name": "stolen"}'
    head = (
        "POST /api/keys HTTP/1.1\nHost: localhost\nContent-Type: text/plain\n"
        f"Content-Length: {len(body)}\n"
    )
    assert (await send(orchestrator.port, head, body))[0] == 415
    assert await orchestrator.items("keys") == []


async def test_get_changes_nothing(
    orchestrator: LocalOrchestrator, redis_server: RedisServer
) -> None:
    keys = orchestrator.instance.store.keys
    with redis_server.client() as client:
        watched = [keys.doc("models"), keys.doc("keys"), keys.doc("nodes"), keys.models]
        before = [client.hgetall(key) for key in watched], client.get(keys.doc_version)
        for resource in admin_app(orchestrator.instance).router.resources():
            path = resource.canonical.replace("{name}", "greek").replace("{id}", "x")
            head = f"GET {path.replace('{key}', 'x')} HTTP/1.1\nHost: localhost\n"
            status, body = await send(orchestrator.port, head)
            assert status in (200, 404, 405), (path, body)
        after = [client.hgetall(key) for key in watched], client.get(keys.doc_version)
    assert before == after


async def test_every_route_is_behind_the_guard(orchestrator: LocalOrchestrator) -> None:
    for route in admin_app(orchestrator.instance).router.routes():
        path = route.resource.canonical if route.resource is not None else "/"
        path = path.replace("{name}", "x").replace("{id}", "x").replace("{key}", "x")
        head = (
            f"{route.method} {path} HTTP/1.1\nHost: evil.example\nContent-Type: application/json\n"
        )
        assert (await send(orchestrator.port, head))[0] == 421
