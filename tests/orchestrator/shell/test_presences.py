from __future__ import annotations

from orchestrator.presences import KnownRouters
from orchestrator.wire.presence import Presence, Version

AFTER = 15.0


def worker(name: str, epoch: int = 0) -> Presence:
    versions = {"endpoints": Version(epoch, 1)} if epoch else {}
    return Presence(name, "host", versions, False, [], [], {}, [], {}, "0")


def test_the_set_is_unknown_for_15_s_after_a_take_over() -> None:
    routers = KnownRouters(100.0, AFTER)
    assert not routers.seen([worker("a")], 0, 114.9).known
    assert routers.seen([worker("a")], 0, 115.0).known


def test_a_failed_read_makes_it_unknown_for_15_s() -> None:
    routers = KnownRouters(0.0, AFTER)
    routers.read_failed(50.0)
    assert not routers.seen([], 0, 64.0).known
    assert routers.seen([], 0, 65.0).known


def test_a_live_worker_that_cannot_be_read_makes_it_unknown_for_this_look() -> None:
    routers = KnownRouters(0.0, AFTER)
    assert not routers.seen([worker("a")], 1, 50.0).known
    assert routers.seen([worker("a")], 0, 50.5).known


def test_the_highest_epoch_that_a_worker_obeys() -> None:
    seen = KnownRouters(0.0, AFTER).seen([worker("a", 5), worker("b", 7), worker("c")], 0, 1.0)
    assert seen.highest_epoch == 7
    assert KnownRouters(0.0, AFTER).seen([], 0, 1.0).highest_epoch == 0
