"""The agent's assembly without asyncio: it starts and stops whole agents of the simulation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from simulation.admin import Admin
from simulation.cluster.edges import driven
from simulation.kernel.scheduler import Scheduler, SimulationStuck
from simulation.kernel.threads import simulated_threads
from simulation.shape import SECOND_US, settings_of, shape_of
from simulation.world import World

from regency.model.ids import BrokerId
from regency.model.znodes import paths as znode_paths

BROKER = BrokerId(1)


@pytest.fixture
def world() -> Iterator[World]:
    """Three agents that have run for a while."""
    scheduler = Scheduler(1)
    world = World(scheduler, shape_of("quick", 1))
    with ExitStack() as stack:
        stack.enter_context(simulated_threads(scheduler))
        for broker in world.hosts:
            world.start_agent(broker)
        Admin(world, world.shape.topics, lambda: None)
        scheduler.run_until(5 * SECOND_US)
        yield world
        for agent in world.agents.values():
            agent.process.kill()


def test_every_part_is_there_once_an_agent_has_started(world: World) -> None:
    for agent in world.agents.values():
        assert agent.logs is not None
        assert agent.replicas is not None
        assert agent.service is not None
        assert agent.replicas.partitions
        assert agent.replicas.partitions.keys() == agent.logs.all().keys()
        assert agent.broker_epoch() >= 0


def test_an_agent_that_stops_leaves_no_thread_no_session_and_no_port(world: World) -> None:
    agent = world.agents[BROKER]
    kept = [actor.name for actor in agent.process.actors]
    assert "isr-writer" in kept

    world.scheduler.spawn(agent.process, "stop", agent.stop)
    world.scheduler.run_until(world.scheduler.now_us + 2 * SECOND_US)

    assert agent.process.alive
    assert [actor.name for actor in agent.process.actors] == []
    assert world.zookeeper.read(znode_paths.broker(BROKER)) is None


def test_an_agent_that_stops_while_zookeeper_is_away_ends_all_the_same(world: World) -> None:
    # ServerShutdownTest.testCleanShutdownWithZkUnavailable (KAFKA-9189): who rules is known without ZooKeeper
    for server in range(3):
        world.zookeeper.stop_server(server)
    process = world.agents[BROKER].process
    gone: list[int] = []

    world.stop_agent(BROKER, lambda: gone.append(world.scheduler.now_us))
    world.stop_agent(BROKER, lambda: None)  # testConsecutiveShutdown: who is told twice leaves once
    world.scheduler.run_until(world.scheduler.now_us + 60 * SECOND_US)

    assert len(gone) == 1
    assert not process.alive


def test_a_broker_whose_last_directory_fails_while_it_starts_does_not_register_until_it_works(world: World) -> None:
    """It read its logs, and found no room for their checkpoints: it would be live, and have nothing."""
    host = world.hosts[BROKER]
    (directory,) = settings_of(world.shape, BROKER).log_dirs
    world.kill_agent(BROKER)
    world.scheduler.run_until(world.scheduler.now_us + 10 * SECOND_US)
    host.disk.fail(below=f"{directory}/recovery-point-offset-checkpoint.")
    world.start_agent(BROKER)
    world.scheduler.run_until(world.scheduler.now_us + 20 * SECOND_US)
    assert world.zookeeper.read(znode_paths.broker(BROKER)) is None

    host.disk.heal()
    world.start_agent(BROKER)
    world.scheduler.run_until(world.scheduler.now_us + 20 * SECOND_US)
    assert world.zookeeper.read(znode_paths.broker(BROKER)) is not None
    assert world.agents[BROKER].replicas.partitions


def test_a_coroutine_runs_to_its_end_where_it_waits_for_nothing() -> None:
    async def one() -> int:
        return 1

    async def two() -> int:
        return await one() + 1

    assert driven(two()) == 2


def test_a_coroutine_that_waits_for_asyncio_is_refused() -> None:
    with pytest.raises(SimulationStuck, match="asyncio"):
        driven(asyncio.sleep(0))
