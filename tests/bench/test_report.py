"""Targets and the result file."""

from __future__ import annotations

import msgspec
import pytest

from bench.__main__ import main
from bench.errors import MissingTool
from bench.report import Result, Target, Verdict, any_missed, percent, write_result


def target(figure):
    return Target("CPU per request against peer", figure, 60.0, "%")


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (59.9, Verdict.MET),
        (60.0, Verdict.MET),
        (60.1, Verdict.MISSED),
        (0.0, Verdict.MET),
        (None, Verdict.UNMEASURED),
    ],
)
def test_verdict(figure, verdict):
    assert target(figure).verdict is verdict


def test_lines_name_figure_target_and_verdict():
    assert target(47.26).line() == "CPU per request against peer: 47.3 %, target <= 60 %: met"
    assert target(None).line() == "CPU per request against peer: -, target <= 60 %: unmeasured"


def test_only_a_missed_target_is_a_miss():
    assert any_missed([target(1.0), target(61.0)])
    assert not any_missed([target(1.0), target(None)])


def test_percent_of_unmeasured_is_unmeasured():
    assert percent(30.0, 120.0) == 25.0
    assert percent(None, 120.0) is None
    assert percent(30.0, None) is None


def test_result_file(tmp_path):
    result = Result(
        bench="example",
        question="How much?",
        versions={"peer": "1.0"},
        settings={"rounds": 1},
        rounds=[{"us": 3}],
        figures={"peer": {"us": 3.0}},
        targets=[target(61.0), target(None)],
    )
    path = write_result(result, tmp_path / "results")
    content = msgspec.json.decode(path.read_bytes())
    assert path.name == "example.json"
    assert [one["verdict"] for one in content["targets"]] == ["missed", "unmeasured"]
    assert content["rounds"] == [{"us": 3}]
    assert content["versions"] == {"peer": "1.0"}
    assert content["machine"]["cores"] >= 1
    assert content["date"].endswith("+00:00")


def broken():
    raise MissingTool("wrk is not on PATH")


@pytest.mark.parametrize(
    ("benches", "code", "said"),
    [
        ({"a": lambda: [target(1.0)]}, 0, "met"),
        ({"a": lambda: [target(99.0)], "b": lambda: [target(1.0)]}, 1, "missed"),
        ({"a": broken, "b": lambda: [target(1.0)]}, 2, "a: not measured: wrk is not on PATH"),
    ],
)
def test_all_benches_run_and_the_exit_code_tells(benches, code, said, capsys):
    assert main([], benches) == code
    lines = capsys.readouterr().out.partition("== targets")[2]
    assert said in lines
    assert lines.count("target <=") == sum(1 for one in benches.values() if one is not broken)


def test_unknown_bench_is_named(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["speed"], {"a": list})
    assert ended.value.code == 2
    assert "no bench 'speed'; there are: a" in capsys.readouterr().err
