"""Verbs under model, node, replica and key; and reload. Each says what was done in one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from orchestrator.cluster_file import parse_yaml
from orchestrator.ctl import columns, detail_text, waiting
from orchestrator.ctl.errors import Refused
from orchestrator.ctl.frame import Frame, VerbGroup, verb
from orchestrator.ctl.reading_verbs import ctl, show_detail
from orchestrator.errors import CatalogRefused


def done(frame: Frame, answer: dict[str, Any], text: str) -> None:
    """The answer for a program, or a sentence for a person."""
    printer = frame.printer()
    if printer.machine:
        printer.value(answer)
    elif frame.form == "name":
        printer.line(str(answer.get("name", answer.get("id", ""))))
    else:
        frame.say(text)


def sure(what: str, yes: bool) -> None:
    """Asks on a terminal; elsewhere a dangerous verb needs ``-y`` rather than hang."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Refused(f"{what}: not done", "it cannot be taken back and nobody can be asked", "-y")
    if not click.confirm(f"{what}?", err=True):
        raise Refused(f"{what}: not done", "the answer was no")


#: How the admin API begins when it refuses a definition: here it is known whose it was.
_REFUSED = "the definition is refused"

_yes = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


@ctl.group("model", cls=VerbGroup)
def model() -> None:
    """One model: show, add, remove, stop, start."""


@verb(model, "show")
@click.argument("name")
def model_show(frame: Frame, name: str) -> None:
    """Everything about one model."""
    show_detail(frame, detail_text.MODEL, frame.client().get("models", name))


def read_definitions(file: str) -> list[dict[str, Any]]:
    """One definition, or those under ``models:``; YAML or JSON; ``-`` is standard input."""
    name = "standard input" if file == "-" else file
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{name} cannot be read", str(error)) from None
    try:
        whole = parse_yaml(text, name)
    except CatalogRefused as error:
        raise Refused(f"{error.place} is refused", error.reason, error.remedy) from None
    if isinstance(whole, dict) and isinstance(whole.get("models"), list):
        whole = whole["models"]
    found = whole if isinstance(whole, list) else [whole]
    if not found or not all(isinstance(one, dict) for one in found):
        raise Refused(f"{name} holds no model", "a model is a mapping", "write name: and profiles:")
    for one in found:
        try:
            json.dumps(one, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise Refused(
                f"{name} holds a value that no model has",
                f"model {one.get('name', '?')}: {error}",
                "put what looks like a date into quotes; write numbers as digits",
            ) from None
    return found


@verb(model, "add")
@click.argument("file")
@click.option("--replace", is_flag=True, help="Also where one of that name is stored.")
def model_add(frame: Frame, file: str, replace: bool) -> None:
    """Stores the model in FILE (YAML or JSON; - for standard input)."""
    client = frame.client()
    for definition in read_definitions(file):
        name = str(definition.get("name", "?"))
        try:
            answer = client.post("models", body={"definition": definition, "replace": replace})
        except Refused as error:
            if error.what == _REFUSED:
                error.what = f"model {name} was not added"
            raise
        for source in answer.get("sources", []):
            if source.get("verdict") == "unknown":
                frame.say(f"note: {source['source']}: {source['text']}")
        word = "replaced" if answer.get("replaced") else "added"
        done(
            frame, answer, f"model {answer['name']} {word}; see: llmgw ctl explain {answer['name']}"
        )


@verb(model, "remove")
@click.argument("name")
@_yes
def model_remove(frame: Frame, name: str, yes: bool) -> None:
    """Takes a stored model away; its replicas drain and stop."""
    sure(f"remove model {name}", yes)
    done(frame, frame.client().delete("models", name), f"model {name} removed; its replicas drain")


@verb(model, "stop")
@click.argument("name")
def model_stop(frame: Frame, name: str) -> None:
    """Stops every replica of a model until it is started again."""
    answer = frame.client().post("models", name, "stop")
    done(frame, answer, f"model {name} stopped; its replicas drain")


@verb(model, "start")
@click.argument("name")
def model_start(frame: Frame, name: str) -> None:
    """Takes a stop back."""
    answer = frame.client().post("models", name, "start")
    done(frame, answer, f"model {name} started; see: llmgw ctl wait {name} --ready")


@ctl.group("node", cls=VerbGroup)
def node() -> None:
    """One node: show, drain, undrain."""


@verb(node, "show")
@click.argument("name")
def node_show(frame: Frame, name: str) -> None:
    """Everything about one node."""
    show_detail(frame, detail_text.NODE, frame.client().get("nodes", name))


@verb(node, "drain")
@click.argument("name")
def node_drain(frame: Frame, name: str) -> None:
    """Places nothing new there and moves what runs, replacements first."""
    answer = frame.client().post("nodes", name, "drain")
    done(frame, answer, f"node {name} drains; see: llmgw ctl node show {name}")


@verb(node, "undrain")
@click.argument("name")
def node_undrain(frame: Frame, name: str) -> None:
    """Takes a drain back."""
    done(frame, frame.client().post("nodes", name, "undrain"), f"node {name} is in use again")


@ctl.group("replica", cls=VerbGroup)
def replica() -> None:
    """One replica: show, restart."""


@verb(replica, "show")
@click.argument("replica_id", metavar="ID")
def replica_show(frame: Frame, replica_id: str) -> None:
    """Everything about one replica; ID may be the beginning of it."""
    show_detail(frame, detail_text.REPLICA, frame.client().get("replicas", replica_id))


@verb(replica, "restart")
@click.argument("replica_id", metavar="ID")
def replica_restart(frame: Frame, replica_id: str) -> None:
    """Drains a replica and puts a new one in its place."""
    answer = frame.client().post("replicas", replica_id, "restart")
    done(frame, answer, f"replica {answer['id']} drains; a new one follows")


@ctl.group("key", cls=VerbGroup)
def key() -> None:
    """API keys: create, list, revoke."""


@verb(key, "list")
def key_list(frame: Frame) -> None:
    """Every API key, by its first letters."""
    frame.printer().listing(columns.KEYS, frame.client().get("keys"))


@verb(key, "create")
@click.argument("name")
@click.option(
    "--model", "models", multiple=True, help="A name it may use; repeat. None given: all."
)
@click.option("--owner", help="org, org/team or org/team/project.")
@click.option("--expires", help="For example 12h or 30d; not given: never.")
@click.option("--operator", is_flag=True, help="May also see what only operators see.")
def key_create(
    frame: Frame,
    name: str,
    models: tuple[str, ...],
    owner: str | None,
    expires: str | None,
    operator: bool,
) -> None:
    """Makes a key and prints it: this once, it is not kept."""
    body: dict[str, Any] = {"name": name, "operator": operator}
    body |= {"models": list(models)} if models else {}
    body |= {"owner": owner} if owner else {}
    body |= {"expires": expires} if expires else {}
    answer = frame.client().post("keys", body=body)
    printer = frame.printer()
    if printer.machine:
        printer.value(answer)
        return
    printer.line(str(answer["key"]))
    frame.say("shown this once and not kept; use it as: Authorization: Bearer KEY")


@verb(key, "revoke")
@click.argument("name")
@_yes
def key_revoke(frame: Frame, name: str, yes: bool) -> None:
    """Takes a key away, by its name or its first letters. What runs with it goes on to its end."""
    sure(f"revoke key {name}", yes)
    answer = frame.client().delete("keys", name)
    done(frame, answer, f"key {answer['name']} revoked; routers refuse it within seconds")


@verb(ctl, "reload")
def reload(frame: Frame) -> None:
    """Reads cluster.yaml again. A bad file changes nothing."""
    try:
        answer = frame.client().post("reload")
    except Refused as error:
        if error.what == _REFUSED:
            error.what = "cluster.yaml was not reloaded"
        raise
    for warning in answer.get("warnings", []):
        frame.say(f"note: {warning}")
    done(frame, answer, f"cluster.yaml in force: {answer.get('models', '-')} models")


@verb(ctl, "wait")
@click.argument("name", metavar="MODEL")
@click.option(
    "--ready", is_flag=True, help="Until as many replicas as wanted are ready, at least one."
)
@click.option("--timeout", default="10m", show_default=True)
def wait(frame: Frame, name: str, ready: bool, timeout: str) -> None:
    """Waits for a model. Exit 4: not in time; 5: it failed meanwhile."""
    if not ready:
        raise click.UsageError("what to wait for is not said; write: wait MODEL --ready")
    item = waiting.until_ready(frame, name, waiting.seconds(timeout))
    done(frame, item, f"model {item['name']} is ready ({item['ready']}/{item['wanted']})")
