"""What controllers order: LeaderAndIsr and StopReplica for partitions of this broker; and failed log directories.

The order of steps is the point: fetchers are stopped before state changes and started after it with a freshly read
offset; everything that can fail is done before a leader epoch is published; who waits is answered when all of it is
done.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from regency.broker_agent.log.errors import LogBusy, LogStorageError
from regency.broker_agent.replication.api import AppliedState, LeaderAddress, PartitionState, Role, StopPartition
from regency.broker_agent.replication.fetcher.fetcher_pool import FetcherPool, FollowTask
from regency.broker_agent.replication.hosting import HostedPartitions
from regency.broker_agent.replication.isr_maintenance import IsrMaintenance
from regency.broker_agent.replication.partition import Partition
from regency.model.crash_points import crash_point
from regency.model.ids import (
    EPOCH_DURING_DELETE,
    NO_LEADER,
    NO_LEADER_EPOCH,
    ZERO_TOPIC_ID,
    BrokerId,
    TopicId,
    TopicPartition,
)
from regency.model.kafka_errors import ErrorCode
from regency.model.state_changes import STATE_CHANGES, traced

logger = logging.getLogger(__name__)

NOT_NOW = ErrorCode.REQUEST_TIMED_OUT
"""What could not be done yet, for lack of descriptors or memory, or of an outcome: the controller asks again."""

_NAMED = 5
"""Partitions a log line names before it only counts."""

Applied = dict[TopicPartition, AppliedState]


class ControlPath:
    """Applies control requests. Callers hold `hosting.completions`."""

    def __init__(self, hosting: HostedPartitions, isr: IsrMaintenance, fetchers: FetcherPool) -> None:
        self._hosting = hosting
        self._isr = isr
        self._fetchers = fetchers
        self._addresses: dict[BrokerId, LeaderAddress] = {}
        self._traced = traced()

    # LeaderAndIsr

    def apply_states(self, states: Sequence[PartitionState], leaders: Mapping[BrokerId, LeaderAddress]) -> Applied:
        """Take every state that is newer than what is held; per partition NONE only when nothing is left to do.

        Lower leader epoch: FENCED_LEADER_EPOCH. Equal, version not newer: what is missing is put in place. Equal,
        version newer: assignment, ISR and version. Higher: the whole transition. Another topic id: untouched,
        INCONSISTENT_TOPIC_ID.
        """
        self._learn(leaders)
        now_ms = self._hosting.clock.monotonic_ms()
        applied: Applied = {}
        transitions: list[PartitionState] = []
        followers: list[Partition] = []
        for state in states:
            error = self._admit(state)
            if error is not None:
                applied[state.topic_partition] = self._answer(state.topic_partition, error)
            elif self._is_transition(state):
                transitions.append(state)
            else:
                self._refresh(state, followers, now_ms)
                applied[state.topic_partition] = self._answer(state.topic_partition, ErrorCode.NONE)
        crash_point("replication.roles.before_fetchers_stop")
        self._fetchers.remove(state.topic_partition for state in transitions)
        crash_point("replication.roles.before_change")
        for state in transitions:
            error = self._transition(state, followers, now_ms)
            applied[state.topic_partition] = self._answer(state.topic_partition, error)
        crash_point("replication.roles.before_fetchers_start")
        for name in self._follow(followers):
            applied[name] = self._answer(name, ErrorCode.LEADER_NOT_AVAILABLE)
        self._fetchers.stop_idle()
        self._tell(transitions)
        return applied

    def _learn(self, leaders: Mapping[BrokerId, LeaderAddress]) -> None:
        for broker, address in leaders.items():
            held = self._addresses.get(broker)
            if held is None or address.broker_epoch >= held.broker_epoch:
                self._addresses[broker] = address

    def _admit(self, state: PartitionState) -> ErrorCode | None:
        """Why the state is refused, or None."""
        partition = self._hosting.partitions.get(state.topic_partition)
        held_id = partition.topic_id if partition else self._logged_topic_id(state)
        if held_id != state.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if partition is not None:
            if partition.role is Role.OFFLINE:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if state.leader_epoch < partition.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            contradicts = state.leader_epoch == partition.leader_epoch and state.leader != partition.leader
            if contradicts and partition.role is not Role.NONE:
                logger.error(
                    "%s: told that %d leads in leader epoch %d, where %d does",
                    state.topic_partition,
                    state.leader,
                    state.leader_epoch,
                    partition.leader,
                )
                return ErrorCode.FENCED_LEADER_EPOCH
        if self._hosting.broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return None

    def _logged_topic_id(self, state: PartitionState) -> TopicId:
        """Id of the log that is there; one without gets the state's when it is taken into use."""
        log = self._hosting.logs.get(state.topic_partition)
        return state.topic_id if log is None or log.topic_id == ZERO_TOPIC_ID else log.topic_id

    def _is_transition(self, state: PartitionState) -> bool:
        partition = self._hosting.partitions.get(state.topic_partition)
        return partition is None or partition.role is Role.NONE or state.leader_epoch > partition.leader_epoch

    def _refresh(self, state: PartitionState, followers: list[Partition], now_ms: int) -> None:
        """The same leader epoch again."""
        partition = self._hosting.partitions[state.topic_partition]
        if state.zk_version > partition.zk_version:
            partition.update_state(state)
            if partition.is_leader:
                if partition.maybe_advance_high_watermark(now_ms):
                    self._hosting.changed(partition.topic_partition)
                self._isr.expand(partition, now_ms)
        if partition.role is Role.FOLLOWER and not self._fetchers.is_following(partition.topic_partition):
            followers.append(partition)

    def _transition(self, state: PartitionState, followers: list[Partition], now_ms: int) -> ErrorCode:
        partition = self._hosting.partitions.get(state.topic_partition)
        try:
            if partition is None:
                partition = self._open(state)
                crash_point("replication.log.before_epoch")
            before = _role(partition) if self._traced else ""
            if state.leader == self._hosting.broker_id:
                partition.become_leader(state, now_ms)
                partition.maybe_advance_high_watermark(now_ms)
            else:
                partition.become_follower(state)
                followers.append(partition)
        except LogBusy:
            return NOT_NOW
        except LogStorageError as error:
            logger.error("%s cannot be hosted: %s", state.topic_partition, error)  # noqa: TRY400 (expected, without a stack)
            if partition is None:
                self._hosting.homeless.add(state.topic_partition)
            else:
                self._take_offline(partition)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._traced:
            self._trace(before, partition, state)
        self._hosting.homeless.discard(state.topic_partition)
        self._hosting.host(partition)
        self._hosting.changed(partition.topic_partition)
        self._hosting.role_changed(partition.topic_partition)
        return ErrorCode.NONE

    def _trace(self, before: str, partition: Partition, state: PartitionState) -> None:
        STATE_CHANGES.debug(
            "[Broker id=%d controller epoch=%d] Changed %s from %s to %s, offset %d, high watermark %d, isr %s",
            self._hosting.broker_id,
            state.controller_epoch,
            partition.topic_partition,
            before,
            _role(partition),
            partition.log.log_end_offset,
            partition.log.high_watermark,
            list(state.isr),
        )

    def _open(self, state: PartitionState) -> Partition:
        """The partition on its log, which is made where there is none; its high watermark is the checkpointed one."""
        hosting = self._hosting
        name = state.topic_partition
        log = hosting.logs.get(name)
        if log is None:
            crash_point("replication.log.before_creation")
            log = hosting.logs.create(name, state.topic_id, hosting.topic_config(name.topic), is_new=state.is_new)
        elif log.topic_id == ZERO_TOPIC_ID:
            log.set_topic_id(state.topic_id)
        log.set_high_watermark(hosting.logs.high_watermark_checkpoint(name))
        return Partition(name, state.topic_id, log, hosting.rules)

    def _follow(self, followers: Sequence[Partition]) -> list[TopicPartition]:
        """Start fetching; the partitions whose leader has no address. No leader at all is nothing to wait for."""
        unreachable: list[TopicPartition] = []
        tasks: dict[BrokerId, list[FollowTask]] = {}
        for partition in followers:
            address = self._addresses.get(partition.leader)
            if address is not None:
                partition.leader_broker_epoch = address.broker_epoch
                tasks.setdefault(partition.leader, []).append(FollowTask(partition, partition.leader_epoch))
            elif partition.leader != NO_LEADER:
                logger.warning("%s: its leader %d came without an address", partition.topic_partition, partition.leader)
                unreachable.append(partition.topic_partition)
        for leader, of_leader in tasks.items():
            self._fetchers.follow(self._addresses[leader], of_leader)
        return unreachable

    def _answer(self, name: TopicPartition, error: ErrorCode) -> AppliedState:
        partition = self._hosting.partitions.get(name)
        return AppliedState(error, partition.leader_epoch if partition else NO_LEADER_EPOCH)

    def _tell(self, transitions: Sequence[PartitionState]) -> None:
        """One line per role, however many partitions."""
        own = self._hosting.broker_id
        held = self._hosting.partitions
        done = [
            state
            for state in transitions
            if (partition := held.get(state.topic_partition)) and partition.leader_epoch == state.leader_epoch
        ]
        leading = [f"{state.topic_partition} in epoch {state.leader_epoch}" for state in done if state.leader == own]
        following = [
            f"{state.topic_partition} of {state.leader} in epoch {state.leader_epoch}"
            for state in done
            if state.leader != own
        ]
        if leading:
            logger.info("leading %s", _listed(leading))
        if following:
            logger.info("following %s", _listed(following))

    # StopReplica

    def stop_replicas(self, stops: Sequence[StopPartition]) -> Applied:
        """Give up leading or following, and where asked delete the log. Repeating it is harmless."""
        applied: Applied = {}
        accepted: list[StopPartition] = []
        for stop in stops:
            error = self._admit_stop(stop)
            if error is ErrorCode.NONE:
                accepted.append(stop)
            else:
                applied[stop.topic_partition] = self._answer(stop.topic_partition, error)
        self._fetchers.remove(stop.topic_partition for stop in accepted)
        crash_point("replication.stop.before_logs_removed")
        for stop in accepted:
            error = self._stop(stop)
            applied[stop.topic_partition] = self._answer(stop.topic_partition, error)
        crash_point("replication.stop.after_logs_removed")
        self._fetchers.stop_idle()
        if accepted:
            stopped = [f"{stop.topic_partition}{' and deleted it' if stop.delete else ''}" for stop in accepted]
            logger.info("stopped %s", _listed(stopped))
        return applied

    def _admit_stop(self, stop: StopPartition) -> ErrorCode:
        partition = self._hosting.partitions.get(stop.topic_partition)
        log = self._hosting.logs.get(stop.topic_partition)
        held_id = partition.topic_id if partition else log.topic_id if log else ZERO_TOPIC_ID
        if held_id not in (ZERO_TOPIC_ID, stop.topic_id):
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if partition is None:
            out_of_reach = stop.delete and log is None and self._hosting.may_be_offline(stop.topic_partition)
            return ErrorCode.KAFKA_STORAGE_ERROR if out_of_reach else ErrorCode.NONE
        if partition.role is Role.OFFLINE and stop.delete:
            return ErrorCode.KAFKA_STORAGE_ERROR
        unchecked = stop.leader_epoch in (NO_LEADER_EPOCH, EPOCH_DURING_DELETE)
        if not unchecked and stop.leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.NONE

    def _stop(self, stop: StopPartition) -> ErrorCode:
        hosting = self._hosting
        name = stop.topic_partition
        partition = hosting.partitions.get(name)
        error = ErrorCode.NONE
        if partition is not None and partition.role is not Role.OFFLINE:
            partition.stop()
        if stop.delete and not self._isr.withdraw(name):
            error = (
                NOT_NOW  # confirmed, its topic may be created again, with a state of the version that the write names
            )
        elif stop.delete:
            try:
                hosting.logs.delete_async(name)
            except LogBusy:
                error = NOT_NOW
            except LogStorageError as failure:
                logger.error("%s cannot be deleted: %s", name, failure)  # noqa: TRY400 (expected, without a stack)
                error = ErrorCode.KAFKA_STORAGE_ERROR
            else:
                if partition is not None:
                    hosting.forget(partition)
                if hosting.logs.offline_dirs:
                    hosting.deleted.add(name)
        hosting.changed(name)
        hosting.role_changed(name)
        return error

    def forget(self, names: Iterable[TopicPartition]) -> None:
        """Give up hosting partitions whose topic is gone; their logs stay."""
        hosted = self._hosting.partitions
        gone = [hosted[name] for name in names if name in hosted]
        self._fetchers.remove(partition.topic_partition for partition in gone)
        crash_point("replication.forget.before_change")
        for partition in gone:
            partition.stop()
            self._isr.withdraw(partition.topic_partition)
            self._hosting.forget(partition)
            self._hosting.changed(partition.topic_partition)
            self._hosting.role_changed(partition.topic_partition)
        self._fetchers.stop_idle()

    # Failed directories

    def handle_dir_failure(self, path: Path, reason: str) -> None:
        """Every replica in the directory is out of reach until the agent is started again."""
        lost = [partition for partition in self._hosting.partitions.values() if partition.log.directory.parent == path]
        self._fetchers.remove(partition.topic_partition for partition in lost)
        crash_point("replication.directory.before_offline")
        for partition in lost:
            self._take_offline(partition)
        self._fetchers.stop_idle()
        if lost:
            names = [str(partition.topic_partition) for partition in lost]
            logger.error("log directory %s failed (%s): offline %s", path, reason, _listed(names))

    def _take_offline(self, partition: Partition) -> None:
        partition.stop(Role.OFFLINE)
        self._hosting.host(partition)
        self._hosting.changed(partition.topic_partition)
        self._hosting.role_changed(partition.topic_partition)


def _role(partition: Partition) -> str:
    followed = f" of {partition.leader}" if partition.role is Role.FOLLOWER else ""
    return f"{partition.role.value}{followed} in leader epoch {partition.leader_epoch}"


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - _NAMED
    return ", ".join(listed[:_NAMED]) + (f" and {more} more" if more > 0 else "")
