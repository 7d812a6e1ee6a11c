"""Quantiles of the last minutes, from buckets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from regency.runtime.metrics.recent import SLOT_MS, SLOTS, RecentTimes, bucket_of, middle_of

QUANTILES = (0.5, 0.95, 0.99)


@given(st.integers(0, 1 << 50))
def test_a_bucket_stands_for_its_values_within_two_percent(value: int) -> None:
    assert abs(middle_of(bucket_of(value)) - value) <= value * 0.016


@given(st.integers(0, 1 << 50))
def test_buckets_are_in_the_order_of_their_values(value: int) -> None:
    assert bucket_of(value) <= bucket_of(value + 1) <= bucket_of(value) + 1


@given(st.lists(st.integers(0, 10_000_000), min_size=1, max_size=200))
def test_quantiles_are_those_of_the_sorted_values(values: list[int]) -> None:
    timer = RecentTimes()
    for value in values:
        timer.record(value, 1000)
    read = timer.read(1000, QUANTILES)
    assert (read.count, read.sum_ms) == (len(values), sum(values) / 1000)
    ordered = sorted(values)
    for quantile, told in zip(QUANTILES, read.quantiles_ms, strict=True):
        rank = next(n for n in range(1, len(ordered) + 1) if n >= quantile * len(ordered))
        assert abs(told * 1000 - ordered[rank - 1]) <= ordered[rank - 1] * 0.016


def test_what_is_old_is_forgotten_by_quantiles_but_counted() -> None:
    timer = RecentTimes()
    timer.record(8_000_000, 0)
    for minute in range(1, SLOTS):
        timer.record(1_000, minute * SLOT_MS)
    now = SLOTS * SLOT_MS
    assert timer.read(now - 1, (0.99,)).quantiles_ms[0] > 7_000
    timer.record(1_000, now)
    assert timer.read(now, (0.99,)).quantiles_ms[0] < 2
    assert timer.read(now, (0.99,)).count == SLOTS + 1


def test_an_idle_timer_forgets_without_being_written_to() -> None:
    timer = RecentTimes()
    timer.record(5_000, 0)
    assert timer.read(SLOT_MS * (SLOTS - 1), (0.5,)).quantiles_ms[0] > 4
    assert timer.read(SLOT_MS * SLOTS, (0.5,)).quantiles_ms == (0.0,)


def test_a_clock_between_two_processors_never_makes_a_negative_time() -> None:
    timer = RecentTimes()
    timer.record(-3, 0)
    assert (timer.count, timer.sum_us) == (1, 0)
