"""How a watermark's delay is said: numbers with units, as Spark's intervals are. Pure."""

from __future__ import annotations

import re
from fractions import Fraction

_DAY = 86_400 * 10**6
_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 10**6,
    "minute": 60 * 10**6,
    "hour": 3_600 * 10**6,
    "day": _DAY,
    "week": 7 * _DAY,
    "month": 31 * _DAY,
    "year": 12 * 31 * _DAY,
}
"""Microseconds, as Spark counts them for a watermark."""
_PART = rf"(\d+(?:\.\d{{1,9}})?)\s+({'|'.join(_UNITS)})s?"
_WHOLE = re.compile(rf"\s*(?:interval\s+)?{_PART}(?:\s+{_PART})*\s*", re.IGNORECASE | re.ASCII)
_MOST = 2**63 - 1


def why_no_delay(said: str) -> str | None:
    """Why words are no delay of a watermark; None where they are one, such as "2 days" or "1 day 12 hours"."""
    if re.search(r"-\s*\d", said):
        return "it is negative"
    if _WHOLE.fullmatch(said) is None:
        return f"it is no number with a unit of {', '.join(_UNITS)}"
    delay = Fraction(0)
    for number, unit in re.findall(_PART, said, re.IGNORECASE | re.ASCII):
        if "." in number and unit.lower() != "second":
            return f"{number} {unit} has a fraction, which only seconds may have"
        delay += Fraction(number) * _UNITS[unit.lower()]
    return None if delay <= _MOST else "it is more than 280,000 years"
