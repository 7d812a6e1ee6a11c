"""SIGKILL at every crash point of the log, on real files: what was done is there at the next start, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest
from simulation.faults.points import crash_points_in_code

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

ROOMS = ("broker_agent/log/", "kafka/logfiles/")
POINTS = sorted({point.name or point.place for point in crash_points_in_code() if point.place.startswith(ROOMS)})


def test_there_are_points_to_be_killed_at() -> None:
    assert len(POINTS) > 80


def spread(scenarios: dict[str, int]) -> set[tuple[str, int]]:
    """The last passing; the first too where there are some, and two between them where many steps pass the point."""
    passings = [(scenario, nth) for scenario, times in scenarios.items() for nth in range(1, times + 1)]
    picks = 4 if len(passings) > 100 else 2 if len(passings) > 10 else 1
    return {passings[-1 - (len(passings) - 1) * pick // max(picks - 1, 1)] for pick in range(picks)}


@pytest.mark.parametrize("point", POINTS)
def test_what_was_acknowledged_outlives_a_kill(kills: Any, passed: dict[str, dict[str, int]], point: str) -> None:
    scenarios = passed.get(point)
    assert scenarios, f"no scenario in killing/scenarios.py passes {point}: add what does to one of them"
    for scenario, nth in sorted(spread(scenarios)):
        kills.check(kills.run(scenario, point, nth))
