"""Rates of the last minute, the loop's idleness, and what became of a session."""

from __future__ import annotations

import asyncio
import time

from regency.broker_agent.process.loop_meter import LoopMeter, MeteredSelector
from regency.model.clock import ManualClock
from regency.runtime.metrics.families import Block
from regency.runtime.metrics.recent import RecentRate
from regency.runtime.zookeeper.meter import ZkMeter
from regency.runtime.zookeeper.session import SessionCallback, SessionEvent


def test_a_rate_is_of_the_last_minute() -> None:
    rate = RecentRate(0)
    for second in range(20):
        rate.count(second * 1000)
    assert rate.per_second(20_000) == 1.0
    assert rate.per_second(50_000) == 20 / 50
    assert rate.per_second(69_999) == 10 / 59.999
    assert rate.per_second(80_000) == 0


def test_a_rate_just_begun_is_not_taken_for_a_storm() -> None:
    rate = RecentRate(5_000)
    rate.count(5_001)
    assert rate.per_second(5_010) == 1.0


def test_a_loop_that_waits_is_idle_and_one_that_works_is_not() -> None:
    def idleness(work_s: float, wait_s: float) -> float:
        async def scenario() -> None:
            deadline = time.perf_counter() + work_s
            while time.perf_counter() < deadline:
                pass
            await asyncio.sleep(wait_s)

        selector = MeteredSelector()
        meter = LoopMeter(selector)
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
            runner.run(scenario())
            return meter.idle_share

    assert idleness(work_s=0.1, wait_s=0.0) < 0.5 < idleness(work_s=0.0, wait_s=0.2)


def test_a_long_step_of_the_loop_is_seen_by_the_clock_that_it_ran_on() -> None:
    selector = MeteredSelector()

    async def scenario() -> None:
        await asyncio.sleep(0)
        deadline = time.thread_time() + 0.06
        while time.thread_time() < deadline:
            pass
        await asyncio.sleep(0)
        time.sleep(0.2)  # as in a write to a disk that hangs
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(scenario())
    steps = LoopMeter(selector).steps
    longest = {clock: times.read(LoopMeter.now_ms(), [1.0]).quantiles_ms[0] for clock, times in steps.items()}
    assert 58 <= longest["cpu"] < 150, "the step that computed; the one that waited used no processor"
    assert longest["wall"] >= 195


class PlayedSession:
    generation = 1
    connected = True

    def __init__(self) -> None:
        self.told: list[SessionCallback] = []

    def listen(self, callback: SessionCallback) -> None:
        self.told.append(callback)


def test_a_session_is_counted_from_its_first_connection() -> None:
    clock, session = ManualClock(), PlayedSession()
    meter = ZkMeter(clock)

    def told() -> dict[str, float]:
        families = [family for family in meter.collect(lambda _: True) if not isinstance(family, Block)]
        return {sample.name.rpartition("er_")[2]: sample.value for family in families for sample in family.samples}

    meter.watch(session)  # type: ignore[arg-type]
    (tell,) = session.told
    clock.advance(5_000)
    assert told()["zookeepersyncconnects_total"] == 1
    assert told()["session_age_seconds"] == 5
    tell(SessionEvent.SUSPENDED, 1)
    tell(SessionEvent.CONNECTED, 1)
    assert (told()["zookeepersyncconnects_total"], told()["zookeeperdisconnects_total"]) == (2, 1)
    assert told()["session_age_seconds"] == 5, "it is the same session"
    tell(SessionEvent.LOST, 1)
    assert (told()["zookeeperexpires_total"], told()["session_age_seconds"]) == (1, 0)
    clock.advance(1_000)
    tell(SessionEvent.CONNECTED, 2)
    clock.advance(2_000)
    assert told()["session_age_seconds"] == 2
