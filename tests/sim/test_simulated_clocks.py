"""Clocks belong to machines: what is wrong with them outlives the processes, until they are set right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from simulation.faults.machine_faults import deeds
from simulation.faults.plan import Fault, Kind
from simulation.faults.points import Points
from simulation.faults.stage import Stage, Told
from simulation.kernel.clock import WALL_START_MS
from simulation.kernel.scheduler import Process, Scheduler
from simulation.kernel.threads import simulated_threads
from simulation.shape import SECOND_US, shape_of
from simulation.world import Host, World

from regency.model.ids import BrokerId

FAST = 0.75
"""The detail of a fault that makes clocks run 1.1 times as fast."""


class Machine:
    """One machine of a world that has begun."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.world = World(self.scheduler, shape_of("quick", 1))
        self.stage = Stage(self.world, Points(self.scheduler), Told(*[lambda *_: None] * len(Told._fields)))
        self.host: Host = self.world.hosts[BrokerId(1)]
        self.world.start_agent(self.host.broker)
        self.pass_s(1)

    def pass_s(self, seconds: int) -> None:
        self.scheduler.run_until(self.scheduler.now_us + seconds * SECOND_US)

    def suffer(self, kind: Kind, detail: float) -> None:
        fault = Fault(self.scheduler.now_us, kind, 1, 2, SECOND_US, detail, lossy=False)
        self.undo = deeds(self.stage)[kind](fault, self.host)

    def restart(self) -> None:
        self.world.kill_agent(self.host.broker)
        self.world.start_agent(self.host.broker)

    @property
    def processes(self) -> tuple[Process, Process]:
        agent, controller = self.host.agent_process, self.host.controller_process
        assert agent is not None
        assert controller is not None
        assert agent.alive
        assert controller.alive
        return agent, controller

    def wrong_by_ms(self) -> list[int]:
        """By how much the processes' wall clocks are wrong."""
        return [each.clock.wall_ms() - WALL_START_MS - self.scheduler.now_us // 1000 for each in self.processes]


@pytest.fixture
def machine() -> Iterator[Machine]:
    scheduler = Scheduler(1)
    with simulated_threads(scheduler):
        machine = Machine(scheduler)
        yield machine
        for process in machine.processes:
            process.kill()


def test_a_drift_goes_on_after_a_restart_and_ends_with_its_fault(machine: Machine) -> None:
    machine.suffer(Kind.CLOCK_DRIFT, FAST)
    machine.pass_s(10)
    machine.restart()
    machine.pass_s(10)
    assert machine.wrong_by_ms() == [2000, 2000]
    assert machine.undo is not None
    machine.undo()
    machine.pass_s(10)
    assert machine.wrong_by_ms() == [2000, 2000]


def test_clocks_are_right_and_true_when_everything_works_again(machine: Machine) -> None:
    machine.suffer(Kind.CLOCK_DRIFT, FAST)
    machine.suffer(Kind.CLOCK_STEP, 0.0)
    machine.restart()
    machine.pass_s(10)
    assert machine.wrong_by_ms() == [1000 - 3_600_000] * 2
    machine.world.heal()
    assert machine.wrong_by_ms() == [0, 0]
    machine.pass_s(10)
    assert machine.wrong_by_ms() == [0, 0]
