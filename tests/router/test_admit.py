from __future__ import annotations

import pytest

from orchestrator.wire.snapshots import Absence
from router.admit import (
    HOLD_LIMIT_S,
    QUEUE_LENGTH,
    QUEUE_LIMIT_S,
    AllTried,
    Loading,
    NothingServes,
    QueueFull,
    SwitchedOff,
    WaitedTooLong,
    Waits,
    check,
)
from router.bookings import Booking
from tests.router.core_values import Waiter, gate, place


def admitted(at, waiter, now=0.0):
    outcome = at.admit(waiter.want, now)
    assert isinstance(outcome, Booking), outcome
    return outcome


def test_room_is_booked_in_the_same_step():
    where = place(slots=1)
    at = gate(where)
    booking = admitted(at, Waiter())
    assert booking.place is where
    assert where.in_flight == 1
    check([at])


def test_no_room_waits_and_is_served_in_order():
    at = gate(place(slots=1))
    running = admitted(at, Waiter())
    first, second = Waiter(), Waiter()
    assert at.admit(first.want, 0.0) == Waits(held=False)
    assert at.admit(second.want, 0.0) == Waits(held=False)
    running.release()
    at.serve_waiting(1.0)
    assert isinstance(first.got, Booking)
    assert second.got is None
    first.got.release()
    at.serve_waiting(2.0)
    assert isinstance(second.got, Booking)
    assert not at.waiting


def test_a_newcomer_does_not_overtake():
    at = gate(place(slots=1))
    running = admitted(at, Waiter())
    waiting, newcomer = Waiter(), Waiter()
    at.admit(waiting.want, 0.0)
    running.release()
    assert at.admit(newcomer.want, 0.0) == Waits(held=False)
    at.serve_waiting(0.0)
    assert isinstance(waiting.got, Booking)


def test_a_repeated_try_goes_to_the_head():
    ill, other = place("ill", slots=1), place("other", slots=1)
    at = gate(ill, other)
    first = admitted(at, Waiter())
    admitted(at, Waiter())
    behind, again = Waiter(), Waiter()
    at.admit(behind.want, 0.0)
    again.want.tried = (first.place,)
    assert at.admit(again.want, 0.0) == Waits(held=False)
    assert next(iter(at.waiting)) is again.want


def test_one_that_cannot_use_a_place_does_not_block_the_next():
    ill, other = place("ill", slots=1), place("other", slots=1)
    at = gate(ill, other)
    bookings = {(b := admitted(at, Waiter())).place: b for _ in range(2)}
    picky, plain = Waiter(), Waiter()
    picky.want.tried = (ill,)
    at.admit(picky.want, 0.0)
    at.admit(plain.want, 0.0)
    bookings[ill].release()
    at.serve_waiting(0.0)
    assert picky.got is None
    assert plain.got.place is ill


def test_leaving_is_at_once_and_may_be_repeated():
    at = gate(place(slots=1))
    running = admitted(at, Waiter())
    waiters = [Waiter() for _ in range(5)]
    for waiter in waiters:
        at.admit(waiter.want, 0.0)
    for waiter in waiters[:4]:
        at.leave(waiter.want)
        at.leave(waiter.want)
    running.release()
    at.serve_waiting(0.0)
    assert [waiter.got is None for waiter in waiters] == [True] * 4 + [False]


def test_the_queue_is_bounded():
    at = gate(place(slots=1))
    admitted(at, Waiter())
    at.ended(2.0)
    for _ in range(QUEUE_LENGTH):
        assert at.admit(Waiter().want, 0.0) == Waits(held=False)
    outcome = at.admit(Waiter().want, 0.0)
    assert outcome == QueueFull(QUEUE_LENGTH, 2.0 * (QUEUE_LENGTH + 1))


def test_the_deadline_counts_from_arrival():
    at = gate(place(slots=1))
    admitted(at, Waiter())
    early, late = Waiter(arrived=0.0), Waiter(arrived=10.0)
    at.admit(early.want, 0.0)
    at.admit(late.want, 10.0)
    at.sweep(QUEUE_LIMIT_S - 0.1)
    assert early.got is None
    at.sweep(QUEUE_LIMIT_S)
    assert isinstance(early.got, WaitedTooLong)
    assert late.got is None


@pytest.mark.parametrize("kind", ["idle", "loading"])
def test_a_load_is_waited_for_and_then_told(kind):
    at = gate(absence=Absence("m", kind, eta=30.0))
    waiter = Waiter()
    assert at.admit(waiter.want, 0.0) == Waits(held=True)
    assert at.held()
    at.sweep(HOLD_LIMIT_S - 0.1)
    assert waiter.got is None
    at.sweep(HOLD_LIMIT_S)
    assert waiter.got == Loading(HOLD_LIMIT_S, 30.0)
    assert not at.held()


def test_a_held_request_is_served_when_the_model_comes():
    at = gate(absence=Absence("m", "idle"))
    waiter = Waiter()
    at.admit(waiter.want, 0.0)
    at.update(at.served, [place()])
    at.sweep(5.0)
    assert isinstance(waiter.got, Booking)


def test_a_load_that_fails_ends_the_hold():
    at = gate(absence=Absence("m", "loading"))
    waiter = Waiter()
    at.admit(waiter.want, 0.0)
    failed = gate(absence=Absence("m", "failed", "exit 1", next_try=20.0))
    at.update(failed.served, [])
    at.sweep(1.0)
    assert waiter.got == NothingServes("failed", "exit 1", 20.0)


@pytest.mark.parametrize(
    ("absence", "reason"),
    [
        (None, NothingServes("none", "", None)),
        (Absence("m", "off"), SwitchedOff()),
        (Absence("m", "no_room", "needs 24 GB"), NothingServes("no_room", "needs 24 GB", None)),
        (Absence("m", "needs_change"), NothingServes("needs_change", "", None)),
    ],
)
def test_what_is_not_waited_for(absence, reason):
    assert gate(absence=absence).admit(Waiter().want, 0.0) == reason


def test_all_tried():
    where = place()
    waiter = Waiter()
    waiter.want.tried = (where,)
    assert gate(where).admit(waiter.want, 0.0) == AllTried()


def test_size_and_adapter_decide_who_serves():
    small, large = place("small", context=100), place("large", context=1_000, adapters={"ad": 0})
    at = gate(small, large)
    assert admitted(at, Waiter(low=111)).place is large
    assert admitted(at, Waiter(adapter="ad")).place is large
    assert isinstance(at.admit(Waiter(adapter="no").want, 0.0), NothingServes)


def test_a_resting_endpoint_is_passed_over_and_one_request_tries_it():
    ill, well = place("ill", slots=8), place("well", slots=8)
    ill.circuit.failed(0.0, "connect_refused", at_once=True)
    at = gate(ill, well)
    assert {admitted(at, Waiter(block=n), 1.0).place for n in range(4)} == {well}
    for _ in range(2):
        well.book(10_000, 0.0, 0.0)
    assert admitted(at, Waiter(), 5.0).place is ill
    assert admitted(at, Waiter(), 5.0).place is well


def test_when_all_rest_the_least_bad_is_tried():
    first, second = place("first"), place("second")
    first.circuit.failed(0.0, "connect_refused", at_once=True)
    second.circuit.failed(1.0, "connect_refused", at_once=True)
    at = gate(first, second)
    assert admitted(at, Waiter(), 2.0).place is first


def test_an_engine_that_is_out_gets_nothing():
    where = place()
    where.out = True
    assert isinstance(gate(where).admit(Waiter().want, 0.0), NothingServes)


def test_closing_tells_all():
    at = gate(place(slots=1))
    admitted(at, Waiter())
    waiter = Waiter()
    at.admit(waiter.want, 0.0)
    at.close("removed")
    assert waiter.got == NothingServes("removed", "", None)


def test_numbers_for_the_presence():
    at = gate(place(slots=1))
    admitted(at, Waiter())
    at.admit(Waiter(tokens=30, arrived=1.0).want, 1.0)
    at.admit(Waiter(tokens=40, arrived=2.0).want, 2.0)
    assert at.waiting_tokens() == 70
    assert at.oldest_wait(5.0) == 4.0
    assert not at.held()
