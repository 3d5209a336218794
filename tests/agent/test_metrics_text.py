"""Numbers from an engine's metrics page."""

from __future__ import annotations

import pytest

from agent.engines.adapters import ADAPTERS, metric_keys
from agent.metrics_text import first_of, totals
from agent.scrape import Numbers, numbers_in
from orchestrator.wire.want import MetricNames
from tests.agent.shards import shard

LLAMA = """\
# HELP llamacpp:requests_processing Number of requests processing
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 2
llamacpp:requests_deferred 1
llamacpp:prompt_tokens_total 120
llamacpp:tokens_predicted_total 34
"""
VLLM = """\
vllm:num_requests_running{engine="0",model_name="a b{c}"} 3.0
vllm:num_requests_running{engine="1",model_name="a"} 4.0
vllm:num_requests_waiting{engine="0"} 0.0 1700000000000
vllm:gpu_cache_usage_perc{engine="0"} 0.25
vllm:prompt_tokens_total{engine="0"} 1.5e+06
"""


def test_llama_cpp_has_no_cache_use_and_it_stays_unknown():
    assert numbers_in(LLAMA, ADAPTERS["llama.cpp"].metrics) == Numbers(2, 1, None, 120, 34)


def test_vllms_names_with_labels_are_summed_and_old_names_found():
    keys = ADAPTERS["sim"].metrics._replace(
        cache_use="vllm:kv_cache_usage_perc|vllm:gpu_cache_usage_perc"
    )
    assert numbers_in(VLLM, keys) == Numbers(7, 0, 0.25, 1_500_000, None)


@pytest.mark.parametrize("text", ["", "nonsense", "a{b", "a NaN", "a x", "# a 3", "a{b} "])
def test_what_cannot_be_read_is_unknown(text: str):
    assert totals(text, frozenset({"a"})) == {}


def test_the_first_name_that_is_there_wins():
    assert first_of({"b": 1.0, "c": 2.0}, "a|b|c") == 1.0
    assert first_of({"b": 1.0}, "a") is None
    assert first_of({"b": 1.0}, None) is None


def test_no_mapping_means_the_adapters_names():
    assert metric_keys(shard()) == ADAPTERS["sim"].metrics
    assert metric_keys(shard(metrics=MetricNames())) == ADAPTERS["sim"].metrics


def test_a_mapping_with_its_own_running_metric_is_complete():
    keys = metric_keys(shard(metrics=MetricNames(running="x:running")))
    assert (keys.running, keys.waiting, keys.cache_use) == ("x:running", None, None)


def test_a_mapping_without_running_is_filled():
    keys = metric_keys(shard(metrics=MetricNames(waiting="x:waiting")))
    assert (keys.running, keys.waiting) == ("vllm:num_requests_running", "x:waiting")
