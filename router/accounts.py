"""The end of a request, written down exactly once: metrics and the access log."""

from __future__ import annotations

import time
from bisect import bisect_left

from orchestrator.wire.presence import Totals
from router.access_log import AccessLine, AccessLog
from router.call import Call
from router.metric_families import FIRST_TOKEN_BUCKETS
from router.metrics import Metrics


class _Total:
    """Requests, failed, refused, tokens in, cached, out; and the buckets of the first token."""

    __slots__ = ("first_token", "numbers")

    def __init__(self) -> None:
        self.numbers = [0] * 6
        self.first_token = [0] * (len(FIRST_TOKEN_BUCKETS) + 1)


class Accounts:
    """What is counted and logged of every request."""

    def __init__(self, metrics: Metrics, log: AccessLog) -> None:
        self._metrics = metrics
        self._log = log
        self._logs = log.path is not None
        self._totals: dict[str, _Total] = {}

    def settle(self, call: Call, now: float) -> None:
        """The request has ended, however it did. ``now`` is loop time."""
        exchange = call.exchange
        began = exchange.began
        label = call.route.label
        prompt, completion, cached = call.tokens or (None, None, None)
        seconds = now - began
        first = None if call.first_byte is None else call.first_byte - began
        per_token = None
        if call.stream and first is not None and completion is not None and completion > 1:
            per_token = max(seconds - first, 0.0) / (completion - 1)
        self._metrics.request_ended(
            label,
            call.model,
            call.status,
            call.outcome,
            seconds,
            stream=call.stream,
            first_token=first,
            per_token=per_token,
            tokens_in=prompt,
            cached=cached,
            tokens_out=completion,
        )
        if call.served_model is not None:
            self._add(call.served_model, call, first)
        if call.queued is not None and call.model is not None:
            self._metrics.observe(
                "queue_duration_seconds",
                self._metrics.model_label(call.model),
                "standard",
                value=call.queued,
            )
        if self._logs:
            self._log.add(
                AccessLine(
                    time=time.time(),
                    id=call.request_id,
                    client=exchange.client,
                    method=exchange.method,
                    route=label,
                    status=call.status,
                    outcome=call.outcome,
                    seconds=seconds,
                    model=self._shown_model(call.model),
                    served_by=call.served_by,
                    endpoint=call.endpoint,
                    key=call.key_id,
                    stream=call.stream,
                    queued=call.queued,
                    first_token=first,
                    tokens_in=prompt,
                    cached=cached,
                    tokens_out=completion,
                    body=call.body_size,
                    sent=exchange.sent,
                    tries=call.tries or None,
                    reason=call.reason,
                )
            )

    def totals(self) -> dict[str, Totals]:
        """Per model since the start, for the presence."""
        return {
            model: Totals(
                requests=total.numbers[0],
                failed=total.numbers[1],
                refused=total.numbers[2],
                tokens_in=total.numbers[3],
                tokens_cached=total.numbers[4],
                tokens_out=total.numbers[5],
                first_token_buckets=list(total.first_token),
            )
            for model, total in self._totals.items()
        }

    def _add(self, model: str, call: Call, first: float | None) -> None:
        total = self._totals.get(model)
        if total is None:
            total = self._totals[model] = _Total()
        numbers = total.numbers
        numbers[0] += 1
        if call.outcome in ("failed", "broken"):
            numbers[1] += 1
        elif call.outcome == "refused":
            numbers[2] += 1
        if call.tokens is not None:
            prompt, completion, cached = call.tokens
            numbers[3] += prompt or 0
            numbers[4] += cached or 0
            numbers[5] += completion or 0
        if first is not None:
            total.first_token[bisect_left(FIRST_TOKEN_BUCKETS, first)] += 1

    def _shown_model(self, model: str | None) -> str | None:
        # What nobody configured is a client's free text: it is not written down.
        return model if model is not None and self._metrics.model_label(model) == model else None
