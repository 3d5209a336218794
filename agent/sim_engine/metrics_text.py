"""The engine's counters as Prometheus text, under the names that vLLM uses."""

from __future__ import annotations

from agent.sim_engine.model import EngineModel, S

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

#: The reasons that are shown from the start; vLLM's, and "tool_calls" counts as its "stop".
_REASONS = ("stop", "length", "abort")


def metrics_text(model: EngineModel[S], name: str) -> bytes:
    totals = model.totals
    label = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    labels = f'engine="0",model_name="{label}"'
    rows = (
        ("num_requests_running", "gauge", "Requests that hold a slot.", model.running),
        ("num_requests_waiting", "gauge", "Requests that wait for a slot.", model.waiting),
        (
            "kv_cache_usage_perc",
            "gauge",
            "Share of the KV cache in use, 0 to 1.",
            model.cache_usage,
        ),
        ("prompt_tokens_total", "counter", "Prompt tokens taken in.", totals.prompt_tokens),
        ("generation_tokens_total", "counter", "Tokens produced.", totals.generation_tokens),
        (
            "prefix_cache_queries_total",
            "counter",
            "Prompt tokens looked up in the prefix cache.",
            totals.cache_queries,
        ),
        (
            "prefix_cache_hits_total",
            "counter",
            "Prompt tokens found in the prefix cache.",
            totals.cache_hits,
        ),
    )
    lines = []
    for metric, kind, text, value in rows:
        lines.append(f"# HELP vllm:{metric} {text}")
        lines.append(f"# TYPE vllm:{metric} {kind}")
        lines.append(f"vllm:{metric}{{{labels}}} {float(value)}")
    counts = dict.fromkeys(_REASONS, 0)
    for reason, count in totals.finished.items():
        counts["stop" if reason == "tool_calls" else reason] += count
    lines.append("# HELP vllm:request_success_total Requests that ended, by reason.")
    lines.append("# TYPE vllm:request_success_total counter")
    for reason, count in counts.items():
        with_reason = f'{labels},finished_reason="{reason}"'
        lines.append(f"vllm:request_success_total{{{with_reason}}} {float(count)}")
    return ("\n".join(lines) + "\n").encode()
