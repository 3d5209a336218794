"""The admin application: its routes, all behind the guard."""

from __future__ import annotations

from aiohttp import web

from orchestrator.admin.answers import errors_as_answers
from orchestrator.admin.changing_routes import ChangingRoutes
from orchestrator.admin.guard import guard
from orchestrator.admin.reading_routes import ReadingRoutes
from orchestrator.instance import Instance

#: A model's definition is at most some KB; a batch file is not sent here.
BODY_CAP = 1024 * 1024


def admin_app(instance: Instance) -> web.Application:
    """The application of one orchestrator."""
    app = web.Application(middlewares=[guard, errors_as_answers], client_max_size=BODY_CAP)
    read, change = ReadingRoutes(instance), ChangingRoutes(instance)
    app.add_routes(
        [
            web.get("/", read.index),
            web.get("/healthz", read.healthz),
            web.get("/metrics", read.metrics),
            web.get("/debug/stacks", read.stacks),
            web.get("/api/status", read.status),
            web.get("/api/version", read.version),
            web.get("/api/nodes", read.nodes),
            web.get("/api/nodes/{name}", read.node),
            web.get("/api/models", read.models),
            web.get("/api/models/{name:.+}", read.model),
            web.get("/api/replicas", read.replicas),
            web.get("/api/replicas/{id}", read.replica),
            web.get("/api/keys", read.keys),
            web.get("/api/explain/{name:.+}", read.explain),
            web.get("/api/events", read.events),
            web.post("/api/models", change.add_model),
            web.post("/api/models/{name:.+}/stop", change.stop_model),
            web.post("/api/models/{name:.+}/start", change.start_model),
            web.delete("/api/models/{name:.+}", change.remove_model),
            web.post("/api/keys", change.create_key),
            web.delete("/api/keys/{key}", change.revoke_key),
            web.post("/api/replicas/{id}/restart", change.restart_replica),
            web.post("/api/nodes/{name}/drain", change.drain_node),
            web.post("/api/nodes/{name}/undrain", change.undrain_node),
            web.post("/api/reload", change.reload),
        ]
    )
    return app
