"""Routes that show. None of them changes anything."""

from __future__ import annotations

import asyncio
import io
import re
import sys
import traceback
from typing import Any

import msgspec
from aiohttp import web

from orchestrator.access import StoredKey
from orchestrator.admin.answers import answer, listing
from orchestrator.admin.items import (
    event_item,
    key_items,
    model_item,
    node_item,
    replica_item,
    router_items,
    time_of,
)
from orchestrator.admin.status import control_plane, status
from orchestrator.catalog.definition import ModelDefinition
from orchestrator.changing import nothing_such, whole_id
from orchestrator.command_line import own_version
from orchestrator.instance import Instance
from orchestrator.metrics import CONTENT_TYPE, exposition
from orchestrator.picture import Picture
from orchestrator.shell_errors import BadRequest, StoreAway
from orchestrator.store import EventRow

#: Events that one answer holds at most.
EVENTS_CAP = 1000
_NUMBER = re.compile(r"[0-9]{1,9}")
_EVENT_ID = re.compile(r"[0-9]{1,18}-[0-9]{1,18}")
_INDEX = """llmgw orchestrator: admin API. See llmgw ctl --help, or GET /api/status
nodes models replicas keys events, /api/explain/MODEL, /metrics, /healthz.
"""


class ReadingRoutes:
    """Handlers over one instance: a leader from its memory, a standby from its last look."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def _listing(self, picture: Picture, items: list[dict[str, Any]]) -> web.Response:
        more: dict[str, Any] = {}
        leader = self._instance.leader
        if not picture.leading and leader is not None and leader.value:
            more["leader"] = leader.instance
        return listing(items, time_of(picture.as_of_ms), **more)

    async def index(self, _: web.Request) -> web.Response:
        """What this port is."""
        return web.Response(text=_INDEX)

    async def healthz(self, _: web.Request) -> web.Response:
        """The process lives, whatever Redis does."""
        return answer(
            {"ok": True, "role": control_plane(self._instance)["role"]},
        )

    async def version(self, _: web.Request) -> web.Response:
        """The version of the answering orchestrator."""
        return answer({"version": own_version(), "instance": self._instance.name})

    async def metrics(self, _: web.Request) -> web.Response:
        """Prometheus's text form."""
        return web.Response(body=exposition(self._instance), headers={"Content-Type": CONTENT_TYPE})

    async def stacks(self, _: web.Request) -> web.Response:
        """Where every thread and every task is at this moment."""
        parts = [
            f"thread {number}\n{''.join(traceback.format_stack(frame))}"
            for number, frame in sys._current_frames().items()
        ]
        for task in asyncio.all_tasks():
            text = io.StringIO()
            task.print_stack(file=text)
            parts.append(text.getvalue())
        return web.Response(text="\n".join(parts))

    async def status(self, _: web.Request) -> web.Response:
        """Also answered while Redis has never been there: then only the control plane is in it."""
        try:
            picture: Picture | None = self._instance.picture()
        except StoreAway:
            picture = None
        item = status(self._instance, picture)
        if self._instance.term is not None:
            item["router_workers"] = router_items(self._instance.term.presences)
        return answer(item)

    async def nodes(self, _: web.Request) -> web.Response:
        """Every node."""
        picture = self._instance.picture()
        items = [node_item(node, leading=picture.leading) for node in picture.view.nodes]
        return self._listing(picture, items)

    async def node(self, request: web.Request) -> web.Response:
        """One node, with its replicas."""
        picture, name = self._instance.picture(), request.match_info["name"]
        for node in picture.view.nodes:
            if node.name == name:
                item = node_item(node, leading=picture.leading)
                item["on_it"] = [
                    replica_item(replica)
                    for replica in picture.view.replicas
                    if name in replica.nodes
                ]
                return answer({**item, "as_of": time_of(picture.as_of_ms)})
        raise nothing_such("node", name, [node.name for node in picture.view.nodes])

    async def models(self, _: web.Request) -> web.Response:
        """Every model."""
        picture = self._instance.picture()
        return self._listing(picture, [model_item(model) for model in picture.view.models])

    async def model(self, request: web.Request) -> web.Response:
        """One model, with its definition and its replicas. Values of ``env`` are hidden."""
        picture, name = self._instance.picture(), request.match_info["name"]
        name = picture.catalog.target(name) or name
        for model in picture.view.models:
            if model.name == name:
                item = model_item(model)
                item["on_it"] = [
                    replica_item(replica)
                    for replica in picture.view.replicas
                    if replica.model == name
                ]
                known = picture.catalog.models.get(name)
                if known is not None:
                    item["definition"] = shown_definition(known.definition)
                return answer({**item, "as_of": time_of(picture.as_of_ms)})
        raise nothing_such("model", name, picture.catalog.names)

    async def replicas(self, _: web.Request) -> web.Response:
        """Every replica."""
        picture = self._instance.picture()
        return self._listing(picture, [replica_item(one) for one in picture.view.replicas])

    async def replica(self, request: web.Request) -> web.Response:
        """One replica, by its id or the beginning of it."""
        picture = self._instance.picture()
        wanted = whole_id(request.match_info["id"], picture.view)
        (found,) = (one for one in picture.view.replicas if one.id == wanted)
        return answer({**replica_item(found), "as_of": time_of(picture.as_of_ms)})

    async def keys(self, _: web.Request) -> web.Response:
        """Every key: its name and first letters, never the key."""
        picture = self._instance.picture()
        stored: dict[str, StoredKey] = picture.keys
        return self._listing(picture, key_items(picture.file.keys, stored))

    async def explain(self, request: web.Request) -> web.Response:
        """Why a model is as it is, per profile and node."""
        picture, name = self._instance.picture(), request.match_info["name"]
        model = picture.catalog.target(name)
        if model is None:
            raise nothing_such("model", name, picture.catalog.names)
        now = 0.0 if self._instance.term is None else self._instance.term.now()
        found = picture.reconciler.explain(model, now)
        items = [
            {
                "profile": number,
                "node": row.node,
                "verdict": row.verdict,
                "needs": row.needs,
                "has": row.has,
            }
            for number, rows in enumerate(found.profiles)
            for row in rows
        ]
        return listing(
            items,
            time_of(picture.as_of_ms),
            model=found.model,
            state=found.state,
            reason=found.reason,
            failures=found.failures,
            **({} if found.next_try is None else {"next_try_s": round(found.next_try, 1)}),
        )

    async def events(self, request: web.Request) -> web.Response:
        """``after`` (an id) and ``limit``; ``subject`` keeps those whose subject holds that word."""
        limit = _limit(request.query.get("limit", "100"))
        after, subject = _after(request.query.get("after", "")), request.query.get("subject", "")
        rows = await self._instance.store.read_events(after, EVENTS_CAP if subject else limit)
        if subject:
            rows = [row for row in rows if concerns(row, subject)]
        items = [event_item(row) for row in rows[-limit:]]
        return listing(items, time_of(self._instance.store_now_ms()))


def shown_definition(definition: ModelDefinition) -> dict[str, Any]:
    """A definition as it was written, with the values of ``env`` hidden."""
    shown: dict[str, Any] = msgspec.to_builtins(definition)
    for profile in shown.get("profiles", []):
        if "env" in profile:
            profile["env"] = dict.fromkeys(profile["env"], "***")
    return shown


def concerns(row: EventRow, name: str) -> bool:
    """Whether an event is about the thing of that name: ``node n1``, ``greek/1h8m2k3pq``."""
    subject = str(row.fields.get("subject", ""))
    return name in (subject, *subject.split(), *subject.split("/"))


def _limit(written: str) -> int:
    if not _NUMBER.fullmatch(written) or not 1 <= int(written) <= EVENTS_CAP:
        raise BadRequest(
            "limit is refused",
            f"{written[:40]!r} is none",
            f"write a number from 1 to {EVENTS_CAP}",
        )
    return int(written)


def _after(written: str) -> str:
    if written and not _EVENT_ID.fullmatch(written):
        raise BadRequest(
            "after is refused", f"{written[:40]!r} is no event's id", "give the id of an event"
        )
    return written
