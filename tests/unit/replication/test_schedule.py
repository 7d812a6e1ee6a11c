"""Periodic work of a broker: what looks at every log does so in slices, one after another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from regency.broker_agent.replication.schedule import Schedule
from regency.model.clock import ManualClock


@pytest.mark.parametrize(("step_ms", "at_once"), [(0, 1_000), (4, 3)])
def test_work_of_many_steps_goes_on_a_slice_at_a_time_and_is_not_begun_twice(step_ms: int, at_once: int) -> None:
    clock = ManualClock()
    schedule = Schedule(clock)
    begun: list[int] = []
    steps: list[int] = []
    short: list[int] = []

    def long(now_ms: int) -> Iterator[None]:
        begun.append(now_ms)
        for step in range(2_500):
            steps.append(step)
            clock.advance(step_ms)
            yield

    schedule.every(100, long)
    schedule.every(100, short.append)
    clock.advance(100)
    schedule.run_due(100)
    assert (begun, len(steps), short) == ([100], at_once, [100])
    assert schedule.next_due_ms == clock.monotonic_ms() + 1
    schedule.run_due(200)
    assert (begun, len(steps), short) == ([100], 2 * at_once, [100, 200])
    while len(steps) < 2_500:
        schedule.run_due(201)
    schedule.run_due(201)
    assert schedule.next_due_ms == 300
    schedule.run_due(300)
    assert begun == [100, 300]
