"""All agents lose their ZooKeeper sessions again and again: ISR changes meet registrations that are over or unknown."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from simulation.admin import Admin
from simulation.judging.judges import Judges
from simulation.kernel.scheduler import Scheduler
from simulation.kernel.threads import simulated_threads
from simulation.shape import SECOND_US, shape_of
from simulation.world import World

BETWEEN_US = 700_000


@pytest.mark.parametrize("seed", range(1, 13))
def test_isrs_refill_after_the_sessions_of_all_agents_were_lost(seed: int) -> None:
    scheduler = Scheduler(seed)
    world = World(scheduler, shape_of("quick", seed))
    judges = Judges(world)
    with ExitStack() as stack:
        stack.enter_context(simulated_threads(scheduler))
        for broker in world.hosts:
            world.start_agent(broker)
        Admin(world, world.shape.topics, lambda: None)
        judges.begin()
        scheduler.run_until(5 * SECOND_US)
        for _ in range(3):
            for agent in world.agents.values():
                assert agent.session is not None
                world.zookeeper.expire(agent.session.session_id)
            scheduler.run_until(scheduler.now_us + BETWEEN_US)
        scheduler.run_until(40 * SECOND_US)

        assert judges.not_converged() == []
        for agent in world.agents.values():
            agent.process.kill()
