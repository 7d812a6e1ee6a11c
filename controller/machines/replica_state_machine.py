"""ReplicaStateMachine: what entering a state means for a replica: ZooKeeper writes, context, desired states.

What has to be true before is in states.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import msgspec

from regency.controller.machines.state_machine import Failed, StateMachine, States, refresh_leadership
from regency.controller.state.decisions import Outcome
from regency.controller.state.election import Election, remove_from_isr
from regency.controller.state.states import ReplicaState
from regency.controller.store.access import WriteResult
from regency.model.crash_points import crash_point
from regency.model.facts import LeaderAndIsr, ReplicaAssignment
from regency.model.ids import NO_LEADER, BrokerId, PartitionReplica, TopicPartition

logger = logging.getLogger(__name__)


class ReplicaStateMachine(StateMachine):
    """Moves replicas between states, in one controller epoch."""

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
        valid, refused = self._validate(replicas, target, self._state_of)
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
            PartitionReplica(*partition, broker): why
            for partition, why in failed.items()
            for broker in going[partition]
        }

    def _remove_from_isrs(self, going: Mapping[TopicPartition, list[BrokerId]]) -> dict[TopicPartition, str]:
        return self._settle(
            going,
            partial(self._decide, going=going),
            self._write,
            partial(self._enter, going=going),
            partial(self._read_again, going=going),
        )

    def _decide(
        self, partitions: Sequence[TopicPartition], _failed: Failed, *, going: Mapping[TopicPartition, list[BrokerId]]
    ) -> dict[TopicPartition, Election]:
        removals = {}
        for partition in partitions:
            leadership = self._context.leadership(partition)
            if leadership is None:
                continue
            now = leadership.leader_and_isr
            former = self._context.former_members(partition)
            removal = remove_from_isr(
                self._context.assignment(partition).replicas,
                now.leader,
                now.isr,
                {*going[partition], *self._context.restarted, *former},
                back={*self._context.returning, *former},
                unsure=self._context.unsure_members(partition),
            )
            if removal is not None:
                removals[partition] = removal
        return removals

    def _write(self, states: States) -> Mapping[TopicPartition, WriteResult]:
        crash_point("controller.isr_shrink.before_write")
        return self._store.update_states(states)

    def _enter(
        self,
        partition: TopicPartition,
        before: LeaderAndIsr,
        after: LeaderAndIsr,
        removal: Election,
        *,
        going: Mapping[TopicPartition, list[BrokerId]],
    ) -> None:
        self._tell_others(partition, going[partition])
        lost = after.leader == NO_LEADER and before.leader != NO_LEADER
        outcome = Outcome.LEFT_LEADERLESS if lost else Outcome.SHRUNK
        self._decisions.leadership(partition, outcome, before, after, removal.why)

    def _read_again(
        self, partitions: Sequence[TopicPartition], *, going: Mapping[TopicPartition, list[BrokerId]]
    ) -> list[TopicPartition]:
        changed = list(refresh_leadership(self._context, self._store, partitions))
        for partition in changed:
            self._tell_others(partition, going[partition])
        return changed

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

    def _state_of(self, replica: PartitionReplica) -> ReplicaState:
        return self._context.replica_state(replica.topic_partition, replica.broker)
