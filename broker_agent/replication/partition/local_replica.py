"""The replica of a partition on this broker: its log, its role and epochs, and what it does as a follower.

Passive and without I/O of its own. Every method belongs to the data loop; `now_ms` is monotonic time. What a leader
decides is in partition.py, which extends this.
"""

from __future__ import annotations

from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.replication.api import PartitionState
from regency.broker_agent.replication.partition.isr_state import NOT_LEADING, Committed, IsrState
from regency.broker_agent.replication.partition.replica import RemoteReplica
from regency.broker_agent.replication.partition.rules import ReplicationRules, Role
from regency.kafka.fetching.values import EpochEndOffset, FetchedPartition
from regency.model.crash_points import crash_point
from regency.model.facts import ReplicaAssignment
from regency.model.ids import (
    NO_BROKER_EPOCH,
    NO_LEADER,
    NO_LEADER_EPOCH,
    UNKNOWN_OFFSET,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
    ZkVersion,
)
from regency.model.kafka_errors import ErrorCode


class LocalReplica:
    """A replica on this broker. `leader_epoch` is -1 until the first LeaderAndIsr has been applied."""

    __slots__ = (
        "_rules",
        "assignment",
        "controller_epoch",
        "epoch_start",
        "isr",
        "isr_rests_until_ms",
        "leader",
        "leader_broker_epoch",
        "leader_epoch",
        "log",
        "remotes",
        "role",
        "topic_id",
        "topic_partition",
        "zk_version",
    )

    def __init__(
        self, topic_partition: TopicPartition, topic_id: TopicId, log: PartitionLog, rules: ReplicationRules
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self._rules = rules
        self.role = Role.NONE
        self.leader: BrokerId = NO_LEADER
        self.leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
        self.leader_broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
        self.controller_epoch = ControllerEpoch(0)
        self.zk_version = ZkVersion(-1)
        self.assignment = ReplicaAssignment(())
        self.isr: IsrState = NOT_LEADING
        self.isr_rests_until_ms = 0
        """No ISR change is proposed before: the last one could not be written."""
        self.epoch_start: Offset = UNKNOWN_OFFSET
        """LEO when this broker became leader in the current epoch; -1 where it does not lead."""
        self.remotes: dict[BrokerId, RemoteReplica] = {}

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads."""
        return self.role is Role.LEADER

    def check_epoch(self, current: LeaderEpoch) -> ErrorCode:
        """NONE, or how the epoch a request names misses ours; -1 names none. Comes before leadership (KIP-320)."""
        if current == NO_LEADER_EPOCH or current == self.leader_epoch:
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if current < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    @property
    def is_adding(self) -> bool:
        """Whether a reassignment that goes on has brought the partition to this broker."""
        return self._rules.broker_id in self.assignment.adding

    # Roles

    def become_leader(self, state: PartitionState, now_ms: int) -> None:
        """Lead in the state's epoch. Raises LogStorageError before anything is changed; the epoch is published last.

        The epoch and where it starts are written even if no record ever follows (KIP-279), and whatever was known of
        followers is forgotten: only fetches that carry the new epoch count.
        """
        start = self.log.log_end_offset
        self.log.assign_epoch(state.leader_epoch, start)
        self.epoch_start = start
        self._take_assignment(state)
        for replica in self.remotes.values():
            replica.forget(now_ms, in_sync=replica.broker in state.isr)
        self._publish(state, Role.LEADER, Committed(state.isr, state.zk_version))

    def become_follower(self, state: PartitionState) -> None:
        """Follow the state's leader, or wait for one if it names none. Nothing here can fail."""
        self.epoch_start = UNKNOWN_OFFSET
        self.remotes = {}
        self.assignment = ReplicaAssignment(state.replicas, state.adding, state.removing)
        self._publish(state, Role.FOLLOWER, NOT_LEADING)

    def update_state(self, state: PartitionState) -> None:
        """Take assignment, ISR and version of a newer write in the same epoch; it supersedes a pending ISR change."""
        isr: IsrState = NOT_LEADING
        if self.is_leader:
            self._take_assignment(state)
            isr = Committed(state.isr, state.zk_version)
        else:
            self.assignment = ReplicaAssignment(state.replicas, state.adding, state.removing)
        self._publish(state, self.role, isr)

    def stop(self, role: Role = Role.NONE) -> None:
        """Give up leading or following; epoch and log stay."""
        self.role = role
        self.isr = NOT_LEADING
        self.epoch_start = UNKNOWN_OFFSET
        self.remotes = {}

    def _take_assignment(self, state: PartitionState) -> None:
        """Swap the followers in one step: a moment without them lets the high watermark run ahead (KAFKA-10301)."""
        held = self.remotes
        self.assignment = ReplicaAssignment(state.replicas, state.adding, state.removing)
        self.remotes = {
            broker: held.get(broker) or RemoteReplica(broker)
            for broker in state.replicas
            if broker != self._rules.broker_id
        }
        self._rules.followers.update(self.remotes)

    def _publish(self, state: PartitionState, role: Role, isr: IsrState) -> None:
        self.controller_epoch = state.controller_epoch
        self.zk_version = state.zk_version
        self.isr = isr
        self.leader = state.leader
        self.role = role
        self.leader_epoch = state.leader_epoch

    # Following (follower.Follower)

    @property
    def log_end_offset(self) -> Offset:
        """Where the next record will be written."""
        return self.log.log_end_offset

    @property
    def log_start_offset(self) -> Offset:
        """The first offset that can be read."""
        return self.log.log_start_offset

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """Newest epoch of the log's epoch cache; -1 where it knows none."""
        latest = self.log.latest_epoch
        return NO_LEADER_EPOCH if latest is None else latest

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> EpochEndOffset:
        """Largest epoch not above `epoch` in this log, and where it ends."""
        return self.log.end_offset_for_epoch(epoch)

    def append_fetched(self, fetched: FetchedPartition) -> None:
        """Write what the leader sent, then take its high watermark and log start, within what is here.

        Raises RecordsRejected (corrupt, not at our end), LogStorageError.
        """
        if fetched.records:
            self.log.append_as_follower(fetched.records)
            crash_point("replication.follower.before_high_watermark")
        self.log.set_high_watermark(fetched.high_watermark)
        if fetched.log_start_offset > self.log.log_start_offset:
            self.log.maybe_increment_log_start(fetched.log_start_offset)

    @property
    def is_settled(self) -> bool:
        """Whether the disk knows of every cut what it must before anything is appended."""
        return self.log.is_settled

    def truncate_to(self, offset: Offset) -> None:
        """Drop every record from `offset` on, and every epoch that starts there.

        Raises CutNotPrepared, LogStorageError.
        """
        self.log.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: Offset, producers: bytes) -> None:
        """Drop everything and begin again at `offset`, with the leader's producers below it.

        Raises RecordsRejected, LogStorageError.
        """
        self.log.truncate_fully_and_start_at(offset, producers)
