"""``ctl status``: at most 25 lines. First whether the control plane is well, then what needs a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.text import Text

from orchestrator.ctl import figures
from orchestrator.ctl.columns import MODELS
from orchestrator.ctl.table import Column, lines

#: Problems that are shown before "+3 more".
PROBLEMS_SHOWN = 5
#: Models that are shown; those that are ready with nothing waiting go into one line when there are more.
MODELS_SHOWN = 8
#: Mark and colour of a problem's tone.
_MARKS = {"red": ("x", "red"), "amber": ("!", "yellow")}
#: States in the order of their need.
_WORST = (
    "refused",
    "needs_change",
    "failing",
    "pending",
    "draining",
    "loading",
    "scaling",
    "ready",
    "external",
    "idle",
    "off",
)


def _clock(as_of: str) -> str:
    try:
        return datetime.fromisoformat(as_of).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return as_of


def head_line(status: Mapping[str, Any]) -> Text:
    """``cluster acme   leader orch-1 (4d)   routers 2   store ok   12:04:31``."""
    leader = status.get("leader")
    parts = [f"cluster {status.get('cluster', '-')}"]
    if leader is None:
        parts.append("leader none")
    else:
        since = leader.get("since_s")
        age = f" ({figures.age(since)})" if since is not None else ""
        parts.append(f"leader {leader['instance']}{age}")
    parts.append(f"routers {status.get('routers', '-')}")
    store = status.get("store", {})
    away = f"away {figures.age(store.get('away_s'))}"
    parts.append(f"store {'ok' if store.get('ok') else away}")
    if "endpoints_version" in status:
        parts.append(f"endpoints v{status['endpoints_version']}")
    if status.get("role") == "standby":
        parts.append(f"seen by standby {status.get('instance')}")
    if "as_of" in status:
        parts.append(_clock(status["as_of"]))
    return Text("   ".join(parts))


def problem_lines(problems: Sequence[Mapping[str, str]], width: int | None) -> list[Text]:
    """What needs a person, each with the verb that explains it."""
    if not problems:
        return [Text("nothing needs attention", style="green")]
    errors = sum(problem.get("tone") == "red" for problem in problems)
    warnings = len(problems) - errors
    counted = [
        f"{count} {word}{'s' if count > 1 else ''}"
        for count, word in ((errors, "problem"), (warnings, "warning"))
        if count
    ]
    out = [Text(f"needs attention: {', '.join(counted)}"), Text()]
    ordered = sorted(problems, key=lambda problem: problem.get("tone") != "red")
    shown = ordered[:PROBLEMS_SHOWN]
    columns = [Column("")] * 5
    rows = [
        [
            _MARKS.get(problem.get("tone", ""), ("!", ""))[0],
            problem.get("subject", ""),
            problem.get("what", ""),
            problem.get("verb", ""),
            problem.get("why", ""),
        ]
        for problem in shown
    ]
    for problem, line in zip(shown, lines(columns, rows, width, heads=False), strict=True):
        line.stylize(_MARKS.get(problem.get("tone", ""), ("!", ""))[1], 0, 1)
        out.append(line)
    if len(ordered) > PROBLEMS_SHOWN:
        out.append(Text(f"+ {len(ordered) - PROBLEMS_SHOWN} more"))
    return out


def totals_lines(status: Mapping[str, Any]) -> list[Text]:
    """Nodes and cards; cores and memory."""
    nodes = status.get("nodes", {})
    counted = "  ".join(f"{count} {state}" for state, count in nodes.items()) or "none"
    if status.get("drained"):
        counted += f"  {status['drained']} drained"
    cards = "  ".join(
        f"{one['type']} {one['held']}/{one['total']}" for one in status.get("cards", [])
    )
    cpu = figures.counts(status.get("cpus_reserved"), status.get("cpus"))
    memory = (
        f"{figures.size(status.get('memory_reserved'))} reserved"
        f" of {figures.size(status.get('memory_total'))}"
    )
    return [
        Text(f"nodes  {counted}      cards  {cards or 'none'}"),
        Text(f"cpu    {cpu} cores reserved      memory  {memory}"),
    ]


def model_lines(models: Sequence[Mapping[str, Any]], width: int | None) -> list[Text]:
    """The models, worst first; what is quiet goes into one line when there are many."""

    def need(model: Mapping[str, Any]) -> tuple[int, int, str]:
        state = str(model.get("state"))
        rank = _WORST.index(state) if state in _WORST else 0
        return (rank, -(model.get("waiting") or 0), str(model.get("name")))

    ordered = sorted(models, key=need)
    shown = ordered[:MODELS_SHOWN]
    columns = [
        column for column in MODELS.columns if not column.wide and column.column.head != "CLASS"
    ]
    rows = [[column.cell(model) for column in columns] for model in shown]
    out = lines([column.column for column in columns], rows, width)
    left = len(ordered) - len(shown)
    if left:
        out.append(Text(f"+ {left} more: models"))
    return out


def status_lines(status: Mapping[str, Any], width: int | None) -> list[Text]:
    """All of it."""
    out = [head_line(status)]
    if status.get("mass_silence"):
        out.append(
            Text("most nodes are silent: nothing is taken for lost, moved or stopped", "red")
        )
    if status.get("settled") is False and status.get("role") == "leader":
        out.append(Text("settling after a take-over: nothing new is placed yet", "cyan"))
    out += problem_lines(status.get("problems", []), width)
    if "nodes" in status:
        out += [Text(), *totals_lines(status)]
    models = status.get("models")
    if models:
        out += [Text(), *model_lines(models, width)]
    elif models is not None:
        out += [Text(), Text(MODELS.empty)]
    return out
