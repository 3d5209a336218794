"""Our own probes are no use of an engine; and Redis's absence is said once."""

from __future__ import annotations

import logging

import pytest

from agent.reach import FIRST_PAUSE, LONGEST_PAUSE, Reach
from agent.scrape import Numbers
from agent.shard_row import ShardRow, UseSinceBeat
from agent.shard_states import Event
from agent.want_state import Here
from tests.agent.shards import shard


def numbers(running: int | None, generated: int | None, waiting: int | None = 0) -> Numbers:
    return Numbers(running=running, waiting=waiting, generated_tokens=generated)


def test_an_idle_engine_is_not_busy():
    use = UseSinceBeat()
    use.see(numbers(0, 10))
    use.see(numbers(0, 10))
    assert not use.take_busy()


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (numbers(0, 10), numbers(1, 10)),
        (numbers(0, 10), numbers(0, 11)),
        (numbers(None, None), numbers(0, None, waiting=2)),
    ],
)
def test_running_waiting_or_tokens_are_use_once(first: Numbers, then: Numbers):
    use = UseSinceBeat()
    use.see(first)
    assert not use.take_busy()
    use.see(then)
    assert use.take_busy()
    assert not use.take_busy()


def test_our_probe_is_no_use_however_its_token_shows():
    use = UseSinceBeat()
    use.see(numbers(0, 10))
    for generated in (10, 11):  # before and after the token is counted
        use.probes_begun, use.probing = 1, True
        use.see(numbers(1, generated))
        assert use.running == 0
    use.probing = False
    use.see(numbers(0, 11))
    assert not use.take_busy()


def test_anothers_request_beside_our_probe_is_use():
    use = UseSinceBeat()
    use.see(numbers(0, 10))
    use.probes_begun, use.probing = 1, True
    use.see(numbers(2, 10))
    assert use.running == 1
    assert use.take_busy()


def test_unknown_is_unknown():
    use = UseSinceBeat()
    use.see(Numbers())
    assert use.running is None
    assert not use.take_busy()


def test_a_row_reports_what_runs_only_while_it_runs():
    row = ShardRow(shard(), 0.0)
    assert row.here is Here.PREPARING
    assert row.load(0.0) is None
    assert row.take_use() is None
    row.fail("x", "first", 1)
    row.fail("x", "second", 2)
    row.move(Event.FAILED, 5.0, "x", "second")
    report = row.report(7.0, unlisted=True)
    assert (report.state, report.age, report.reason) == ("ended", 2.0, "x")
    assert report.first_failure != report.last_failure


def test_one_line_per_change_and_a_growing_pause(caplog: pytest.LogCaptureFixture):
    reach = Reach()
    with caplog.at_level(logging.INFO, "agent"):
        pauses = [reach.down(OSError("refused")) for _ in range(8)]
        reach.up()
        reach.up()
        assert reach.down(OSError("refused")) == FIRST_PAUSE
    assert pauses[0] == FIRST_PAUSE
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE
    assert [r.levelname for r in caplog.records] == ["WARNING", "INFO", "WARNING"]
