"""Routes that change something. Each answers when the change is written, not when it has taken effect."""

from __future__ import annotations

from aiohttp import web

from orchestrator.admin.answers import answer
from orchestrator.admin.bodies import KeyBody, ModelBody, NoBody, read_body, seconds_until
from orchestrator.changes import (
    AddModel,
    Change,
    CreateKey,
    DrainNode,
    Reload,
    RemoveModel,
    RestartReplica,
    RevokeKey,
    StopModel,
)
from orchestrator.instance import Instance


class ChangingRoutes:
    """Handlers over one instance; a standby refuses all of them but its own reload."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    async def _make(self, change: Change, status: int = 200) -> web.Response:
        return answer(await self._instance.submit(change), status)

    async def add_model(self, request: web.Request) -> web.Response:
        """``{"definition": {…}, "replace": false}``."""
        body = await read_body(request, ModelBody)
        return await self._make(AddModel(body.definition, body.replace), 201)

    async def remove_model(self, request: web.Request) -> web.Response:
        """Takes a stored model out."""
        return await self._make(RemoveModel(request.match_info["name"]))

    async def stop_model(self, request: web.Request) -> web.Response:
        """Stops every replica until it is started again."""
        await read_body(request, NoBody)
        return await self._make(StopModel(request.match_info["name"], stopped=True))

    async def start_model(self, request: web.Request) -> web.Response:
        """Takes a stop back."""
        await read_body(request, NoBody)
        return await self._make(StopModel(request.match_info["name"], stopped=False))

    async def create_key(self, request: web.Request) -> web.Response:
        """``{"name": …, "models": […], "owner": …, "expires": "30d"}``; the key is in the answer, once."""
        body = await read_body(request, KeyBody)
        return await self._make(
            CreateKey(
                body.name, body.models, body.owner, seconds_until(body.expires), body.operator
            ),
            201,
        )

    async def revoke_key(self, request: web.Request) -> web.Response:
        """By name, id or prefix."""
        return await self._make(RevokeKey(request.match_info["key"]))

    async def restart_replica(self, request: web.Request) -> web.Response:
        """A successor in its place."""
        await read_body(request, NoBody)
        return await self._make(RestartReplica(request.match_info["id"]))

    async def drain_node(self, request: web.Request) -> web.Response:
        """Sets the drain flag."""
        await read_body(request, NoBody)
        return await self._make(DrainNode(request.match_info["name"], drained=True))

    async def undrain_node(self, request: web.Request) -> web.Response:
        """Takes the drain flag away."""
        await read_body(request, NoBody)
        return await self._make(DrainNode(request.match_info["name"], drained=False))

    async def reload(self, request: web.Request) -> web.Response:
        """Reads cluster.yaml of the answering orchestrator again."""
        await read_body(request, NoBody)
        return await self._make(Reload())
