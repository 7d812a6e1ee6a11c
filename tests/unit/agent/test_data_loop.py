from __future__ import annotations

import asyncio
import threading

import pytest

from regency.broker_agent.process.data_loop import DataLoop, LoopClosed, LoopTimer, LoopWorker
from regency.model.clock import ManualClock
from regency.runtime.supervise import LoopEnded, start_task, start_thread

Deaths = list[tuple[str, str]]


def recorder(deaths: Deaths):
    return lambda name, error: deaths.append((name, repr(error)))


def test_work_runs_on_the_pool_and_its_outcome_arrives_on_the_loop() -> None:
    async def scenario() -> tuple[bool, bool, str]:
        loop = DataLoop(recorder([]))
        worker = LoopWorker(loop, 1, "test")
        outcomes: asyncio.Queue[tuple[object, int]] = asyncio.Queue()
        here = threading.get_ident()
        worker.submit(threading.get_ident, lambda outcome: outcomes.put_nowait((outcome, threading.get_ident())))
        there, back = await outcomes.get()
        worker.submit(lambda: 1 // 0, lambda outcome: outcomes.put_nowait((outcome, 0)))
        failure, _ = await outcomes.get()
        worker.close()
        return there != here, back == here, type(failure).__name__

    assert asyncio.run(scenario()) == (True, True, "ZeroDivisionError")


def test_after_the_pool_is_closed_the_outcome_says_so() -> None:
    async def scenario() -> object:
        worker = LoopWorker(DataLoop(recorder([])), 1, "test")
        worker.close()
        outcome: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        worker.submit(lambda: 1, outcome.set_result)
        return await outcome

    assert isinstance(asyncio.run(scenario()), LoopClosed)


def test_another_thread_calls_and_gets_the_result_or_the_failure() -> None:
    async def scenario() -> tuple[int, str]:
        loop = DataLoop(recorder([]))
        seven = await asyncio.to_thread(loop.call, lambda: 7, timeout_ms=10_000)
        try:
            await asyncio.to_thread(loop.call, lambda: 1 // 0, timeout_ms=10_000)
        except ZeroDivisionError as error:
            return seven, str(error)
        return seven, ""

    assert asyncio.run(scenario()) == (7, "integer division or modulo by zero")


def test_a_call_to_a_closed_loop_is_refused_and_a_post_is_dropped() -> None:
    async def build() -> DataLoop:
        return DataLoop(recorder([]))

    loop = asyncio.run(build())
    loop.post(lambda: None)
    with pytest.raises(LoopClosed):
        loop.call(lambda: 1, timeout_ms=1000)


def test_a_failure_on_the_loop_is_told() -> None:
    deaths: Deaths = []

    async def scenario() -> None:
        DataLoop(recorder(deaths)).post(lambda: 1 // 0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(scenario())
    assert deaths == [("the data loop", "ZeroDivisionError('integer division or modulo by zero')")]


def test_the_timer_fires_once_at_the_earliest_time_asked_for() -> None:
    async def scenario() -> list[int]:
        clock = ManualClock(1000)
        fired: list[int] = []
        done = asyncio.Event()

        def run_due(now_ms: int) -> None:
            fired.append(now_ms)
            done.set()

        timer = LoopTimer(clock, recorder([]))
        timer.bind(run_due)
        timer.wake_by(60_000)
        timer.wake_by(1000)
        timer.wake_by(2000)
        await done.wait()
        timer.wake_by(60_000)
        timer.close()
        return fired

    assert asyncio.run(scenario()) == [1000]


def test_a_timer_whose_owner_fails_tells() -> None:
    deaths: Deaths = []

    async def scenario() -> None:
        timer = LoopTimer(ManualClock(), recorder(deaths))
        timer.bind(lambda now_ms: now_ms // 0)
        timer.wake_by(0)
        while not deaths:
            await asyncio.sleep(0)

    asyncio.run(scenario())
    assert deaths[0][0] == "the data loop"


def test_a_thread_that_fails_or_returns_is_told_unless_returning_is_its_end() -> None:
    deaths: Deaths = []
    start_thread("fails", lambda: 1 // 0, recorder(deaths)).join(10)
    start_thread("returns", lambda: None, recorder(deaths)).join(10)
    start_thread("ends", lambda: None, recorder(deaths), ends=True).join(10)
    assert [name for name, _ in deaths] == ["fails", "returns"]


def test_a_task_that_fails_or_returns_is_told_and_a_cancelled_one_is_not() -> None:
    deaths: Deaths = []

    async def fails() -> None:
        raise ValueError

    async def returns() -> None:
        return

    async def runs() -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        await start_task("fails", fails(), recorder(deaths))
        await start_task("returns", returns(), recorder(deaths))
        running = start_task("runs", runs(), recorder(deaths))
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running})

    asyncio.run(scenario())
    assert deaths == [("fails", "ValueError()"), ("returns", repr(LoopEnded("returns returned")))]
