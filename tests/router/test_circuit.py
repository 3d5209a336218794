from __future__ import annotations

import pytest

from router.circuit import Circuit, CircuitState


def opened(now=0.0):
    circuit = Circuit()
    circuit.failed(now, "connect_refused", at_once=True)
    return circuit


def test_a_refused_connection_opens_at_once():
    circuit = opened(10.0)
    assert circuit.state is CircuitState.OPEN
    assert not circuit.lets_through(14.9)
    assert circuit.lets_through(15.0)
    assert (circuit.since, circuit.error) == (10.0, "connect_refused")


def test_five_failures_in_a_row():
    circuit = Circuit()
    for _ in range(4):
        circuit.failed(0.0, "reset")
    circuit.succeeded(0.0)
    for _ in range(4):
        circuit.failed(0.0, "reset")
    assert circuit.state is CircuitState.CLOSED
    circuit.failed(0.0, "reset")
    assert circuit.state is CircuitState.OPEN


@pytest.mark.parametrize(("seconds", "opens"), [(1.0, True), (2.0, False)])
def test_half_of_twenty_within_thirty_seconds(seconds, opens):
    circuit = Circuit()
    for number in range(20):
        if number % 2:
            circuit.failed(number * seconds, "reset")
        else:
            circuit.succeeded(number * seconds)
    assert (circuit.state is CircuitState.OPEN) is opens


def test_one_request_tries_and_closes_it():
    circuit = opened()
    circuit.sent(5.0)
    assert circuit.state is CircuitState.HALF_OPEN
    assert not circuit.lets_through(100.0)
    circuit.succeeded(6.0)
    assert circuit.state is CircuitState.CLOSED
    assert circuit.lets_through(6.0)


def test_it_rests_twice_as_long_each_time_up_to_a_minute():
    circuit = opened()
    now, rests = 0.0, []
    for _ in range(6):
        rests.append(circuit.until - now)
        now = circuit.until
        circuit.sent(now)
        circuit.failed(now, "connect_refused", at_once=True)
    assert rests == [5, 10, 20, 40, 60, 60]
    assert circuit.since == 0.0
    circuit.sent(circuit.until)
    circuit.succeeded(circuit.until)
    circuit.failed(1000.0, "connect_refused", at_once=True)
    assert circuit.until == 1005.0


def test_a_trial_without_word_may_be_repeated_at_once():
    circuit = opened()
    circuit.sent(5.0)
    circuit.undecided()
    assert circuit.lets_through(5.0)


def test_failures_of_requests_sent_earlier_do_not_prolong_it():
    circuit = opened()
    circuit.failed(4.0, "reset")
    assert circuit.until == 5.0


def test_sent_before_its_time_is_no_trial():
    circuit = opened()
    circuit.sent(1.0)
    assert circuit.state is CircuitState.OPEN
