"""Makes an operator's changes: checked against the would-be whole first, answered when written."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import UNSET

from orchestrator.access import RANDOM_BYTES, digest_of, make_key
from orchestrator.catalog.model_rules import OWNER
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
from orchestrator.cluster_file import ClusterFile
from orchestrator.near_miss import near_miss
from orchestrator.reconcile.actions import SayEvent
from orchestrator.reconcile.events import ModelStopped, NodeDrained, RestartAsked
from orchestrator.reconcile.view_rows import ClusterView
from orchestrator.shell_errors import ChangeRefused, NothingSuch
from orchestrator.source_check import SourceFound, check_sources
from orchestrator.term import Term

Answer = dict[str, Any]
#: Longest name of a key.
_KEY_NAME_LENGTH = 64


def nothing_such(kind: str, name: str, known: Iterable[str]) -> NothingSuch:
    """ "no model qwen3-8; did you mean qwen3-8b?"."""
    meant = near_miss(name, known)
    hint = f"; did you mean {meant}?" if meant else ""
    return NothingSuch(f"no {kind} {name}{hint}", "", f"llmgw ctl {kind}s")


class Changing:
    """Carries changes out on a term. ``read_file`` reads cluster.yaml or raises CatalogRefused."""

    def __init__(self, read_file: Callable[[], ClusterFile]) -> None:
        self._read_file = read_file

    async def carry_out(self, term: Term, change: Change) -> Answer:
        """The answer to show; CatalogRefused, ChangeRefused or UnknownSubject when it is not made."""
        match change:
            case AddModel():
                return await self._add_model(term, change)
            case RemoveModel():
                return await self._remove_model(term, change)
            case StopModel():
                return await self._stop_model(term, change)
            case CreateKey():
                return await self._create_key(term, change)
            case RevokeKey():
                return await self._revoke_key(term, change)
            case RestartReplica():
                return await self._restart_replica(term, change)
            case DrainNode():
                return await self._drain_node(term, change)
            case Reload():
                return await self._reload(term)

    async def _add_model(self, term: Term, change: AddModel) -> Answer:
        definitions = term.definitions
        addition = definitions.added(change.definition, term.now_ms() // 1000, change.replace)
        profiles = addition.catalog.models[addition.name].definition.profiles
        found = await asyncio.to_thread(check_sources, profiles, list(term.fulls.values()))
        _refuse_missing(addition.name, found)
        replaced = addition.name in definitions.stored
        await term.write_document(
            term.store.document_write("models", {addition.name: addition.row}),
            SayEvent(
                "info",
                f"model {addition.name}",
                "replaced" if replaced else "added",
                "by ctl or page",
            ),
        )
        stored = {**definitions.stored, addition.name: addition.row}
        await term.put_in_force(definitions._replace(stored=stored), addition.catalog)
        return {
            "name": addition.name,
            "replaced": replaced,
            "sources": [
                {key: value for key, value in one._asdict().items() if value is not None}
                for one in found
            ],
        }

    async def _remove_model(self, term: Term, change: RemoveModel) -> Answer:
        definitions = term.definitions
        if change.name not in definitions.stored:
            if change.name in term.catalog.models:
                raise ChangeRefused(
                    f"model {change.name} was not removed",
                    "it is declared in cluster.yaml, and the file wins",
                    "take it out of cluster.yaml, then: llmgw ctl reload",
                )
            raise nothing_such("model", change.name, term.catalog.models)
        catalog = definitions.removed(change.name)
        await term.write_document(
            term.store.document_write("models", {}, [change.name]),
            SayEvent("info", f"model {change.name}", "removed", "by ctl or page"),
        )
        stored = {name: row for name, row in definitions.stored.items() if name != change.name}
        await term.put_in_force(definitions._replace(stored=stored), catalog)
        return {"name": change.name}

    async def _stop_model(self, term: Term, change: StopModel) -> Answer:
        if change.name not in term.catalog.models:
            raise nothing_such("model", change.name, term.catalog.models)
        await term.feed(ModelStopped(change.name, change.stopped))
        return {"name": change.name, "stopped": change.stopped}

    async def _create_key(self, term: Term, change: CreateKey) -> Answer:
        if not change.name.strip() or len(change.name) > _KEY_NAME_LENGTH:
            raise ChangeRefused(
                "the key was not made",
                f"its name must have 1 to {_KEY_NAME_LENGTH} characters",
                "llmgw ctl key create NAME",
            )
        if not change.name.isprintable() or not change.name.strip(". "):
            raise ChangeRefused(
                "the key was not made",
                f"{change.name!r} cannot be read or typed by everybody",
                "a name of letters, digits and - _ . /",
            )
        if change.owner and not OWNER.fullmatch(change.owner):
            raise ChangeRefused(
                f"key {change.name} was not made",
                f"{change.owner!r} is no scope",
                "--owner org, org/team or org/team/project, in lower case",
            )
        taken = [key.name for key in term.stored_keys.values()]
        if change.name in taken or change.name in [k.name for k in term.definitions.file.keys]:
            raise ChangeRefused(
                f"key {change.name} was not made",
                "there is one of that name",
                f"another name, or first: llmgw ctl key revoke {change.name}",
            )
        for name in change.models or []:
            if name not in term.catalog.names:
                raise nothing_such("model", name, term.catalog.names)
        now_ms = term.now_ms()
        expires = UNSET if change.expires is None else now_ms + int(change.expires * 1000)
        made = make_key(
            secrets.token_bytes(RANDOM_BYTES),
            now_ms,
            name=change.name,
            owner=change.owner or UNSET,
            models=UNSET if change.models is None else change.models,
            expires_ms=expires,
            operator=change.operator,
        )
        row = msgspec.json.encode(made.stored).decode()
        await term.write_document(
            term.store.document_write("keys", {made.digest: row}),
            SayEvent("info", f"key {change.name}", "created", f"{made.stored.prefix}…"),
        )
        term.stored_keys[made.digest] = made.stored
        await term.publish_access()
        return {"name": change.name, "key": made.key, "prefix": made.stored.prefix}

    async def _revoke_key(self, term: Term, change: RevokeKey) -> Answer:
        found = {
            digest: key
            for digest, key in term.stored_keys.items()
            if change.key in (key.name, key.id)
            or change.key == key.prefix
            or digest == digest_of(change.key)
        }
        if not found:
            if any(key.name == change.key for key in term.definitions.file.keys):
                raise ChangeRefused(
                    f"key {change.key} was not revoked",
                    "it is declared in cluster.yaml, and the file wins",
                    "take it out of cluster.yaml, then: llmgw ctl reload",
                )
            raise nothing_such("key", change.key, [key.name for key in term.stored_keys.values()])
        if len(found) > 1:
            names = ", ".join(sorted(key.name for key in found.values()))
            raise ChangeRefused("no key was revoked", f"{change.key} fits {names}", "its name")
        ((digest, key),) = found.items()
        await term.write_document(
            term.store.document_write("keys", {}, [digest]),
            SayEvent("info", f"key {key.name}", "revoked", "streams that run go on to their end"),
        )
        del term.stored_keys[digest]
        await term.publish_access()
        return {"name": key.name, "prefix": key.prefix}

    async def _restart_replica(self, term: Term, change: RestartReplica) -> Answer:
        replica = whole_id(change.replica, term.reconciler.view(term.now()))
        await term.feed(RestartAsked(replica))
        return {"id": replica}

    async def _drain_node(self, term: Term, change: DrainNode) -> Answer:
        nodes = [node.name for node in term.reconciler.view(term.now()).nodes]
        if change.node not in nodes and change.node not in term.drained:
            raise nothing_such("node", change.node, nodes)
        row = json.dumps({"drained": True, "since_ms": term.now_ms(), "schema": 1})
        put, gone = ({change.node: row}, []) if change.drained else ({}, [change.node])
        if change.drained != (change.node in term.drained):
            await term.write_document(term.store.document_write("nodes", put, gone))
            if change.drained:
                term.drained[change.node] = row
            else:
                del term.drained[change.node]
        await term.feed(NodeDrained(change.node, change.drained))
        return {"name": change.node, "drained": change.drained}

    async def _reload(self, term: Term) -> Answer:
        """Reads the file; models declared elsewhere end with it (orchestrator.md, Catalog)."""
        file = self._read_file()
        definitions = term.definitions._replace(file=file, elsewhere=[])
        catalog = definitions.catalog()
        lost = {name for name in catalog.skipped if name not in term.catalog.skipped}
        if lost:
            row = min(lost)
            raise ChangeRefused(
                "cluster.yaml was not reloaded",
                f"the stored model {row} would be bad beside it: {catalog.skipped[row].reason}",
                f"correct the file, or first: llmgw ctl model remove {row}",
            )
        await term.put_in_force(definitions, catalog)
        await term.declare()
        return {
            "digest": file.digest,
            "models": len(file.models),
            "warnings": list(catalog.warnings),
        }


def whole_id(written: str, view: ClusterView) -> str:
    """The replica whose id begins like that; NothingSuch, or ChangeRefused where it is more than one."""
    ids = [replica.id for replica in view.replicas]
    if written in ids:
        return written
    fitting = [one for one in ids if written and one.startswith(written)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ChangeRefused(
            f"{written} is not one replica", f"{len(fitting)} ids begin like that", "the whole id"
        )
    raise nothing_such("replica", written, ids)


def _refuse_missing(name: str, found: list[SourceFound]) -> None:
    for one in found:
        if one.verdict == "missing":
            raise ChangeRefused(
                f"model {name} was not added",
                f"its source {one.source} does not exist: {one.text}",
                "correct source: in the definition",
            )
