"""A world whose partitions move: what tests of reassignments say and ask."""

from __future__ import annotations

from typing import Any

import pytest

from regency.controller.reassignment.requests import AlterReassignments, ListReassignments
from regency.model import znodes
from regency.model.facts import ReplicaAssignment
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths
from regency.protos import control_pb2 as pb

T0 = TopicPartition("t", 0)


class Moving:
    """All words of a world, and those about reassignments. Partitions are t-0 where none is named."""

    def __init__(self, world: Any) -> None:
        self.world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world, name)

    @property
    def ruling(self) -> Any:
        """The candidate that rules."""
        return next(each for each in self.world.candidates if each.rules)

    def ask(self, *moves: Any) -> list[ErrorCode]:
        """Ask for reassignments; None cancels. The error codes of the answer."""
        return [outcome.error for outcome in self.ruling.ask(AlterReassignments(tuple(moves)))]

    def under_way(self) -> dict[TopicPartition, ReplicaAssignment]:
        """What the controller says is being reassigned."""
        return dict(self.ruling.ask(ListReassignments(None)))

    def write_asked(self, **targets: Any) -> None:
        """Write /admin/reassign_partitions as another tool does; partition 0 of each topic."""
        moves = [(TopicPartition(topic, 0), tuple(replicas)) for topic, replicas in targets.items()]
        self.world.ensemble.put(paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves(moves))
        self.world.settle()

    def asked(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        """What stands in /admin/reassign_partitions."""
        node = self.world.ensemble.nodes.get(paths.REASSIGN_PARTITIONS)
        return None if node is None else dict(znodes.decode_asked_moves("/", node.data))

    def all_assigned(self, name: str) -> dict[int, ReplicaAssignment]:
        """The partitions in a topic znode."""
        data = self.world.ensemble.nodes[paths.topic(name)].data
        return znodes.decode_topic("/", data, topic=name, zk_version=0, czxid=0).partitions

    def assigned(self, partition: TopicPartition = T0) -> ReplicaAssignment:
        """A partition in its topic znode."""
        return self.all_assigned(partition.topic)[partition.partition]

    def sync(self, *isr: int, partition: TopicPartition = T0) -> None:
        """The leader takes these into the ISR, and says so."""
        leader, _, epoch, controller = self.world.state(*partition)
        self.world.write_state(*partition, leader, isr, epoch=epoch, controller=controller)
        self.world.notify_isr_change(partition)

    def deleted_by(self, broker: int, partition: TopicPartition = T0) -> int:
        """How often the broker was told to delete the partition."""
        return sum(
            delete and (topic.topic, number) == tuple(partition)
            for stop in self.world.agents[broker].of(pb.StopReplicaRequest)
            for topic in stop.topics
            for number, delete in zip(topic.partition, topic.delete_partition, strict=True)
        )

    def new_on(self, broker: int, partition: TopicPartition = T0) -> list[bool]:
        """Whether the broker was told to make the replica anew, by each LeaderAndIsr that names it."""
        return [
            bool(topic.is_new and topic.is_new[row])
            for request in self.world.agents[broker].of(pb.LeaderAndIsrRequest)
            for topic in request.topics
            for row, number in enumerate(topic.partition)
            if (topic.topic, number) == tuple(partition)
        ]


@pytest.fixture
def moving(world: Any) -> Moving:
    """An empty world."""
    return Moving(world)


@pytest.fixture
def four(moving: Moving) -> Moving:
    """Brokers 1 to 4; broker 1's candidate rules in epoch 1."""
    moving.start_brokers(1, 2, 3, 4)
    moving.candidate(1)
    return moving
