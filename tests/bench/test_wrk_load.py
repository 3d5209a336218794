"""wrk's summary: read right, and refused when it would lie."""

from __future__ import annotations

import pytest

from bench import wrk_load
from bench.errors import LoadFailed, MissingTool

OUTPUT = """Running 4s test @ http://127.0.0.1:8000/v1/chat/completions
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     3.26ms    1.00ms  20.00ms   90.00%
summary {"requests":36000,"duration_us":4000000,"p50_us":3262,"p99_us":6613,"connect_errors":0,\
"read_errors":0,"write_errors":0,"status_errors":0,"timeouts":0}
"""


def test_summary_is_read():
    summary = wrk_load.parse_output(OUTPUT)
    assert (summary.requests, summary.p50_us, summary.p99_us) == (36000, 3262, 6613)
    assert summary.requests_per_s == 9000.0
    assert wrk_load.checked(summary, "u") is summary


def test_output_without_summary_is_refused():
    with pytest.raises(LoadFailed, match="unable to connect"):
        wrk_load.parse_output("unable to connect to 127.0.0.1:1 Connection refused\n")


@pytest.mark.parametrize(
    "kind", ["connect_errors", "read_errors", "write_errors", "status_errors", "timeouts"]
)
def test_any_failed_request_spoils_the_run(kind):
    summary = wrk_load.parse_output(OUTPUT.replace(f'"{kind}":0', f'"{kind}":3'))
    with pytest.raises(LoadFailed, match="3 requests to the-url failed"):
        wrk_load.checked(summary, "the-url")


def test_no_answer_at_all_spoils_the_run():
    summary = wrk_load.parse_output(OUTPUT.replace("36000", "0"))
    with pytest.raises(LoadFailed, match="no request"):
        wrk_load.checked(summary, "u")


def test_missing_wrk_names_the_package(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingTool, match="apt-get install wrk"):
        wrk_load.find_wrk()
