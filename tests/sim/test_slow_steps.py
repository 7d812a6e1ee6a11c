"""Processes each of whose steps takes time: what comes between two of them, and what a data loop comes to in order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from simulation.defects.patching import Patch
from simulation.kernel.scheduler import Process, Scheduler
from simulation.kernel.threads import simulated_threads

from regency.controller.events import EventQueue

pytestmark = pytest.mark.sim

COST_US = 1_000


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler(1)


@pytest.fixture
def process(scheduler: Scheduler) -> Process:
    return Process(scheduler, "agent-1")


def in_two_steps(patch: Patch) -> None:
    """Forget under a second lock which topics are marked."""
    patch.edit(
        EventQueue,
        "take_marked_topics",
        (
            "marked, self._topics = sorted(self._topics), set()",
            "marked = sorted(self._topics)\n    with self._changed:\n        self._topics = set()",
        ),
    )


@pytest.mark.parametrize(("cost_us", "lost"), [(0, False), (COST_US, True)])
def test_what_comes_between_two_locks_shows_where_steps_take_time(
    scheduler: Scheduler, process: Process, cost_us: int, lost: bool
) -> None:
    patch, taken = Patch(), list[list[str]]()
    with simulated_threads(scheduler):
        queue = EventQueue(process.clock)
        in_two_steps(patch)
        if cost_us:
            process.slow_down(lambda: cost_us)
        queue.mark_topic("blue")
        scheduler.spawn(process, "thread", lambda: taken.append(queue.take_marked_topics()))
        scheduler.at(cost_us + cost_us // 2, lambda: queue.mark_topic("red"), process)
        scheduler.run_until(10 * COST_US)
        patch.undo()
        process.speed_up()
        scheduler.spawn(process, "thread", lambda: taken.append(queue.take_marked_topics()))
        scheduler.run_until(20 * COST_US)
    assert taken == [["blue"], [] if lost else ["red"]]


def loop_of(scheduler: Scheduler, process: Process, due_us: list[int]) -> list[tuple[int, int]]:
    """Have a data loop do something at these times; what is done, in order: its number, and when."""
    done: list[tuple[int, int]] = []
    for number, at_us in enumerate(due_us):
        scheduler.at(at_us, partial(lambda each: done.append((each, scheduler.now_us)), number), process, of_loop=True)
    return done


def test_a_data_loop_comes_to_the_next_when_the_time_of_the_last_is_over(
    scheduler: Scheduler, process: Process
) -> None:
    process.slow_down(lambda: COST_US)
    done = loop_of(scheduler, process, [0, 0, 200, 5_000])
    scheduler.run_until(10_000)
    assert done == [(0, 0), (1, 1_000), (2, 2_000), (3, 5_000)]


@pytest.mark.parametrize("hold", ["pause", "stand"])
def test_a_slow_loop_that_is_held_goes_on_in_order(scheduler: Scheduler, process: Process, hold: str) -> None:
    process.slow_down(lambda: COST_US)
    done = loop_of(scheduler, process, [0, 0, 0, 1_600, 1_600])
    held: Callable[[], None] = getattr(process, hold)
    scheduler.at(1_500, held)
    scheduler.at(8_000, process.resume if hold == "pause" else process.go_on)
    scheduler.run_until(20_000)
    assert [number for number, _ in done] == [0, 1, 2, 3, 4]
    assert done[1][1] <= 1_500
    assert done[2][1] >= 8_000
