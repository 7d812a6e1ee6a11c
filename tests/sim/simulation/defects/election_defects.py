"""Defects of what the controller decides: elections, ISRs, brokers that die, return or leave."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from regency.controller import failover, routes
from regency.controller.brokers import membership as brokers
from regency.controller.brokers import notifications as isr_changes
from regency.controller.brokers.membership import BrokerChanges, compare_brokers
from regency.controller.elections.controlled_shutdown import (
    ControlledShutdown,
    ShutdownOutcome,
    ShutdownsOverdue,
    shut_down_broker,
)
from regency.controller.machines import leader_choice
from regency.controller.machines import replica_state_machine as replica_states
from regency.controller.machines.leader_choice import LeaderChoice
from regency.controller.machines.partition_state_machine import PartitionStateMachine
from regency.controller.machines.replica_state_machine import ReplicaStateMachine
from regency.controller.machines.state_machine import StateMachine, refresh_leadership
from regency.controller.state.context import ControllerContext
from regency.controller.state.election import Election, elect_offline, remove_from_isr
from regency.controller.state.states import PartitionState
from regency.controller.store.access import WriteCode, WriteResult
from regency.controller.store.cluster_store import ClusterStore
from regency.controller.term import Term
from regency.controller.topics import topics
from regency.model.facts import Broker, LeaderIsrAndControllerEpoch
from regency.model.ids import NO_BROKER_EPOCH, BrokerId, LeaderEpoch, TopicPartition, ZkVersion
from regency.model.znodes import paths
from simulation.defects.patching import Defects, Patch

DEFECTS = Defects()


def _same_epoch(state: LeaderIsrAndControllerEpoch) -> LeaderIsrAndControllerEpoch:
    now = state.leader_and_isr
    return msgspec.structs.replace(
        state, leader_and_isr=msgspec.structs.replace(now, leader_epoch=LeaderEpoch(now.leader_epoch - 1))
    )


@DEFECTS.of("Kafka 2.4")
def epoch_kept_by_elections(patch: Patch) -> None:
    """An election writes a leader and keeps the leader epoch."""
    _epoch_kept_by(PartitionStateMachine, patch)


@DEFECTS.of("Kafka 2.4")
def epoch_kept_by_shrinks(patch: Patch) -> None:
    """Taking a dead replica out of the ISR keeps the leader epoch."""
    _epoch_kept_by(ReplicaStateMachine, patch)


def _epoch_kept_by(machine: type[StateMachine], patch: Patch) -> None:
    decide = StateMachine._next_state

    def kept(self: StateMachine, partition: TopicPartition, election: Election) -> LeaderIsrAndControllerEpoch:
        state = decide(self, partition, election)
        return _same_epoch(state) if isinstance(self, machine) else state

    patch.set(StateMachine, "_next_state", kept)


@DEFECTS.of("Kafka 2.4")
def isr_shrunk_to_nothing(patch: Patch) -> None:
    """The last member leaves the ISR too."""

    def removed(
        assignment: Sequence[BrokerId],
        leader: BrokerId,
        isr: Sequence[BrokerId],
        offline: Collection[BrokerId],
        **others: Collection[BrokerId],
    ) -> Election | None:
        removal = remove_from_isr(assignment, leader, isr, offline, **others)
        if removal is None:
            return None
        return Election(removal.leader, tuple(each for each in isr if each not in offline), removal.why)

    patch.set(replica_states, "remove_from_isr", removed)


@DEFECTS.of("Kafka 2.4")
def dead_leader_elected(patch: Patch) -> None:
    """An election does not ask who is live."""

    def elect(
        assignment: Sequence[BrokerId],
        isr: Sequence[BrokerId],
        online: Collection[BrokerId],
        unsure: Collection[BrokerId],
    ) -> Election:
        del online
        return elect_offline(assignment, isr, assignment, unsure)

    patch.set(leader_choice, "elect_offline", elect)


@DEFECTS.of("own rule")
def later_epoch_is_longer(patch: Patch) -> None:
    """Who is not in sync leads in place of the last one with a log that ends later, whatever it lacks of that one's."""
    patch.edit(leader_choice, "elect_restarted", ("known[replica].extends(known[base])", "True"))


@DEFECTS.of("KIP-966")
def lossy_last_leads(patch: Patch) -> None:
    """The last one in sync leads at once, also where it is back from a power cut and others have more."""

    def elect(
        assignment: Sequence[BrokerId],
        isr: Sequence[BrokerId],
        online: Collection[BrokerId],
        unsure: Collection[BrokerId],
    ) -> Election:
        del unsure
        return elect_offline(assignment, isr, online)

    patch.set(leader_choice, "elect_offline", elect)


@DEFECTS.of("KIP-106")
def unclean_without_leave(patch: Patch) -> None:
    """Where nobody in sync is live, anybody live is elected, whatever the settings say."""

    def every(self: LeaderChoice, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        del self
        return list(partitions)

    patch.set(LeaderChoice, "_allowed", every)


@DEFECTS.of("own rule")
def whatever_version(patch: Patch) -> None:
    """States are written over whatever version stands there."""
    update = ClusterStore.update_states

    def over(
        self: ClusterStore, states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch]
    ) -> dict[TopicPartition, WriteResult]:
        held = self.access.read_many([paths.partition_state(partition) for partition in states])
        unconditional = {
            partition: state if znode is None else _at_version(state, znode.stat.version)
            for (partition, state), znode in zip(states.items(), held, strict=True)
        }
        return update(self, unconditional)

    patch.set(ClusterStore, "update_states", over)


def _at_version(state: LeaderIsrAndControllerEpoch, version: int) -> LeaderIsrAndControllerEpoch:
    now = msgspec.structs.replace(state.leader_and_isr, zk_version=ZkVersion(version))
    return msgspec.structs.replace(state, leader_and_isr=now)


@DEFECTS.of("own rule")
def conflict_counts_as_written(patch: Patch) -> None:
    """A state that somebody else wrote meanwhile counts as written."""
    update = ClusterStore.update_states

    def believed(
        self: ClusterStore, states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch]
    ) -> dict[TopicPartition, WriteResult]:
        return {
            partition: WriteResult(WriteCode.WRITTEN, ZkVersion(states[partition].leader_and_isr.zk_version + 1))
            if result.code is WriteCode.CONFLICT
            else result
            for partition, result in update(self, states).items()
        }

    patch.set(ClusterStore, "update_states", believed)


@DEFECTS.of("KAFKA-3143")
def dead_leader_at_failover(patch: Patch) -> None:
    """A failover takes every partition that has a state for online."""

    def startup(self: PartitionStateMachine) -> None:
        for partition in self._context.partitions():
            known = self._context.leadership(partition) is not None
            self._context.set_partition_state(partition, PartitionState.ONLINE if known else PartitionState.NEW)
        self.trigger_online()

    patch.set(PartitionStateMachine, "startup", startup)


def _nobody_bounced(
    context: ControllerContext, mzxids: Mapping[TopicPartition, int]
) -> dict[BrokerId, list[TopicPartition]]:
    del context, mzxids
    return {}


@DEFECTS.of("KAFKA-1120, KAFKA-3143")
def bounce_over_failover(patch: Patch) -> None:
    """A failover does not look who has restarted since the last decision about it."""
    patch.set(failover, "find_bounced", _nobody_bounced)


@DEFECTS.of("KAFKA-1120")
def bounce_before_isr_change(patch: Patch) -> None:
    """An ISR change is taken in although a member has restarted since it was written."""
    patch.set(isr_changes, "find_bounced", _nobody_bounced)


@DEFECTS.of("Kafka 2.4")
def lost_state_unasked(patch: Patch) -> None:
    """A partition whose state znode is lost gets its first live replica for leader, and all live ones for its ISR."""
    patch.edit(PartitionStateMachine, "_initialise", ("elif partition in self._stateless:", "elif False:"))


@DEFECTS.of("own rule")
def any_leader_epoch_believed(patch: Patch) -> None:
    """A controller goes beyond whatever leader epoch a broker says it holds."""
    bound = "epoch > min(now.leader_epoch + LARGEST_LEAP, LAST_LEADER_EPOCH - 1)"
    patch.edit(PartitionStateMachine, "overtake", (bound, "epoch >= LAST_LEADER_EPOCH"))


@DEFECTS.of("KAFKA-1120, KIP-380")
def bounce_unnoticed(patch: Patch) -> None:
    """Another incarnation under the same id counts as the same broker."""

    def compare(known: Mapping[BrokerId, Broker], registered: Mapping[BrokerId, Broker]) -> BrokerChanges:
        changes = compare_brokers(known, registered)
        return BrokerChanges(changes.new, (), changes.dead, (*changes.modified, *changes.bounced))

    patch.set(brokers, "compare_brokers", compare)


@DEFECTS.of("KAFKA-14140")
def leaver_elected(patch: Patch) -> None:
    """A broker that is shutting down may be elected."""

    def everybody(self: ControllerContext) -> None:
        self.usable = frozenset(self.brokers)

    patch.set(ControllerContext, "_refresh_usable", everybody)


@DEFECTS.of("Kafka 2.4")
def leaving_for_ever(patch: Patch) -> None:
    """That a broker is shutting down is not forgotten when it is gone."""

    def remove(self: ControllerContext, broker: BrokerId) -> None:
        self.brokers.pop(broker, None)
        self.offline_replicas.pop(broker, None)
        self._refresh_usable()

    patch.set(ControllerContext, "remove_broker", remove)
    patch.set(routes, "ANSWERS", {**routes.ANSWERS, ShutdownsOverdue: lambda _term, _event: None})


@DEFECTS.of("KAFKA-7235")
def shutdown_of_another_incarnation(patch: Patch) -> None:
    """A controlled shutdown is not compared with the broker epoch that asked for it."""

    def shut_down(term: Term, event: ControlledShutdown) -> ShutdownOutcome:
        return shut_down_broker(term, ControlledShutdown(event.broker, NO_BROKER_EPOCH))

    patch.set(routes, "REQUESTS", {**routes.REQUESTS, ControlledShutdown: shut_down})


@DEFECTS.of("Kafka 2.4")
def dead_stay_in_sync(patch: Patch) -> None:
    """Dead followers stay in the ISR until their leader takes them out."""

    def removed(
        assignment: Sequence[BrokerId],
        leader: BrokerId,
        isr: Sequence[BrokerId],
        offline: Collection[BrokerId],
        **of_these: Collection[BrokerId],
    ) -> Election | None:
        if leader not in offline:
            return None
        removal = remove_from_isr(assignment, leader, isr, offline, **of_these)
        return removal and Election(removal.leader, tuple(isr), removal.why)

    patch.set(replica_states, "remove_from_isr", removed)


@DEFECTS.of("Kafka 2.4")
def notifications_deleted_unread(patch: Patch) -> None:
    """Every ISR notification there is is deleted, also those that came after the list was read."""
    delete = ClusterStore.delete_notifications

    def all_there_are(self: ClusterStore, listed: Sequence[str]) -> None:
        del listed
        delete(self, self.isr_notifications())

    patch.set(ClusterStore, "delete_notifications", all_there_are)


@DEFECTS.of("Kafka 2.4")
def isr_changes_untold(patch: Patch) -> None:
    """The ISR that a leader wrote is taken in, and nobody is told of it."""

    def untold(
        context: ControllerContext, store: ClusterStore, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        changed = refresh_leadership(context, store, partitions)
        changed.clear()
        return changed

    patch.set(isr_changes, "refresh_leadership", untold)


@DEFECTS.of("Kafka 2.4")
def created_anew_unnoticed(patch: Patch) -> None:
    """A topic that was deleted and made anew between two reads counts as the one before."""
    patch.edit(topics, "load_topics", ("topic.topic_id != entry.topic_id:", "False:"))
