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
from simulation.defects.patching import Defect, Patch


def _same_epoch(state: LeaderIsrAndControllerEpoch) -> LeaderIsrAndControllerEpoch:
    now = state.leader_and_isr
    return msgspec.structs.replace(
        state, leader_and_isr=msgspec.structs.replace(now, leader_epoch=LeaderEpoch(now.leader_epoch - 1))
    )


def _epoch_kept_by_elections(patch: Patch) -> None:
    _epoch_kept_by(PartitionStateMachine, patch)


def _epoch_kept_by_shrinks(patch: Patch) -> None:
    _epoch_kept_by(ReplicaStateMachine, patch)


def _epoch_kept_by(machine: type[StateMachine], patch: Patch) -> None:
    decide = StateMachine._next_state

    def kept(self: StateMachine, partition: TopicPartition, election: Election) -> LeaderIsrAndControllerEpoch:
        state = decide(self, partition, election)
        return _same_epoch(state) if isinstance(self, machine) else state

    patch.set(StateMachine, "_next_state", kept)


def _empty_isr(patch: Patch) -> None:
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


def _dead_elected(patch: Patch) -> None:
    def elect(
        assignment: Sequence[BrokerId],
        isr: Sequence[BrokerId],
        online: Collection[BrokerId],
        unsure: Collection[BrokerId],
    ) -> Election:
        del online
        return elect_offline(assignment, isr, assignment, unsure)

    patch.set(leader_choice, "elect_offline", elect)


def _lossy_last_leads(patch: Patch) -> None:
    def elect(
        assignment: Sequence[BrokerId],
        isr: Sequence[BrokerId],
        online: Collection[BrokerId],
        unsure: Collection[BrokerId],
    ) -> Election:
        del unsure
        return elect_offline(assignment, isr, online)

    patch.set(leader_choice, "elect_offline", elect)


def _anybody_elected(patch: Patch) -> None:
    def every(self: LeaderChoice, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        del self
        return list(partitions)

    patch.set(LeaderChoice, "_allowed", every)


def _whatever_version(patch: Patch) -> None:
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


def _conflict_is_written(patch: Patch) -> None:
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


def _dead_leader_at_failover(patch: Patch) -> None:
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


def _bounce_over_failover(patch: Patch) -> None:
    patch.set(failover, "find_bounced", _nobody_bounced)


def _bounce_before_isr_change(patch: Patch) -> None:
    patch.set(isr_changes, "find_bounced", _nobody_bounced)


def _lost_state_unasked(patch: Patch) -> None:
    patch.edit(PartitionStateMachine, "_initialise", ("elif partition in self._stateless:", "elif False:"))


def _epochs_believed(patch: Patch) -> None:
    bound = "epoch > min(now.leader_epoch + LARGEST_LEAP, LAST_LEADER_EPOCH - 1)"
    patch.edit(PartitionStateMachine, "overtake", (bound, "epoch >= LAST_LEADER_EPOCH"))


def _bounce_unnoticed(patch: Patch) -> None:
    def compare(known: Mapping[BrokerId, Broker], registered: Mapping[BrokerId, Broker]) -> BrokerChanges:
        changes = compare_brokers(known, registered)
        return BrokerChanges(changes.new, (), changes.dead, (*changes.modified, *changes.bounced))

    patch.set(brokers, "compare_brokers", compare)


def _leaver_elected(patch: Patch) -> None:
    def everybody(self: ControllerContext) -> None:
        self.usable = frozenset(self.brokers)

    patch.set(ControllerContext, "_refresh_usable", everybody)


def _leaving_for_ever(patch: Patch) -> None:
    def remove(self: ControllerContext, broker: BrokerId) -> None:
        self.brokers.pop(broker, None)
        self.offline_replicas.pop(broker, None)
        self._refresh_usable()

    patch.set(ControllerContext, "remove_broker", remove)
    patch.set(routes, "ANSWERS", {**routes.ANSWERS, ShutdownsOverdue: lambda _term, _event: None})


def _shutdown_of_another_incarnation(patch: Patch) -> None:
    def shut_down(term: Term, event: ControlledShutdown) -> ShutdownOutcome:
        return shut_down_broker(term, ControlledShutdown(event.broker, NO_BROKER_EPOCH))

    patch.set(routes, "REQUESTS", {**routes.REQUESTS, ControlledShutdown: shut_down})


def _dead_stay_in_sync(patch: Patch) -> None:
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


def _unread_notifications(patch: Patch) -> None:
    delete = ClusterStore.delete_notifications

    def all_there_are(self: ClusterStore, listed: Sequence[str]) -> None:
        del listed
        delete(self, self.isr_notifications())

    patch.set(ClusterStore, "delete_notifications", all_there_are)


def _isr_changes_untold(patch: Patch) -> None:
    def untold(
        context: ControllerContext, store: ClusterStore, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        changed = refresh_leadership(context, store, partitions)
        changed.clear()
        return changed

    patch.set(isr_changes, "refresh_leadership", untold)


def _created_anew_unnoticed(patch: Patch) -> None:
    patch.edit(topics, "load_topics", ("topic.topic_id != entry.topic_id:", "False:"))


DEFECTS: tuple[Defect, ...] = (
    Defect(
        "epoch-kept-by-elections",
        "An election writes a leader and keeps the leader epoch.",
        "Kafka 2.4",
        _epoch_kept_by_elections,
    ),
    Defect(
        "epoch-kept-by-shrinks",
        "Taking a dead replica out of the ISR keeps the leader epoch.",
        "Kafka 2.4",
        _epoch_kept_by_shrinks,
    ),
    Defect("isr-shrunk-to-nothing", "The last member leaves the ISR too.", "Kafka 2.4", _empty_isr),
    Defect("dead-leader-elected", "An election does not ask who is live.", "Kafka 2.4", _dead_elected),
    Defect(
        "lossy-last-leads",
        "The last one in sync leads at once, also where it is back from a power cut and others have more.",
        "KIP-966",
        _lossy_last_leads,
    ),
    Defect(
        "unclean-without-leave",
        "Where nobody in sync is live, anybody live is elected, whatever the settings say.",
        "KIP-106",
        _anybody_elected,
    ),
    Defect("whatever-version", "States are written over whatever version stands there.", "own rule", _whatever_version),
    Defect(
        "conflict-counts-as-written",
        "A state that somebody else wrote meanwhile counts as written.",
        "own rule",
        _conflict_is_written,
    ),
    Defect(
        "dead-leader-at-failover",
        "A failover takes every partition that has a state for online.",
        "KAFKA-3143",
        _dead_leader_at_failover,
    ),
    Defect(
        "bounce-over-failover",
        "A failover does not look who has restarted since the last decision about it.",
        "KAFKA-1120, KAFKA-3143",
        _bounce_over_failover,
    ),
    Defect(
        "bounce-before-isr-change",
        "An ISR change is taken in although a member has restarted since it was written.",
        "KAFKA-1120",
        _bounce_before_isr_change,
    ),
    Defect(
        "bounce-unnoticed",
        "Another incarnation under the same id counts as the same broker.",
        "KAFKA-1120, KIP-380",
        _bounce_unnoticed,
    ),
    Defect(
        "lost-state-unasked",
        "A partition whose state znode is lost gets its first live replica for leader, and all live ones for its ISR.",
        "Kafka 2.4",
        _lost_state_unasked,
    ),
    Defect(
        "any-leader-epoch-believed",
        "A controller goes beyond whatever leader epoch a broker says it holds.",
        "own rule",
        _epochs_believed,
    ),
    Defect("leaver-elected", "A broker that is shutting down may be elected.", "KAFKA-14140", _leaver_elected),
    Defect(
        "leaving-for-ever",
        "That a broker is shutting down is not forgotten when it is gone.",
        "Kafka 2.4",
        _leaving_for_ever,
    ),
    Defect(
        "shutdown-of-another-incarnation",
        "A controlled shutdown is not compared with the broker epoch that asked for it.",
        "KAFKA-7235",
        _shutdown_of_another_incarnation,
    ),
    Defect(
        "dead-stay-in-sync",
        "Dead followers stay in the ISR until their leader takes them out.",
        "Kafka 2.4",
        _dead_stay_in_sync,
    ),
    Defect(
        "notifications-deleted-unread",
        "Every ISR notification there is is deleted, also those that came after the list was read.",
        "Kafka 2.4",
        _unread_notifications,
    ),
    Defect(
        "isr-changes-untold",
        "The ISR that a leader wrote is taken in, and nobody is told of it.",
        "Kafka 2.4",
        _isr_changes_untold,
    ),
    Defect(
        "created-anew-unnoticed",
        "A topic that was deleted and made anew between two reads counts as the one before.",
        "Kafka 2.4",
        _created_anew_unnoticed,
    ),
)
"""In the order of the table."""
