"""What an agent forgets without having been told to, as a mistake of its own would make it: reconcile must mend it."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Final

from regency.broker_agent.replication.api import PartitionState, Role
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.model.ids import NO_LEADER, NO_LEADER_EPOCH, TopicPartition, ZkVersion
from regency.model.znodes import paths
from simulation.faults.plan import Fault, Kind
from simulation.faults.stage import Deed, Stage
from simulation.judging.zookeeper_rules import Commit
from simulation.world import Host

NOBODYS: Final = 77
"""Number of a partition that no topic has."""


class Loss(Enum):
    """What is lost of a replica."""

    ROLE = "its role"
    FETCHER = "its fetcher"
    REPLICA = "itself"


def deeds(stage: Stage) -> dict[Kind, Deed]:
    return {Kind.LOSE_REPLICA: lambda fault, host: lose_some(stage, fault, host)}


def lose_some(stage: Stage, fault: Fault, host: Host) -> None:
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
            partition.zk_version = ZkVersion(-1)  # a request of before that comes again is no older then
            hosting.changed(name)
        elif loss is Loss.REPLICA:
            replicas._control.forget([name])


def invent(stage: Stage, host: Host) -> None:
    """A live agent takes itself for a follower of a partition that there is not, of a topic that there is."""
    agent = host.agent
    if agent is None or not agent.process.alive or agent.replicas is None or not agent.replicas.partitions:
        return
    name, partition = min(agent.replicas.partitions.items())
    invented = TopicPartition(name.topic, NOBODYS)
    stage.note(host.name, "%s is hosted, which there is not", invented)
    state = PartitionState(
        invented,
        partition.topic_id,
        partition.controller_epoch,
        NO_LEADER,
        NO_LEADER_EPOCH,
        (host.broker,),
        ZkVersion(-1),
        (host.broker,),
    )
    agent.replicas.apply_states([state], {})


def take_away_notifications(stage: Stage, for_us: int) -> None:
    """Another tool removes notifications of ISR changes before a controller has read them, for a while."""
    world = stage.world
    end_us = world.scheduler.now_us + for_us

    def look(commit: Commit) -> None:
        for write in commit.writes:
            notified = write.kind == "create" and write.path.startswith(f"{paths.ISR_CHANGE_NOTIFICATION}/")
            if notified and world.scheduler.now_us < end_us:
                stage.later(0, partial(world.zookeeper.delete_as_admin, write.path))

    world.zookeeper.on_commit(look)
