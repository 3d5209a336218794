"""Every metric of the router: name, kind, labels, buckets, and how workers' gauges are put together."""

from __future__ import annotations

from typing import Literal, NamedTuple

#: What every name begins with.
PREFIX = "llmgw_router_"

#: OpenTelemetry's, then on to one hour.
FIRST_TOKEN_BUCKETS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 3600.0,
)  # fmt: skip
DURATION_BUCKETS = (*(0.01 * 2**step for step in range(18)), 3600.0)
PER_TOKEN_BUCKETS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
)  # fmt: skip
TOKEN_BUCKETS = tuple(float(4**step) for step in range(12))
#: Our own share of a request and the loop's lag: from 50 µs on.
LAG_BUCKETS = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 15.0,
)  # fmt: skip

Kind = Literal["counter", "gauge", "histogram"]


class Family(NamedTuple):
    """``labels`` in the order in which their values are given everywhere."""

    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    #: How the gauges of several workers make one.
    merge: Literal["sum", "max"] = "sum"


FAMILIES: dict[str, Family] = {
    "requests": Family(
        "counter", "Requests that ended", ("route", "model", "code", "outcome")
    ),
    "request_duration_seconds": Family(
        "histogram", "From the request's head to its end", ("route", "model"), DURATION_BUCKETS
    ),
    "time_to_first_token_seconds": Family(
        "histogram",
        "From the request's head to the first byte of the answer's body",
        ("model", "stream"),
        FIRST_TOKEN_BUCKETS,
    ),
    "time_per_output_token_seconds": Family(
        "histogram",
        "(duration - time to first token) / (output tokens - 1)",
        ("model",),
        PER_TOKEN_BUCKETS,
    ),
    "queue_duration_seconds": Family(
        "histogram", "Time spent waiting for an endpoint", ("model", "class"), DURATION_BUCKETS
    ),
    "added_latency_seconds": Family(
        "histogram", "Our own share of a request", (), LAG_BUCKETS
    ),
    "input_tokens": Family("counter", "Prompt tokens as the engine counted them", ("model",)),
    "cached_input_tokens": Family("counter", "Prompt tokens the engine had cached", ("model",)),
    "output_tokens": Family("counter", "Tokens generated", ("model",)),
    "request_input_tokens": Family(
        "histogram", "Prompt tokens of a request", ("model",), TOKEN_BUCKETS
    ),
    "request_output_tokens": Family(
        "histogram", "Tokens generated for a request", ("model",), TOKEN_BUCKETS
    ),
    "requests_in_flight": Family("gauge", "Requests at an engine", ("model",)),
    "requests_queued": Family("gauge", "Requests waiting for an endpoint", ("model", "class")),
    "oldest_wait_seconds": Family(
        "gauge", "Age of the oldest waiting request", ("model",), merge="max"
    ),
    "limited": Family("counter", "Requests refused by a limit", ("limit", "scope")),
    "retries": Family("counter", "Requests sent again", ("model", "reason")),
    "fallbacks": Family("counter", "Requests answered by another model", ("model", "to")),
    "broken_streams": Family(
        "counter", "Streams that ended without their terminator", ("model", "reason")
    ),
    "circuit_open": Family("gauge", "1: nothing is sent there", ("endpoint",), merge="max"),
    "prefix_prompt_tokens": Family("counter", "Prompt tokens looked up in the index", ("model",)),
    "prefix_predicted_cached_tokens": Family(
        "counter", "Prompt tokens that the index expected to be cached", ("model",)
    ),
    "limits_local": Family("gauge", "1: limits hold by this process's share only", merge="max"),
    "snapshot_age_seconds": Family("gauge", "Since `versions` was last read", merge="max"),
    "access_age_seconds": Family("gauge", "Since the version of `access` was last read", merge="max"),
    "report_age_seconds": Family(
        "gauge", "Since the last load entry", ("endpoint",), merge="max"
    ),
    "loop_lag_seconds": Family(
        "histogram", "How late a worker's loop ran its timers", (), LAG_BUCKETS
    ),
    "bodies_held_bytes": Family("gauge", "Request bodies in memory"),
    "access_log_lines_dropped": Family("counter", "Access log lines that could not be written"),
}  # fmt: skip
