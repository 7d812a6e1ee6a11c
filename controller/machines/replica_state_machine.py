"""ReplicaStateMachine: what entering a state means for a replica: ZooKeeper writes, context, desired states.

What has to be true before is in states.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from regency.controller.channel.request_batch import RequestBatch
from regency.controller.machines.partition_state_machine import ROUNDS, note_restarts, refresh_leadership
from regency.controller.state.context import ControllerContext
from regency.controller.state.decisions import DecisionLog, Outcome
from regency.controller.state.election import IsrRemoval, remove_from_isr
from regency.controller.state.states import ReplicaState
from regency.controller.store.access import WriteCode
from regency.controller.store.cluster_store import ClusterStore
from regency.model.crash_points import crash_point
from regency.model.facts import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from regency.model.ids import NO_LEADER, BrokerId, LeaderEpoch, PartitionReplica, TopicPartition, ZkVersion

logger = logging.getLogger(__name__)


class ReplicaStateMachine:
    """Moves replicas between states, in one controller epoch."""

    def __init__(
        self, context: ControllerContext, store: ClusterStore, batch: RequestBatch, decisions: DecisionLog
    ) -> None:
        self._context = context
        self._store = store
        self._batch = batch
        self._decisions = decisions

    def startup(self) -> list[PartitionReplica]:
        """Give every replica its first state: Online ones get what they host.

        Returns the others, provisionally Ineligible, which the caller moves to Offline (KAFKA-3143).
        """
        offline: list[PartitionReplica] = []
        for topic in self._context.topics:
            offline += self._context.begin_replicas(topic)
            self._batch.host_topic(topic)
        return offline

    def handle(self, replicas: Iterable[PartitionReplica], target: ReplicaState) -> dict[PartitionReplica, str]:
        """Move replicas into `target`. Returns why, for those that did not move. Raises ControllerMoved, ZkError."""
        valid, refused = self._validate(replicas, target)
        match target:
            case ReplicaState.NEW:
                refused.update(self._to_new(valid))
            case ReplicaState.ONLINE:
                self._to_online(valid)
            case ReplicaState.OFFLINE:
                refused.update(self._to_offline(valid))
            case ReplicaState.DELETION_STARTED:
                for replica in valid:
                    self._set(replica, target)
                    self._batch.stop(replica.broker, replica.topic_partition, delete=True)
            case ReplicaState.DELETION_SUCCESSFUL | ReplicaState.DELETION_INELIGIBLE:
                for replica in valid:
                    self._set(replica, target)
            case ReplicaState.NON_EXISTENT:
                self._forget(valid)
        return refused

    def _validate(
        self, replicas: Iterable[PartitionReplica], target: ReplicaState
    ) -> tuple[list[PartitionReplica], dict[PartitionReplica, str]]:
        allowed = tuple(target.valid_previous)  # to look in by identity
        valid = []
        refused = {}
        for replica in replicas:
            current = self._context.replica_state(replica.topic_partition, replica.broker)
            if current in allowed and replica.topic in self._context.topics:
                valid.append(replica)
                continue
            names = ", ".join(sorted(state.value for state in allowed))
            refused[replica] = f"{replica} cannot go from {current.value} to {target.value}, only from {names}"
            logger.error("%s", refused[replica])
        return valid, refused

    def _to_new(self, replicas: Sequence[PartitionReplica]) -> dict[PartitionReplica, str]:
        refused = {}
        for replica in replicas:
            partition = replica.topic_partition
            leadership = self._context.leadership(partition)
            if leadership is not None and leadership.leader_and_isr.leader == replica.broker:
                refused[replica] = f"{replica} cannot be new: it leads"
                logger.error("%s", refused[replica])
                continue
            if leadership is not None:
                self._batch.host((replica.broker,), partition, is_new=True)
            self._set(replica, ReplicaState.NEW)
        return refused

    def _to_online(self, replicas: Sequence[PartitionReplica]) -> None:
        context = self._context
        for replica in replicas:
            partition = replica.topic_partition
            if context.replica_state(partition, replica.broker) is ReplicaState.NEW:
                assignment = context.assignment(partition)
                if replica.broker not in assignment.replicas:
                    logger.error(
                        "%s comes online and is not assigned, only %s are: it is added to what this controller knows",
                        replica,
                        list(assignment.replicas),
                    )
                    grown = (*assignment.replicas, replica.broker)
                    context.set_assignment(partition, msgspec.structs.replace(assignment, replicas=grown))
            elif context.leadership(partition) is not None:
                self._batch.host((replica.broker,), partition)
            self._set(replica, ReplicaState.ONLINE)

    def _to_offline(self, replicas: Sequence[PartitionReplica]) -> dict[PartitionReplica, str]:
        """Stop them, and take them out of the ISR: all that go at once in one write per partition.

        The ISR of a topic that is being deleted stays: its state znodes are about to go.
        """
        going: dict[TopicPartition, list[BrokerId]] = {}
        for replica in replicas:
            partition = replica.topic_partition
            self._batch.stop(replica.broker, partition, delete=False)
            going.setdefault(partition, []).append(replica.broker)
        staying = {each: brokers for each, brokers in going.items() if not self._context.is_being_deleted(each.topic)}
        failed = self._remove_from_isrs(staying)
        for partition, brokers in going.items():
            if partition not in failed:
                for broker in brokers:
                    self._context.set_replica_state(partition, broker, ReplicaState.OFFLINE)
                self._batch.metadata((partition,))
        for partition, why in failed.items():
            logger.error("the replicas of %s on brokers %s stay as they are: %s", partition, going[partition], why)
        return {
            PartitionReplica(partition.topic, partition.partition, broker): why
            for partition, why in failed.items()
            for broker in going[partition]
        }

    def _remove_from_isrs(self, going: Mapping[TopicPartition, list[BrokerId]]) -> dict[TopicPartition, str]:
        failed: dict[TopicPartition, str] = {}
        pending = list(going)
        for _ in range(ROUNDS):
            removals = self._decide(pending, going)
            pending = self._commit(removals, going, failed)
            if not pending:
                return failed
            for partition in refresh_leadership(self._context, self._store, pending):
                self._tell_others(partition, going[partition])
        failed.update(dict.fromkeys(pending, f"the state znode changed {ROUNDS} times meanwhile"))
        return failed

    def _decide(
        self, partitions: Sequence[TopicPartition], going: Mapping[TopicPartition, list[BrokerId]]
    ) -> dict[TopicPartition, IsrRemoval]:
        removals = {}
        for partition in partitions:
            leadership = self._context.leadership(partition)
            if leadership is None:
                continue
            now = leadership.leader_and_isr
            replicas = self._context.assignment(partition).replicas
            removal = remove_from_isr(
                replicas,
                now.leader,
                now.isr,
                {*going[partition], *self._context.restarted},
                back=self._context.returning,
                unsure=self._context.unsure_members(partition),
            )
            if removal is not None:
                removals[partition] = removal
        return removals

    def _commit(
        self,
        removals: Mapping[TopicPartition, IsrRemoval],
        going: Mapping[TopicPartition, list[BrokerId]],
        failed: dict[TopicPartition, str],
    ) -> list[TopicPartition]:
        if not removals:
            return []
        decided = {partition: self._next_state(partition, removal) for partition, removal in removals.items()}
        crash_point("controller.isr_shrink.before_write")
        results = self._store.update_states(decided)
        crash_point("controller.isr_shrink.after_write")
        again = []
        for partition, result in results.items():
            if result.code is WriteCode.WRITTEN:
                written = decided[partition].leader_and_isr
                self._enter(partition, written, result.zk_version, going[partition], removals[partition].why)
            elif result.code in (WriteCode.CONFLICT, WriteCode.RESTARTED):
                again.append(partition)
            else:
                failed[partition] = f"the state znode cannot be written: {result.why}"
        note_restarts(self._context, self._store, results.values())
        return again

    def _next_state(self, partition: TopicPartition, removal: IsrRemoval) -> LeaderIsrAndControllerEpoch:
        leadership = self._context.leadership(partition)
        assert leadership is not None, "only known leadership is changed"
        now = leadership.leader_and_isr
        isr = self._context.shared_isr(removal.isr)
        changed = LeaderAndIsr(removal.leader, LeaderEpoch(now.leader_epoch + 1), isr, now.zk_version)
        return LeaderIsrAndControllerEpoch(changed, self._store.fence.epoch)

    def _enter(
        self,
        partition: TopicPartition,
        written: LeaderAndIsr,
        zk_version: ZkVersion,
        gone: Sequence[BrokerId],
        why: str,
    ) -> None:
        context = self._context
        before = context.leadership(partition)
        assert before is not None, "only known leadership is changed"
        after = LeaderAndIsr(written.leader, written.leader_epoch, written.isr, zk_version)
        context.set_leadership(partition, LeaderIsrAndControllerEpoch(after, self._store.fence.epoch))
        self._tell_others(partition, gone)
        lost = after.leader == NO_LEADER and before.leader_and_isr.leader != NO_LEADER
        outcome = Outcome.LEFT_LEADERLESS if lost else Outcome.SHRUNK
        self._decisions.leadership(partition, outcome, before.leader_and_isr, after, why)

    def _tell_others(self, partition: TopicPartition, gone: Sequence[BrokerId]) -> None:
        others = [each for each in self._context.assignment(partition).replicas if each not in gone]
        self._batch.host(others, partition)

    def _forget(self, replicas: Sequence[PartitionReplica]) -> None:
        for replica in replicas:
            partition = replica.topic_partition
            assignment = self._context.assignment(partition)
            remaining = ReplicaAssignment(
                tuple(each for each in assignment.replicas if each != replica.broker),
                tuple(each for each in assignment.adding if each != replica.broker),
                tuple(each for each in assignment.removing if each != replica.broker),
                tuple(each for each in assignment.deleting if each != replica.broker),
            )
            self._context.set_assignment(partition, remaining)
            self._set(replica, ReplicaState.NON_EXISTENT)

    def _set(self, replica: PartitionReplica, state: ReplicaState) -> None:
        self._context.set_replica_state(replica.topic_partition, replica.broker, state)
