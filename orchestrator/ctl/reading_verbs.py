"""Verbs that show: status, the lists, show, explain, events, version."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from orchestrator.command_line import own_version
from orchestrator.ctl import columns, detail_text, figures
from orchestrator.ctl.errors import REFUSED, BadUsage, CtlError, Unreachable
from orchestrator.ctl.frame import Frame, VerbGroup, common_options, verb
from orchestrator.ctl.status_text import status_lines
from orchestrator.wire.durations import seconds_of
from orchestrator.wire.errors import BadDuration

#: Seconds between two looks for new events.
FOLLOW_LOOK = 1.0


def show_status(frame: Frame) -> dict[str, Any]:
    """Prints the cluster at a glance and returns it."""
    status = frame.client().get("status")
    printer = frame.printer()
    if printer.machine:
        printer.value(status)
    else:
        for line in status_lines(status, None if frame.form == "wide" else printer.width):
            printer.line(line)
    return status


@click.group(cls=VerbGroup, invoke_without_command=True)
@common_options
@click.pass_context
def ctl(context: click.Context) -> None:
    """Shows and changes a running cluster. Without a verb: status."""
    frame = context.ensure_object(Frame)
    if context.invoked_subcommand is None:
        show_status(frame)
        frame.say("\nllmgw ctl --help lists the verbs")


@verb(ctl, "status")
@click.option("--check", is_flag=True, help="Exit 1 when something needs a person.")
def status(frame: Frame, check: bool) -> None:
    """The cluster at a glance, problems first."""
    shown = show_status(frame)
    if check and shown.get("problems"):
        raise SystemExit(REFUSED)


@verb(ctl, "nodes")
def nodes(frame: Frame) -> None:
    """Every node with its cards, cores and memory."""
    frame.printer().listing(columns.NODES, frame.client().get("nodes"))


@verb(ctl, "models")
def models(frame: Frame) -> None:
    """Every model with its state."""
    frame.printer().listing(columns.MODELS, frame.client().get("models"))


@verb(ctl, "replicas")
@click.option("--model", help="Only those of one model.")
@click.option("--node", help="Only those on one node.")
def replicas(frame: Frame, model: str | None, node: str | None) -> None:
    """Every replica with its node and age."""
    found = frame.client().get("replicas")
    found["items"] = [
        item
        for item in found["items"]
        if model in (None, item.get("model")) and (node is None or node in item.get("nodes", []))
    ]
    frame.printer().listing(columns.REPLICAS, found)


@verb(ctl, "keys")
def keys(frame: Frame) -> None:
    """Every API key, by its first letters."""
    frame.printer().listing(columns.KEYS, frame.client().get("keys"))


def show_detail(frame: Frame, shown: Any, item: dict[str, Any]) -> None:
    """One thing, and the replicas that belong to it."""
    printer = frame.printer()
    if printer.machine:
        printer.value(item)
        return
    if frame.form == "name":
        printer.line(str(item.get("name", item.get("id", ""))))
        return
    for line in detail_text.detail_lines(shown, item):
        printer.line(line)
    if item.get("on_it"):
        printer.line()
        printer.table(columns.REPLICAS, item["on_it"])


@verb(ctl, "explain")
@click.argument("model")
def explain(frame: Frame, model: str) -> None:
    """Why a model is as it is: one line per node, and what each lacks."""
    found = frame.client().get("explain", model)
    printer = frame.printer()
    if printer.machine:
        printer.value(found)
    else:
        reason = f": {found['reason']}" if found.get("reason") else ""
        printer.line(f"model {found['model']} is {found['state']}{reason}")
        if found.get("failures"):
            wait = found.get("next_try_s")
            following = "" if wait is None else f", next try in {figures.age(wait)}"
            printer.line(f"{found['failures']} failures in a row{following}")
        profiles = sorted({item["profile"] for item in found["items"]})
        for profile in profiles:
            printer.line()
            if len(profiles) > 1:
                printer.line(f"profile {profile}")
            rows = [item for item in found["items"] if item["profile"] == profile]
            printer.table(columns.EXPLAIN, rows)
    if found["state"] == "pending":
        raise SystemExit(REFUSED)


def _since(written: str | None) -> str:
    """The event id that begins ``written`` ago."""
    if written is None:
        return ""
    try:
        return f"{int(max(0.0, time.time() - seconds_of(written)) * 1000)}-0"
    except BadDuration as error:
        raise BadUsage(f"--since: {error}") from None


@verb(ctl, "events")
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens.")
@click.option("-n", "--limit", default=50, show_default=True, help="How many at first.")
@click.option("--since", help="Only what is younger, for example 10m.")
@click.option("--model", help="Only what concerns one model.")
@click.option("--node", help="Only what concerns one node.")
def events(
    frame: Frame, follow: bool, limit: int, since: str | None, model: str | None, node: str | None
) -> None:
    """What happened, to whom, why; oldest first."""
    if model and node:
        raise click.UsageError("--model and --node are both given; give one of them")
    client, printer = frame.client(), frame.printer()
    query: dict[str, str | int] = {"limit": limit, "after": _since(since)}
    if model or node:
        query["subject"] = model or node or ""
    found = client.get("events", **query)
    if not follow:
        printer.listing(columns.EVENTS, found)
        return
    heads = printer
    while True:
        items = found["items"]
        if printer.machine:
            for item in items:
                click.echo(json.dumps(item, ensure_ascii=False))
        elif items:
            heads.table(columns.EVENTS, items)
            frame.heads = False
            heads = frame.printer()
        if items:
            query["after"] = items[-1]["id"]
        query["limit"] = 1000
        time.sleep(FOLLOW_LOOK)
        try:
            found = client.get("events", **query)
        except Unreachable as error:
            frame.say(error.lines()[0])
            found = {"items": []}


@verb(ctl, "version")
def version(frame: Frame) -> None:
    """The version of this program and of the orchestrator that answers."""
    shown = {"ctl": own_version()}
    try:
        shown["orchestrator"] = str(frame.client().get("version").get("version"))
    except CtlError as error:
        frame.say(error.lines()[0])
    printer = frame.printer()
    if printer.machine:
        printer.value(shown)
        return
    for name, text in shown.items():
        printer.line(f"{name:<12}  {text}")
