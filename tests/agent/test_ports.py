"""Bands of ports."""

from __future__ import annotations

from agent.ports import QUARANTINE, WIDTH, Band, PortTable


def free(_: Band) -> bool:
    return True


def test_bands_do_not_overlap_and_run_out():
    table = PortTable(20_000, 20_039)
    bands = [table.choose(owner, 0.0, free) for owner in range(4)]
    ports = [port for band in bands if band is not None for port in band.ports]
    assert sorted(ports) == list(range(20_000, 20_040))
    assert table.choose(9, 0.0, free) is None


def test_a_released_band_rests():
    table = PortTable(20_000, 20_009)
    band = table.choose(1, 0.0, free)
    table.release(1, 100.0)
    assert table.choose(2, 100.0 + QUARANTINE - 0.1, free) is None
    assert table.choose(2, 100.0 + QUARANTINE, free) == band


def test_a_band_that_is_not_free_on_the_machine_is_passed_over():
    table = PortTable(20_000, 20_029)
    assert table.choose(1, 0.0, lambda band: band.first != 20_000) == Band(20_010)


def test_the_next_choice_goes_on_behind_the_last():
    table = PortTable(20_000, 20_029)
    assert table.choose(1, 0.0, free) == Band(20_000)
    assert table.choose(2, 0.0, free) == Band(20_010)


def test_a_known_band_is_taken_once():
    table = PortTable(20_000, 20_019)
    assert table.take(1, Band(20_000))
    assert table.take(1, Band(20_000))
    assert not table.take(2, Band(20_000))
    assert table.choose(3, 0.0, free) == Band(20_010)


def test_start_spreads_agents():
    assert PortTable(20_000, 20_099, start=3).choose(1, 0.0, free) == Band(20_030)


def test_a_band_names_its_ports():
    band = Band(20_000)
    assert (band.http, band.meeting, len(band.ports)) == (20_000, 20_001, WIDTH)
