"""One hosted partition: its log, role and epochs, what its leader makes of fetches, its high watermark, its ISR.

Passive and without I/O of its own: it decides and changes the log and itself. Answering clients, writing ZooKeeper and
fetching are the ReplicaManager's. Every method belongs to the data loop; `now_ms` is monotonic time.
"""

from __future__ import annotations

from regency.broker_agent.log.errors import RecordsRejected
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.ports import IsrChange
from regency.broker_agent.replication.api import PartitionState, Role
from regency.broker_agent.replication.followers import (
    NOT_LEADING,
    Committed,
    IsrState,
    Pending,
    PendingExpand,
    PendingShrink,
    RemoteReplica,
    ReplicationRules,
)
from regency.kafka.fetching.values import EpochEndOffset, FetchedPartition, FetchParams, FetchPartition
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

ISR_REST_MS = 1_000
"""How long after a change that could not be written the next one is proposed."""


class Partition:
    """A replica on this broker, which may lead. `leader_epoch` is -1 until the first LeaderAndIsr has been applied."""

    __slots__ = (
        "_empty",
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
        self._empty = FetchedPartition(ErrorCode.NONE)
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
        isr: IsrState = Committed(state.isr, state.zk_version) if self.is_leader else NOT_LEADING
        if self.is_leader:
            self._take_assignment(state)
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
        others = [broker for broker in state.replicas if broker != self._rules.broker_id]
        self.assignment = ReplicaAssignment(state.replicas, state.adding, state.removing)
        self.remotes = {broker: held.get(broker) or RemoteReplica(broker) for broker in others}
        self._rules.followers.update(self.remotes)

    def _publish(self, state: PartitionState, role: Role, isr: IsrState) -> None:
        self.controller_epoch = state.controller_epoch
        self.zk_version = state.zk_version
        self.isr = isr
        self.leader = state.leader
        self.role = role
        self.leader_epoch = state.leader_epoch

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """Newest epoch of the log's epoch cache; -1 where it knows none."""
        latest = self.log.latest_epoch
        return NO_LEADER_EPOCH if latest is None else latest

    def append_fetched(self, fetched: FetchedPartition, offset: Offset) -> None:
        """Write what the leader sent from `offset` on, then take its high watermark and log start, within what is here.

        Raises RecordsRejected (corrupt, not at our end: records above it would leave a hole), LogStorageError.
        """
        if fetched.records:
            if offset != self.log.log_end_offset:
                raise RecordsRejected(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{self.topic_partition} ends at {self.log.log_end_offset}, and was asked for from {offset} on",
                )
            self.log.append_as_follower(fetched.records)
            crash_point("replication.follower.before_high_watermark")
        self.log.set_high_watermark(fetched.high_watermark)
        if fetched.log_start_offset > self.log.log_start_offset:
            self.log.maybe_increment_log_start(fetched.log_start_offset)

    # High watermark

    def maybe_advance_high_watermark(self, now_ms: int) -> bool:
        """Raise the high watermark to what everybody who counts has; whether it moved.

        Who counts: the maximal ISR, and nearly caught-up replicas that may join: a lone leader may not outrun them for
        ever. Unknown (-1) blocks. It stands still while fewer are in sync than min.insync.replicas, or all (KIP-966).
        """
        if len(self.isr.committed) < min(self._rules.min_insync(self.topic_partition.topic), self.replication_factor):
            return False
        lowest = self.log.log_end_offset
        if self.remotes:
            maximal = self.isr.maximal
            for replica in self.remotes.values():
                if replica.log_end_offset < lowest and (
                    replica.broker in maximal
                    or (replica.caught_up_within(self._rules.lag_ms, now_ms) and self._may_join(replica))
                ):
                    lowest = replica.log_end_offset
        return self.log.maybe_increment_high_watermark(lowest)

    @property
    def replication_factor(self) -> int:
        """How many replicas are assigned; while a reassignment adds and removes some, how many there were before."""
        return max(1, len(self.assignment.origin))

    def low_watermark(self) -> Offset:
        """The first offset that some live replica still has (KIP-107); -1: one has not told in this leader epoch.

        What an earlier incarnation told does not count: after a crash a replica may begin where it did long ago.
        """
        known = self._rules.peers.broker_epoch
        live = [(each, epoch) for each in self.remotes.values() if (epoch := known(each.broker)) is not None]
        starts = [each.log_start_offset if each.broker_epoch == epoch else UNKNOWN_OFFSET for each, epoch in live]
        return min([self.log.log_start_offset, *starts])

    # Fetches of followers

    def admit_follower(self, broker: BrokerId, broker_epoch: BrokerEpoch, current: LeaderEpoch) -> ErrorCode:
        """NONE if the broker may fetch as a follower: it is assigned, and not an older incarnation than is known.

        One that is not known yet may read; whether it counts is seen when it is (`count_fetch`).
        """
        replica = self.remotes.get(broker)
        if replica is None:
            if current == NO_LEADER_EPOCH:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if broker_epoch != NO_BROKER_EPOCH:
            known = self._rules.peers.broker_epoch(broker)
            if known is not None and broker_epoch < known:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def count_fetch(
        self, broker: BrokerId, broker_epoch: BrokerEpoch, wanted: FetchPartition, leader_end: Offset, now_ms: int
    ) -> bool:
        """Take in that an admitted follower has everything below its fetch offset; whether the high watermark moved.

        Counts only with the current leader epoch, of the incarnation that is registered as far as is known; without
        them the fetch reads, and proves nothing: anybody can name any epoch.
        """
        if wanted.current_leader_epoch != self.leader_epoch or broker_epoch != self._rules.peers.broker_epoch(broker):
            return False
        replica = self.remotes[broker]
        moved = replica.count_fetch(wanted, leader_end, broker_epoch, now_ms)
        return moved and self.maybe_advance_high_watermark(now_ms)

    def counts_as_before(
        self, broker: BrokerId, broker_epoch: BrokerEpoch, wanted: FetchPartition, now_ms: int
    ) -> bool:
        """Whether a fetch is word for word the last one and there is still nothing to read; it is counted if so.

        The short way for a follower's thousands of idle partitions: everything `count_fetch` and a read would look at
        was looked at the last time, or is compared here. `wanted` is the same object while a session keeps it.
        """
        replica = self.remotes.get(broker)
        if (
            replica is None
            or replica.idle_fetch is not wanted
            or replica.broker_epoch != broker_epoch
            or wanted.current_leader_epoch != self.leader_epoch
            or wanted.fetch_offset != self.log.log_end_offset
            or broker not in self.isr.maximal
        ):
            return False
        replica.last_fetch_ms = replica.last_caught_up_ms = now_ms
        return True

    def diverging_epoch(self, fetch_offset: Offset, last_fetched_epoch: LeaderEpoch) -> EpochEndOffset | None:
        """Where the fetcher's log leaves ours (both -1: not known), or None; epoch -1 asks nothing (KIP-595)."""
        if last_fetched_epoch == NO_LEADER_EPOCH:
            return None
        if last_fetched_epoch == self.leader_epoch and fetch_offset <= self.log.log_end_offset:
            return None  # what everybody sends who is up to date
        end = self.log.end_offset_for_epoch(last_fetched_epoch)
        if end.leader_epoch < last_fetched_epoch or end.end_offset < fetch_offset:
            return end
        return None

    def forgotten_epoch(self, params: FetchParams, wanted: FetchPartition) -> EpochEndOffset | None:
        """Our log start, to a follower that ends right there with records below it of an epoch older than all we know.

        Our own records below are gone, and nothing says that its were the same: another epoch may have written ours.
        Once it has counted at this offset, in this epoch and since it started, they were compared before we forgot.
        Kafka's brokers let such records pass; its controllers, which follow from a snapshot, do not (KIP-630).
        """
        start = self.log.log_start_offset
        if (
            wanted.fetch_offset != start
            or wanted.log_start_offset >= start
            or wanted.last_fetched_epoch >= self.log.epoch_at(start)
        ):
            return None
        replica = self.remotes.get(params.replica_id)
        if replica is None or replica.has_counted(start, self.leader_epoch, params.replica_epoch):
            return None
        return EpochEndOffset(wanted.last_fetched_epoch, start)

    def nothing_to_read(self) -> FetchedPartition:
        """The answer to a fetch at the end: the same object while high watermark and log start stay the same."""
        high_watermark, start = self.log.high_watermark, self.log.log_start_offset
        if self._empty.high_watermark != high_watermark or self._empty.log_start_offset != start:
            self._empty = FetchedPartition(ErrorCode.NONE, high_watermark, start)
        return self._empty

    # ISR

    def propose_expand(self, now_ms: int) -> IsrChange | None:
        """Add who is in sync again: has the committed records and the start of this epoch by a fetch of this epoch,
        is the incarnation that metadata knows, and is not shutting down (KAFKA-7128, KIP-841, KIP-903).

        Sets the pending state; the caller submits the change.
        """
        if not self._may_propose(now_ms):
            return None
        members = self.isr.committed
        if len(members) > len(self.remotes):
            return None
        least = max(self.log.high_watermark, self.epoch_start)
        joining = tuple(
            replica.broker
            for replica in self.remotes.values()
            if replica.broker not in members
            and replica.log_end_offset >= least
            and replica.fetch_epoch == self.leader_epoch
            and replica.fetched_within(self._rules.lag_ms, now_ms)
            and self._may_join(replica)
        )
        if not joining:
            return None
        pending = PendingExpand(members, joining, self.zk_version)
        who = ", ".join(f"broker {broker}" for broker in joining)
        return self._submit(pending, f"{who} caught up: all below offset {least} is in its log")

    def propose_shrink(self, now_ms: int) -> IsrChange | None:
        """Drop who has been behind for longer than replica.lag.time.max.ms, or is not assigned any more.

        Sets the pending state; the caller submits the change.
        """
        if not self._may_propose(now_ms) or len(self.isr.committed) < 2:
            return None
        end = self.log.log_end_offset
        leaving = tuple(
            member
            for member in self.isr.committed
            if member != self._rules.broker_id
            and (
                (replica := self.remotes.get(member)) is None or replica.is_out_of_sync(end, self._rules.lag_ms, now_ms)
            )
        )
        if not leaving:
            return None
        behind = ", ".join(f"broker {member} at {self._known_end(member)}" for member in leaving)
        pending = PendingShrink(self.isr.committed, leaving, self.zk_version)
        why = f"behind the log end {end} for more than replica.lag.time.max.ms ({self._rules.lag_ms} ms): {behind}"
        return self._submit(pending, why)

    def isr_written(self, pending: Pending, zk_version: ZkVersion) -> bool:
        """A change is in ZooKeeper. False and ignored where something newer replaced the state it was decided on."""
        if self.isr is not pending or zk_version < pending.zk_version:
            return False
        self.isr = Committed(pending.target, zk_version)
        self.zk_version = zk_version
        return True

    def isr_not_written(self, pending: Pending, now_ms: int) -> bool:
        """A change is not in ZooKeeper: what was committed holds. False where something newer replaced it."""
        if self.isr is not pending:
            return False
        self.isr = Committed(pending.committed, pending.zk_version)
        self.isr_rests_until_ms = now_ms + ISR_REST_MS
        return True

    def _may_propose(self, now_ms: int) -> bool:
        return self.is_leader and isinstance(self.isr, Committed) and now_ms >= self.isr_rests_until_ms

    def _submit(self, pending: Pending, why: str) -> IsrChange:
        self.isr = pending
        return IsrChange(
            self.topic_partition,
            self.topic_id,
            self.leader,
            self.leader_epoch,
            self.controller_epoch,
            pending.target,
            pending.zk_version,
            why,
            pending.committed,
            tuple((each, self.remotes[each].broker_epoch) for each in pending.target if each not in pending.committed),
        )

    def _may_join(self, replica: RemoteReplica) -> bool:
        peers = self._rules.peers
        return (
            replica.broker_epoch != NO_BROKER_EPOCH
            and peers.broker_epoch(replica.broker) == replica.broker_epoch
            and not peers.is_shutting_down(replica.broker)
        )

    def _known_end(self, broker: BrokerId) -> str:
        replica = self.remotes.get(broker)
        if replica is None:
            return "no assigned offset"
        return "an unknown offset" if replica.log_end_offset == UNKNOWN_OFFSET else str(replica.log_end_offset)
