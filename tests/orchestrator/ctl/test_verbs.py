from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from orchestrator.ctl import waiting
from orchestrator.ctl.__main__ import run
from tests.orchestrator.ctl.a_cluster import EXPLAIN, MODELS, NODES, REPLICAS, STATUS
from tests.orchestrator.ctl.canned_admin_api import AS_OF, CannedAdminApi, canned_admin_api

READY = {"name": "m", "state": "ready", "ready": 1, "wanted": 1, "failures": 0}
LOADING = {"name": "m", "state": "loading", "ready": 0, "wanted": 1, "failures": 0, "note": "40 %"}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[CannedAdminApi]:
    with canned_admin_api() as canned:
        monkeypatch.setenv("LLMGW_URL", canned.url)
        canned.items("nodes", *NODES)
        canned.items("models", *MODELS)
        canned.items("replicas", *REPLICAS)
        canned.answers["GET", "/api/status"] = (200, STATUS)
        yield canned


def test_a_list_as_table_json_yaml_and_names(
    api: CannedAdminApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["models"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].split()[:3] == ["NAME", "STATE", "READY"]
    assert [row.split()[0] for row in rows[1:]] == ["coder-14b", "qwen3-8b", "tiny"]
    for form in (["--json"], ["-o", "json"]):
        assert run(["models", *form]) == 0
        assert json.loads(capsys.readouterr().out) == {"items": MODELS, "as_of": AS_OF}
    assert run(["-o", "yaml", "models"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["items"] == MODELS
    assert run(["models", "-o", "name"]) == 0
    assert capsys.readouterr().out.split() == ["coder-14b", "qwen3-8b", "tiny"]
    assert run(["models", "--no-headers"]) == 0
    assert "NAME" not in capsys.readouterr().out


def test_wide_adds_columns_and_the_description_under_its_row(
    api: CannedAdminApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["models", "-o", "wide"]) == 0
    out = capsys.readouterr().out
    assert "SOURCE" in out
    assert "\n    General chat, good Swedish.\n" in out


def test_an_empty_list_says_what_to_do_on_stderr(
    api: CannedAdminApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.items("nodes")
    assert run(["nodes"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "llmgw agent" in shown.err
    assert run(["nodes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"] == []


def test_replicas_of_one_model_or_node(
    api: CannedAdminApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["replicas", "--model", "qwen3-8b", "-o", "name"]) == 0
    assert capsys.readouterr().out.split() == ["1h8m2k3pq"]
    assert run(["replicas", "--node", "gpu-rack1-n02", "-o", "name"]) == 0
    assert capsys.readouterr().out.split() == ["1h8m2k3pr"]


def test_alone_it_shows_the_status_and_where_help_is(
    api: CannedAdminApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("cluster acme")
    assert "--help" in shown.err


def test_status_check_is_for_scripts(
    api: CannedAdminApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["status", "--check"]) == 1
    api.answers["GET", "/api/status"] = (200, {**STATUS, "problems": []})
    assert run(["status", "--check"]) == 0
    capsys.readouterr()


def test_explain_shows_each_node_and_exits_1_when_it_fits_nowhere(
    api: CannedAdminApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.items("explain/coder-14b", *EXPLAIN, model="coder-14b", state="pending", reason="no room")
    assert run(["explain", "coder-14b"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("model coder-14b is pending: no room\n")
    assert "held by pid 4711" in out
    api.items("explain/m", model="m", state="ready", reason="")
    assert run(["explain", "m"]) == 0


def test_show_of_a_node_with_what_runs_there(
    api: CannedAdminApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers["GET", "/api/nodes/n1"] = (200, {**NODES[0], "on_it": REPLICAS[:1]})
    assert run(["node", "show", "n1"]) == 0
    out = capsys.readouterr().out
    assert "labels      ram=1t, zone=a" in out
    assert "1h8m2k3pq" in out


def test_every_change_is_sent_as_json(api: CannedAdminApi, tmp_path: Path) -> None:
    file = tmp_path / "model.yaml"
    file.write_text("name: m\nprofiles: [{engine: sim}]\n")
    api.answers |= {
        ("POST", "/api/models"): (201, {"name": "m", "replaced": False}),
        ("DELETE", "/api/models/m"): (200, {"name": "m"}),
        ("POST", "/api/models/m/stop"): (200, {"name": "m"}),
        ("POST", "/api/models/org%2Fm/start"): (200, {"name": "org/m"}),
        ("DELETE", "/api/keys/k"): (200, {"name": "k"}),
        ("POST", "/api/nodes/n1/drain"): (200, {"name": "n1"}),
        ("POST", "/api/nodes/n1/undrain"): (200, {"name": "n1"}),
        ("POST", "/api/replicas/1h/restart"): (200, {"id": "1h8"}),
        ("POST", "/api/reload"): (200, {"models": 2, "warnings": []}),
    }
    for words in (
        ["model", "add", str(file), "--replace"],
        ["model", "remove", "m", "-y"],
        ["model", "stop", "m"],
        ["model", "start", "org/m"],
        ["key", "revoke", "k", "-y"],
        ["node", "drain", "n1"],
        ["node", "undrain", "n1"],
        ["replica", "restart", "1h"],
        ["reload"],
    ):
        assert run(words) == 0, words
    assert [asked.content_type for asked in api.asked] == ["application/json"] * 9
    assert api.asked[0].body == {
        "definition": {"name": "m", "profiles": [{"engine": "sim"}]},
        "replace": True,
    }


def test_several_models_of_one_file_are_added_in_turn(api: CannedAdminApi, tmp_path: Path) -> None:
    file = tmp_path / "models.yaml"
    file.write_text("models: [{name: a}, {name: b}]\n")
    api.answers["POST", "/api/models"] = (201, {"name": "x", "replaced": False})
    assert run(["model", "add", str(file)]) == 0
    assert [asked.body["definition"]["name"] for asked in api.asked] == ["a", "b"]


@pytest.mark.parametrize("text", ["", "- a", "name: [", "name: a\nname: b", "just words"])
def test_a_file_that_is_no_model_is_refused_before_anything_is_sent(
    api: CannedAdminApi, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.yaml"
    file.write_text(text)
    assert run(["model", "add", str(file)]) == 1
    assert api.asked == []
    assert capsys.readouterr().err.startswith("error: ")


def test_the_new_key_alone_is_on_stdout(
    api: CannedAdminApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers["POST", "/api/keys"] = (201, {"name": "a", "key": "sk-llmgw-x", "prefix": "sk"})
    assert run(["key", "create", "a", "--model", "m", "--expires", "30d"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "sk-llmgw-x\n"
    assert "this once" in shown.err
    body = {"name": "a", "operator": False, "models": ["m"], "expires": "30d"}
    assert api.asked[0].body == body


@pytest.mark.parametrize("words", [["model", "remove", "m"], ["key", "revoke", "k"]])
def test_what_cannot_be_taken_back_is_not_done_where_nobody_can_be_asked(
    api: CannedAdminApi, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 1
    assert api.asked == []
    assert "-y" in capsys.readouterr().err


def test_a_refusal_is_three_lines_and_exit_1(
    api: CannedAdminApi, capsys: pytest.CaptureFixture[str]
) -> None:
    error = {"code": "refused", "message": "not added", "reason": "needs 24 GB", "remedy": "tp: 2"}
    api.answers["GET", "/api/nodes"] = (409, {"error": error})
    assert run(["nodes"]) == 1
    shown = capsys.readouterr()
    assert shown.err == "error: not added\n  needs 24 GB\n  try: tp: 2\n"
    assert shown.out == ""
    assert run(["nodes", "--json"]) == 1
    found = json.loads(capsys.readouterr().err)["error"]
    assert (found["message"], found["exit"]) == ("not added", 1)


@pytest.mark.parametrize("status", [503, 500])
def test_not_the_leader_and_no_store_are_exit_3(
    api: CannedAdminApi, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    error = {"code": "not_leader", "message": "nothing was changed: orch-1 leads"}
    api.answers["POST", "/api/reload"] = (status, {"error": error})
    assert run(["reload"]) == 3
    assert "nothing was changed" in capsys.readouterr().err


def test_nobody_there_is_exit_3_and_names_the_tunnel(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--url", "http://127.0.0.1:1", "nodes"]) == 3
    err = capsys.readouterr().err
    assert err.startswith(
        "error: cannot reach the control plane at 127.0.0.1:1 (connection refused)"
    )
    assert "ssh -L" in err


def test_something_else_on_the_port_is_exit_3(
    api: CannedAdminApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers["GET", "/api/nodes"] = (200, b"<html>")
    assert run(["nodes"]) == 3
    assert "is not llmgw's admin API" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["evnets"], "did you mean events?"),
        (["model", "sohw", "x"], "did you mean show?"),
        (["nodes", "--bogus"], "llmgw ctl nodes --help"),
        (["explain"], "MODEL"),
        (["nodes", "-o", "xml"], "xml"),
        (["--url", "ftp://x", "nodes"], "http://127.0.0.1:8090"),
        (["wait", "m"], "--ready"),
        (["wait", "m", "--ready", "--timeout", "soon"], "soon"),
        (["events", "--since", "soon"], "soon"),
    ],
)
def test_usage_is_exit_2_with_a_hint(
    api: CannedAdminApi, words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert hint in capsys.readouterr().err


def test_waiting_until_it_is_ready(
    api: CannedAdminApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting, "LOOK", 0.01)
    api.answers["GET", "/api/models/m"] = [(200, LOADING), (200, LOADING), (200, READY)]
    assert run(["wait", "m", "--ready"]) == 0
    assert capsys.readouterr().err.splitlines() == ["m: loading, 40 %", "model m is ready (1/1)"]


def test_a_countdown_is_not_said_at_every_look(
    api: CannedAdminApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting, "LOOK", 0.01)
    failing = {**LOADING, "state": "failing", "reason": "it exited"}
    api.answers["GET", "/api/models/m"] = [
        *((200, {**failing, "note": f"it exited, next try in {left}s"}) for left in (3, 2, 1)),
        (200, READY),
    ]
    assert run(["wait", "m", "--ready"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said == ["m: failing, it exited, next try in 3s", "model m is ready (1/1)"]


def test_a_group_without_a_verb_shows_its_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["model"]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("Usage: llmgw ctl model")
    assert shown.out == ""


@pytest.mark.parametrize(
    "text", ["name: a\ndescription: 2024-01-01", "name: a\nprofiles: [{min_memory_gb: .inf}]"]
)
def test_a_value_that_json_does_not_have_is_refused_before_anything_is_sent(
    api: CannedAdminApi, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.yaml"
    file.write_text(text)
    assert run(["model", "add", str(file)]) == 1
    assert api.asked == []
    said = capsys.readouterr().err.splitlines()
    assert "value that no model has" in said[0]
    assert said[1].startswith("  model a: ")
    assert said[2].startswith("  try: ")


@pytest.mark.parametrize(
    "answer", [{"error": "no"}, {"error": {"message": "x", "type": "y", "code": None}}, {"a": 1}]
)
def test_a_router_on_the_port_is_named_as_what_it_is_not(
    api: CannedAdminApi, answer: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers["GET", "/api/nodes"] = (404, answer)
    assert run(["nodes"]) == 3
    assert "not llmgw's admin API" in capsys.readouterr().err


def test_without_colour_there_are_no_escape_sequences(
    api: CannedAdminApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    api.items("models", {**READY, "state": "idle"})
    assert run(["models"]) == 0
    assert "\x1b[" in capsys.readouterr().out
    assert run(["models", "--no-color"]) == 0
    assert "\x1b[" not in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    assert run(["models"]) == 0
    assert "\x1b[" not in capsys.readouterr().out


def test_events_of_a_model_and_a_node_at_once_are_not_half_answered(api: CannedAdminApi) -> None:
    assert run(["events", "--model", "m", "--node", "n1"]) == 2
    assert api.asked == []


def test_events_since_before_there_was_time(api: CannedAdminApi) -> None:
    api.items("events")
    assert run(["events", "--since", "9999999999h"]) == 0
    assert "after=0-0" in api.asked[0].path


def test_reload_says_that_the_file_was_refused(
    api: CannedAdminApi, capsys: pytest.CaptureFixture[str]
) -> None:
    error = {"code": "refused", "message": "the definition is refused", "reason": "line 2: no"}
    api.answers["POST", "/api/reload"] = (422, {"error": error})
    assert run(["reload"]) == 1
    assert capsys.readouterr().err.startswith("error: cluster.yaml was not reloaded\n  line 2")


def test_explain_says_when_it_is_tried_again(
    api: CannedAdminApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.items("explain/m", model="m", state="failing", reason="r", failures=5, next_try_s=61.0)
    assert run(["explain", "m"]) == 0
    assert "5 failures in a row, next try in 1m" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answers", "code", "words"),
    [
        ([LOADING], 4, "not ready within"),
        (
            [LOADING, {**LOADING, "failures": 1, "last_failure": "out of memory"}],
            5,
            "out of memory",
        ),
        ([{**LOADING, "state": "needs_change", "reason": "8 failures"}], 5, "8 failures"),
        ([{**LOADING, "state": "off", "wanted": 0, "stopped": True}], 1, "model start m"),
    ],
)
def test_waiting_in_vain(
    api: CannedAdminApi,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answers: list[dict[str, object]],
    code: int,
    words: str,
) -> None:
    monkeypatch.setattr(waiting, "LOOK", 0.01)
    api.answers["GET", "/api/models/m"] = [(200, answer) for answer in answers]
    assert run(["wait", "m", "--ready", "--timeout", "300ms"]) == code
    assert words in capsys.readouterr().err


def test_waiting_outlasts_a_control_plane_that_is_away(
    api: CannedAdminApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting, "LOOK", 0.01)
    away = (503, {"error": {"code": "store_away", "message": "Redis is away"}})
    api.answers["GET", "/api/models/m"] = [away, (200, READY)]
    assert run(["wait", "m", "--ready"]) == 0
    assert "Redis is away" in capsys.readouterr().err


def test_events_ask_for_what_is_wanted(
    api: CannedAdminApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.items(
        "events",
        {"id": "1-0", "at": AS_OF, "level": "warning", "subject": "node n1", "what": "silent"},
    )
    assert run(["events", "-n", "5", "--node", "n1", "--since", "10m"]) == 0
    assert "node n1" in capsys.readouterr().out
    query = api.asked[0].path.partition("?")[2]
    assert "limit=5" in query
    assert "subject=n1" in query


def test_the_version_of_both(api: CannedAdminApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers["GET", "/api/version"] = (200, {"version": "9.9"})
    assert run(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["orchestrator"] == "9.9"
    assert run(["--url", "http://127.0.0.1:1", "version"]) == 0


def test_an_interrupt_is_130(
    api: CannedAdminApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    api.items("events")
    assert run(["events", "--follow"]) == 130
    assert "goes on" in capsys.readouterr().err
