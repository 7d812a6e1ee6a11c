"""A topic that another tool deletes and creates again at once, while brokers still serve the old one."""

from __future__ import annotations

from contextlib import ExitStack

from simulation.admin import Admin
from simulation.judging.judges import Judges
from simulation.kernel.scheduler import Scheduler
from simulation.kernel.threads import simulated_threads
from simulation.shape import SECOND_US, shape_of
from simulation.world import World

from regency.model import znodes
from regency.model.facts import ReplicaAssignment, TopicAssignment
from regency.model.ids import BrokerId, TopicPartition
from regency.model.znodes import paths as znode_paths

BLUE = TopicPartition("blue", 0)


def remove(world: World, path: str) -> None:
    for name in world.zookeeper.children(path):
        remove(world, f"{path}/{name}")
    world.zookeeper.delete_as_admin(path)


def test_brokers_give_up_the_old_topic_and_host_the_new_one_without_a_restart() -> None:
    scheduler = Scheduler(1)
    world = World(scheduler, shape_of("quick", 1))
    judges = Judges(world)
    with ExitStack() as stack:
        stack.enter_context(simulated_threads(scheduler))
        for broker in world.hosts:
            world.start_agent(broker)
        Admin(world, world.shape.topics, lambda: None)
        judges.begin()
        scheduler.run_until(5 * SECOND_US)
        old = {broker: agent.replicas.partitions[BLUE].topic_id for broker, agent in world.agents.items()}

        path = znode_paths.topic("blue")
        remove(world, path)
        replicas = ReplicaAssignment((BrokerId(3), BrokerId(1), BrokerId(2)))
        world.zookeeper.write_as_admin(path, znodes.encode_topic(TopicAssignment("blue", {0: replicas, 1: replicas})))
        scheduler.run_until(15 * SECOND_US)

        assert judges.not_converged() == []
        assert set(old) == {1, 2, 3}
        for broker, agent in world.agents.items():
            held = agent.replicas.partitions[BLUE]
            assert held.topic_id != old[broker]
            assert (held.leader, held.leader_epoch) == (3, 0)
        for host in world.hosts.values():
            host.agent_process.kill()
