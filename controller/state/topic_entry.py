"""One topic in the controller's context: lists by partition number."""

from __future__ import annotations

from collections.abc import Iterator

from regency.controller.state.states import PartitionState, ReplicaState
from regency.model.facts import LeaderIsrAndControllerEpoch, ReplicaAssignment
from regency.model.ids import ZERO_TOPIC_ID, BrokerId, TopicId, TopicPartition, ZkVersion

ReplicaStates = tuple[tuple[BrokerId, ReplicaState], ...]


class TopicEntry:
    """One topic: identity, and one list entry per partition number (None where there is no such one)."""

    __slots__ = (
        "assignments",
        "changes",
        "czxid",
        "leadership",
        "name",
        "names",
        "partition_states",
        "replica_states",
        "topic_id",
        "zk_version",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.topic_id: TopicId = ZERO_TOPIC_ID
        self.czxid = 0
        self.zk_version = ZkVersion(0)
        self.names: list[TopicPartition] = []
        """What each partition is called, one value for all who go through them."""
        self.assignments: list[ReplicaAssignment | None] = []
        self.leadership: list[LeaderIsrAndControllerEpoch | None] = []
        self.partition_states: list[PartitionState] = []
        self.replica_states: list[ReplicaStates] = []
        self.changes = 0
        """Grows after every change of assignments, leadership or states, so that another thread, which may copy these
        lists at any time, sees later whether its copies are still right."""

    def grow(self, partition: int) -> None:
        """Make room for partition number `partition`."""
        missing = partition + 1 - len(self.assignments)
        if missing > 0:
            self.names.extend(TopicPartition(self.name, number) for number in range(len(self.names), partition + 1))
            self.assignments.extend([None] * missing)
            self.leadership.extend([None] * missing)
            self.partition_states.extend([PartitionState.NON_EXISTENT] * missing)
            self.replica_states.extend([()] * missing)

    def partitions(self) -> Iterator[tuple[int, ReplicaAssignment]]:
        """Numbers and assignments of the partitions there are, in order."""
        for number, assignment in enumerate(self.assignments):
            if assignment is not None:
                yield number, assignment
