"""Which words are a delay of a watermark: those that Spark takes, and says with a number and a unit."""

from __future__ import annotations

import pytest

from regency.pipeline.jobs.flights.delays import why_no_delay


@pytest.mark.parametrize(
    "said",
    [
        "2 days",
        "0 seconds",
        "1 day 12 hours",
        " 40  DAYS ",
        "interval 1 week",
        "1.5 seconds",
        "1 year 2 months",
        "280000 years",
        "7 milliseconds 1 microsecond 3 minutes",
    ],
)
def test_numbers_with_units_are_a_delay(said: str) -> None:
    assert why_no_delay(said) is None


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("2 moons", "it is no number with a unit of microsecond, millisecond, second, minute, hour, day, week"),
        ("", "it is no number with a unit"),
        ("2", "it is no number with a unit"),
        ("days", "it is no number with a unit"),
        ("2 days or so", "it is no number with a unit"),
        ("٢ days", "it is no number with a unit"),
        ("-2 days", "it is negative"),
        ("3 days - 1 hours", "it is negative"),
        ("1.5 days", "1.5 day has a fraction, which only seconds may have"),
        ("300000 years", "it is more than 280,000 years"),
    ],
)
def test_other_words_are_refused_with_the_reason(said: str, why: str) -> None:
    told = why_no_delay(said)
    assert told is not None
    assert why in told
