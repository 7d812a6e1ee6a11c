"""A rate over sliding windows: what it allows, when, and what the clock may do to it."""

from __future__ import annotations

import pytest

from regency.broker_agent.replication.fetcher.throttle import ByteRate


@pytest.fixture
def rate() -> ByteRate:
    """Over three windows of a second."""
    return ByteRate(3, 1_000)


def test_nothing_counted_is_no_rate(rate) -> None:
    assert rate.falls_to(0, 50) == 50


def test_a_burst_counts_as_if_it_had_taken_a_window(rate) -> None:
    rate.record(100, 0)
    assert rate.falls_to(100, 0) == 0
    assert rate.falls_to(99, 0) == 1_011  # 100 bytes in 1.0101 s


def test_it_falls_as_time_passes(rate) -> None:
    rate.record(100, 0)
    assert rate.falls_to(50, 500) == 2_000
    assert rate.falls_to(50, 1_999) == 2_000
    assert rate.falls_to(50, 2_000) == 2_000
    assert rate.falls_to(50, 2_500) == 2_500


def test_what_is_older_than_all_windows_does_not_count(rate) -> None:
    rate.record(1_000_000, 0)
    assert rate.falls_to(1, 10) == 3_000
    assert rate.falls_to(1, 3_000) == 3_000


def test_windows_are_forgotten_one_after_the_other(rate) -> None:
    rate.record(900, 0)
    rate.record(100, 1_500)
    assert rate.falls_to(100, 1_500) == 3_000  # without the first window: 100 bytes in 1.5 s
    assert rate.falls_to(50, 1_500) == 3_500
    assert rate.falls_to(10, 1_500) == 4_500


def test_a_rate_of_zero_waits_until_all_is_forgotten(rate) -> None:
    rate.record(1, 0)
    rate.record(1, 1_000)
    assert rate.falls_to(0, 1_000) == 4_000
    assert rate.falls_to(0, 4_000) == 4_000


@pytest.mark.parametrize("back_to", [0, 4_999])
def test_a_clock_that_goes_back_makes_it_begin_anew(rate, back_to) -> None:
    rate.record(1_000_000, 5_000)
    assert rate.falls_to(1, back_to) == back_to
    rate.record(10, back_to)
    assert rate.falls_to(10, back_to) == back_to
    assert rate.falls_to(5, back_to) == back_to + 2_000


def test_a_clock_that_jumps_ahead_forgets(rate) -> None:
    rate.record(1_000_000, 0)
    assert rate.falls_to(1, 10**12) == 10**12


@pytest.mark.parametrize("limit", [500, 1_000, 12_345])
def test_whoever_waits_each_time_keeps_the_rate_over_any_length(limit) -> None:
    rate = ByteRate(11, 1_000)
    now, moved = 0, 0
    while now < 60_000:
        rate.record(5_000, now)
        moved += 5_000
        now = rate.falls_to(limit, now)
    assert 0.9 <= moved / (limit * now / 1_000) <= 1.1


def test_a_rate_below_a_burst_in_all_windows_lets_that_much_through() -> None:
    """As in Kafka: what is older than all windows is forgotten, however much it was."""
    rate = ByteRate(11, 1_000)
    rate.record(5_000, 0)
    assert rate.falls_to(1, 0) == 11_000
