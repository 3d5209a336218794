"""Counting in a worker, and adding up by the page."""

from __future__ import annotations

import os
import time

import pytest
from aiohttp.test_utils import TestClient, TestServer

from router.metric_families import FAMILIES
from router.metrics import Histogram, Metrics, decode_worker_file, encode_worker_file
from router.metrics import write_worker_file as write
from router.metrics_page import (
    WorkerFiles,
    Written,
    build_page,
    exposition,
    is_loopback,
    why_not_ready,
    worker_states,
)
from router.orders import PageOrder


def samples(*written: Written) -> dict[str, float]:
    lines = exposition(written).decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def counted(*, fresh: bool = True, draining: bool = False, not_ready: str | None = None) -> Written:
    metrics = Metrics("w", 0, 1)
    metrics.set_models(["greek"])
    metrics.draining = draining
    metrics.not_ready = not_ready
    metrics.request_ended(
        "/v1/chat/completions", "greek", 200, "ok", 0.02,
        stream=True, first_token=0.005, per_token=0.002, tokens_in=4, cached=1, tokens_out=5,
    )  # fmt: skip
    metrics.gauge("requests_in_flight", ("greek",), 2)
    metrics.gauge("oldest_wait_seconds", ("greek",), 3)
    return Written(decode_worker_file(encode_worker_file(metrics.snapshot())), fresh)


def test_a_bound_belongs_to_its_bucket():
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.1):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.total == pytest.approx(7.1)


def test_buckets_reach_one_hour_and_rise():
    for family in FAMILIES.values():
        assert list(family.buckets) == sorted(set(family.buckets))
        assert bool(family.buckets) == (family.kind == "histogram")
    assert FAMILIES["request_duration_seconds"].buckets[-2:] == (1310.72, 3600.0)
    assert FAMILIES["time_to_first_token_seconds"].buckets[-1] == 3600
    assert FAMILIES["request_input_tokens"].buckets[-1] == 4_194_304


def test_one_request_in_every_family():
    found = samples(counted())
    chat = 'model="greek",route="/v1/chat/completions"'
    ended = f'requests_total{{code="2xx",model="greek",outcome="ok",{chat.partition(",")[2]}}}'
    want = {
        ended: 1,
        f'request_duration_seconds_bucket{{le="0.02",{chat}}}': 1,
        f'request_duration_seconds_bucket{{le="0.01",{chat}}}': 0,
        'time_to_first_token_seconds_bucket{le="0.005",model="greek",stream="true"}': 1,
        'time_per_output_token_seconds_count{model="greek"}': 1,
        'input_tokens_total{model="greek"}': 4,
        'cached_input_tokens_total{model="greek"}': 1,
        'output_tokens_total{model="greek"}': 5,
        'request_input_tokens_bucket{le="4.0",model="greek"}': 1,
        'request_output_tokens_bucket{le="4.0",model="greek"}': 0,
    }
    assert {name: found.get(f"llmgw_router_{name}") for name in want} == want


def test_unknown_stays_unknown():
    metrics = Metrics()
    metrics.request_ended("/v1/embeddings", None, 404, "refused", 0.001)
    found = samples(Written(metrics.snapshot(), True))
    assert not any("first_token" in name or "request_input_tokens" in name for name in found)
    assert found['llmgw_router_output_tokens_total{model="unknown"}'] == 0


@pytest.mark.parametrize(
    ("code", "label"), [(200, "2xx"), (404, "4xx"), (429, "429"), (499, "4xx"), (503, "5xx")]
)
def test_code_classes(code, label):
    metrics = Metrics()
    metrics.request_ended("/r", "m", code, "refused", 0.1)
    (row,) = [row for row in metrics.snapshot().counters if row.name == "requests"]
    assert row.labels == ("/r", "unknown", label, "refused")


def test_names_that_nobody_configured_are_one_label_and_one_row():
    metrics = Metrics()
    metrics.set_models(["greek"])
    for number in range(1000):
        metrics.request_ended("/r", f"free text {number}", 404, "refused", 0.1)
    (row,) = [row for row in metrics.snapshot().counters if row.name == "requests"]
    assert row.value == 1000
    assert len(metrics._rows) == 1


def test_a_model_that_is_configured_later_gets_its_label():
    metrics = Metrics()
    metrics.request_ended("/r", "new", 404, "refused", 0.1)
    metrics.set_models(["new"])
    metrics.request_ended("/r", "new", 200, "ok", 0.1)
    labels = {row.labels[1] for row in metrics.snapshot().counters if row.name == "requests"}
    assert labels == {"unknown", "new"}


def test_gauges_go_and_labels_must_fit():
    metrics = Metrics()
    metrics.gauge("circuit_open", ("e1",), 1)
    metrics.gauge("circuit_open", ("e1",), None)
    assert metrics.snapshot().gauges == []
    with pytest.raises(ValueError, match="circuit_open is a gauge"):
        metrics.gauge("circuit_open", (), 1)
    with pytest.raises(ValueError, match="retries is a counter"):
        metrics.observe("retries", "greek", "reset", value=1)
    with pytest.raises(KeyError):
        metrics.count("no_such_metric")


def test_refreshers_run_before_each_writing():
    metrics = Metrics()
    metrics.refresh_with(lambda: metrics.gauge("limits_local", (), 1))
    assert [row.value for row in metrics.snapshot().gauges] == [1]


def test_sums_of_workers_and_gauges_of_the_living_alone():
    found = samples(counted(), counted(), counted(fresh=False))
    assert found['llmgw_router_output_tokens_total{model="greek"}'] == 15
    assert found['llmgw_router_time_per_output_token_seconds_count{model="greek"}'] == 3
    assert found['llmgw_router_requests_in_flight{model="greek"}'] == 4
    assert found['llmgw_router_oldest_wait_seconds{model="greek"}'] == 3


def test_readiness_of_all_workers():
    waits = counted(not_ready="no snapshot yet")
    assert why_not_ready([waits, counted()]) is None
    assert why_not_ready([waits, counted(fresh=False)]) == "worker 0: no snapshot yet"
    assert why_not_ready([counted(draining=True)]) == "worker 0: draining"
    assert why_not_ready([]) == "no worker is running"
    states = worker_states([waits, counted(), counted(draining=True), counted(fresh=False)])
    assert states == {"ready": 1, "not_ready": 1, "draining": 1}


def test_files_are_read_again_when_they_change(tmp_path):
    files = WorkerFiles(str(tmp_path))
    write(str(tmp_path), 0, 7, encode_worker_file(Metrics("old", 0, 7).snapshot()))
    (tmp_path / "1-8.new").write_bytes(b"half of a fi")
    assert [each.file.worker for each in files.read(time.time())] == ["old"]
    write(str(tmp_path), 0, 7, encode_worker_file(Metrics("new", 0, 7).snapshot()))
    os.utime(tmp_path / "0-7", (1000, 1000))
    assert [(each.file.worker, each.fresh) for each in files.read(1004)] == [("new", True)]
    assert not files.read(1006)[0].fresh


@pytest.mark.parametrize(
    ("host", "inside"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("gw", False)],
)
def test_loopback(host, inside):
    assert is_loopback(host) is inside


@pytest.mark.parametrize(("host", "status"), [("127.0.0.1", 421), ("0.0.0.0", 200)])
async def test_the_guard_stands_on_loopback(tmp_path, host, status):
    page = build_page(PageOrder(str(tmp_path), 0, host))
    async with TestClient(TestServer(page)) as client:
        answer = await client.get("/metrics", headers={"Host": "gateway.example:9108"})
        assert answer.status == status
        answer = await client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=")
        assert 'llmgw_router_workers{state="ready"} 0.0' in await answer.text()
