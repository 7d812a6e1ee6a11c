"""What an agent forgets without having been told to, as a mistake of its own would make it: reconcile must mend it."""

from __future__ import annotations

from enum import Enum

from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.broker_agent.replication.rules import Role
from regency.model.ids import BrokerId, TopicPartition
from simulation.faults.plan import SECOND_US, Fault, Kind
from simulation.faults.stage import Deed, Stage
from simulation.world import Host


class Loss(Enum):
    """What is lost of a replica."""

    ROLE = "its role"
    FETCHER = "its fetcher"
    REPLICA = "itself"


def deeds(stage: Stage) -> dict[Kind, Deed]:
    """The faults of this file."""
    return {
        Kind.LOSE_REPLICA: lambda fault, host: _lose(stage, fault, host),
        Kind.DRILL_FORGETTING: lambda fault, host: _forget(stage, fault, host),
    }


def _forget(stage: Stage, fault: Fault, host: Host) -> None:
    """Replicas of two brokers lose something, now and later, in the end all fetchers; by chance who rules dies."""
    world, chance = stage.world, fault.chance()
    other = world.hosts[BrokerId(fault.other)]
    _lose(stage, fault, host)
    stage.later(int(chance.random() * 2 * SECOND_US), lambda: _lose(stage, fault, other))

    def unfeed() -> None:
        replicas = None if other.agent is None or not other.agent.process.alive else other.agent.replicas
        if replicas is None:
            return
        for name, partition in sorted(replicas.partitions.items()):
            if partition.role is Role.FOLLOWER:
                stage.note(other.name, "%s loses %s", name, Loss.FETCHER.value)
                lose(replicas, name, Loss.FETCHER)

    stage.later(5 * SECOND_US, unfeed)
    if chance.random() < 0.5:

        def end() -> None:
            ruler = world.ruler()
            if ruler is not None:
                world.kill_controller(ruler.broker)

        stage.later(int(chance.random() * 4 * SECOND_US), end)


def _lose(stage: Stage, fault: Fault, host: Host) -> None:
    """A few replicas of a live agent lose something."""
    agent = host.agent
    if agent is None or not agent.process.alive or agent.replicas is None:
        return
    chance = fault.chance()
    served = [
        name
        for name, partition in sorted(agent.replicas.partitions.items())
        if partition.role in (Role.LEADER, Role.FOLLOWER)
    ]
    for name in chance.sample(served, min(len(served), chance.choice((1, 1, 2)))):
        loss = chance.choice(tuple(Loss))
        stage.note(host.name, "%s loses %s", name, loss.value)
        lose(agent.replicas, name, loss)


def lose(replicas: ReplicaManager, name: TopicPartition, loss: Loss) -> None:
    """Have a served replica lose something. A leader has no fetcher, and loses its role instead.

    So it does instead of itself: its high watermark would go back to a checkpoint, which nothing but a restart does.
    """
    hosting, partition = replicas._hosting, replicas.partitions[name]
    if partition.role is Role.LEADER:
        loss = Loss.ROLE
    with hosting.completions:
        replicas.fetchers.remove([name])
        if loss is Loss.ROLE:
            partition.stop()
            hosting.changed(name)
        elif loss is Loss.REPLICA:
            replicas._control.forget([name])
