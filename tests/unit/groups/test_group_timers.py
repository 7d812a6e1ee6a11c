"""Deadlines: put off, brought forward, cancelled; and the heap does not grow with what is dead."""

from __future__ import annotations

from regency.broker_agent.groups.api import Effects
from regency.broker_agent.groups.timers import Timer, Timers


def recorded(happened: list[int]) -> Timer:
    return Timer(lambda now_ms, _: happened.append(now_ms))


def run(timers: Timers, until_ms: int) -> None:
    for now_ms in range(until_ms + 1):
        timers.run_due(now_ms, Effects())


def test_a_timer_happens_once_at_its_time() -> None:
    timers, happened = Timers(), []
    timers.arm(recorded(happened), 5)
    assert timers.next_deadline_ms == 5
    run(timers, 9)
    assert happened == [5] and timers.next_deadline_ms is None


def test_a_timer_that_is_put_off_or_brought_forward_happens_at_the_last_time_given() -> None:
    for times, expected in (((5, 7), [7]), ((7, 5), [5]), ((7, 5, 7), [7]), ((7, 5, 9, 6), [6]), ((5, 5), [5])):
        timers, happened = Timers(), []
        timer = recorded(happened)
        for time in times:
            timers.arm(timer, time)
        run(timers, 12)
        assert happened == expected, times


def test_a_cancelled_timer_does_not_happen_and_can_be_armed_again() -> None:
    timers, happened = Timers(), []
    timer = recorded(happened)
    timers.cancel(timer)
    timers.arm(timer, 3)
    timers.cancel(timer)
    assert timers.next_deadline_ms is None
    run(timers, 4)
    timers.arm(timer, 6)
    timers.cancel(timer)
    timers.arm(timer, 8)
    run(timers, 9)
    assert happened == [8]


def test_what_a_timer_arms_waits_for_the_next_look_and_what_it_cancels_does_not_happen() -> None:
    timers, happened = Timers(), []
    victim = recorded(happened)

    def on_time(now_ms: int, _: Effects) -> None:
        happened.append(-now_ms)
        timers.cancel(victim)
        timers.arm(again, now_ms)

    again = Timer(on_time)
    timers.arm(again, 2)
    timers.arm(victim, 2)
    timers.run_due(2, Effects())
    assert happened == [-2] and timers.next_deadline_ms == 2
    timers.run_due(2, Effects())
    assert happened == [-2, -2]


def test_the_heap_does_not_grow_with_what_is_put_off_or_cancelled() -> None:
    timers, happened = Timers(), []
    kept = recorded(happened)
    for time in range(10_000, 0, -1):  # every one is earlier than the one before
        timers.arm(kept, time + 1_000)
        timers.arm(recorded(happened), 100_000)
        other = recorded(happened)
        timers.arm(other, 50_000)
        timers.cancel(other)
    assert len(timers._heap) < 2 * 10_002 + 256
    run(timers, 1_001)
    assert happened == [1_001]
