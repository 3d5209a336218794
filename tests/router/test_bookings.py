from __future__ import annotations

from tests.router.core_values import endpoint, place


def numbers(of):
    return of.in_flight, of.unanswered, of.uncached


def test_a_booking_is_given_back_once():
    where = place()
    first, second = where.book(100, 0.1, 1.0), where.book(50, 0.1, 2.0)
    assert numbers(where) == (2, 2, 150)
    assert where.last_used == 2.0
    assert first.release() is True
    assert first.release() is False
    assert numbers(where) == (1, 1, 50)
    second.release()
    assert numbers(where) == (0, 0, 0)


def test_the_first_byte_takes_the_tokens_off_and_leaves_the_place():
    where = place()
    booking = where.book(100, 0.1, 1.0)
    booking.answered()
    booking.answered()
    assert numbers(where) == (1, 0, 0)
    booking.release()
    assert numbers(where) == (0, 0, 0)
    booking.answered()
    assert numbers(where) == (0, 0, 0)


def test_a_late_release_touches_its_own_generation_only():
    old, new = place(generation=1), place(generation=2)
    late = old.book(10, 0.1, 1.0)
    new.book(20, 0.1, 1.0)
    late.release()
    assert numbers(new) == (1, 1, 20)


def test_caps():
    assert place(slots=1).cap == 1
    assert place(slots=4).cap == 5
    assert place(slots=8).cap == 10
    unknown = endpoint()
    assert place(slots=4).rate == 2000.0
    assert place(prefill_rate=7.0).rate == 7.0
    assert place(prefill_rate=0.0).rate == 2000.0
    where = place(slots=4)
    where.update(endpoint(slots=8, context=1000))
    assert (where.cap, where.size_limit) == (10, 1100.0)
    assert unknown.slots == 4
