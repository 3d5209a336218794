"""What failures do to a model: back-off, its avoid list, the profile that is passed over (R53, FO14).

Carried on the model, not on the replica just destroyed. Times in ms of Redis's clock.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from orchestrator.reconcile.limits import Limits
from orchestrator.reconcile.records import FailureNote, ModelState


def after_failure(
    state: ModelState,
    note: FailureNote,
    failed_fingerprint: str,
    fingerprints: Sequence[str],
    jitter: float,
    limits: Limits,
) -> ModelState:
    """One more charged failure. ``jitter`` is in [-1, 1]. The first restart is at once."""
    failures = state.failures + 1
    if failures >= limits.failures_until_change:
        wait = limits.needs_change_every
    elif failures == 1:
        wait = 0.0
    else:
        wait = min(limits.backoff_first * 2.0 ** (failures - 2), limits.backoff_most)
        wait *= 1 + limits.backoff_jitter * jitter
    since = note.at_ms - int(limits.avoid_after_failures * 1000)
    on_node = [at for at in state.node_failures.get(note.node, []) if at > since]
    return msgspec.structs.replace(
        state,
        failures=failures,
        next_try_ms=note.at_ms + int(wait * 1000),
        first_failure=note if state.first_failure is UNSET else state.first_failure,
        last_failure=note,
        profiles=list(fingerprints),
        profile_failures={
            **state.profile_failures,
            failed_fingerprint: state.profile_failures.get(failed_fingerprint, 0) + 1,
        },
        node_failures={**state.node_failures, note.node: [*on_node, note.at_ms]},
    )


def after_excuse(state: ModelState, node: str, now_ms: int, limits: Limits) -> ModelState:
    """Not the model's fault, but this node is left alone for a while."""
    ends = {name: end for name, end in state.avoided.items() if end > now_ms}
    return msgspec.structs.replace(
        state, avoided={**ends, node: now_ms + int(limits.avoid_after_excuse * 1000)}
    )


def forgiven(state: ModelState) -> ModelState:
    """After serving long enough, or a changed profile: as if it had never failed."""
    return ModelState(stopped=state.stopped, load_seconds=state.load_seconds, avoided=state.avoided)


def edited(state: ModelState, fingerprints: Sequence[str]) -> bool:
    """Whether what failed is not what the catalog says now."""
    return state.failures > 0 and state.profiles != list(fingerprints)


def wait_ms(state: ModelState, now_ms: int) -> int:
    """How long nothing of the model may start; 0 when it may."""
    return max(0, state.next_try_ms - now_ms) if state.failures else 0


def needs_change(state: ModelState, limits: Limits) -> bool:
    """Whether it has failed so often that only a change will help."""
    return state.failures >= limits.failures_until_change


def avoided_now(state: ModelState, now_ms: int) -> dict[str, str]:
    """Nodes that are out for now, with the words."""
    return {
        node: "it did not take a start within the last minute"
        for node, end in state.avoided.items()
        if end > now_ms
    }


def failed_often(state: ModelState, now_ms: int, limits: Limits) -> dict[str, str]:
    """Nodes with repeated failures of this model: taken only where no other one fits."""
    since = now_ms - int(limits.avoid_after_failures * 1000)
    counts = {node: sum(at > since for at in times) for node, times in state.node_failures.items()}
    return {
        node: f"{count} failures in {limits.avoid_after_failures / 60:.0f} min"
        for node, count in counts.items()
        if count >= limits.failures_on_node
    }


def passed_over(state: ModelState, fingerprint: str, now_ms: int, limits: Limits) -> bool:
    """Whether this profile failed so often lately that the next one is tried first."""
    if state.last_failure is UNSET:
        return False
    recent = now_ms - state.last_failure.at_ms < limits.avoid_after_failures * 1000
    return recent and state.profile_failures.get(fingerprint, 0) >= limits.failures_of_profile
