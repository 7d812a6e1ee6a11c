"""What brokers should report to host, and what a difference to that means. Pure.

Per replica, and as one digest per broker: the digests are kept, and worked out again for the topics that were touched
only, so that it costs next to nothing to see that a broker with a hundred thousand replicas hosts what it should.
Source: protos/controller.proto (ReportReplicas); KAFKA-13790 for roles and fetchers that were lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import msgspec

from regency.controller.state.context import ControllerContext
from regency.controller.state.reports import ReplicaReport
from regency.controller.state.states import ReplicaState
from regency.controller.state.topic_entry import ReplicaStates, TopicEntry
from regency.model.hosting import SERVED, HostedRole, replaced, replica_number, topic_number
from regency.model.ids import LARGEST_LEAP, BrokerId, LeaderEpoch, TopicId, TopicPartition, ZkVersion


class Expected(msgspec.Struct, frozen=True):
    """What one broker shall be to a partition."""

    topic_id: TopicId
    role: HostedRole
    leader: BrokerId
    leader_epoch: LeaderEpoch
    zk_version: ZkVersion

    def __str__(self) -> str:
        """In words."""
        if self.role is HostedRole.LEADER:
            return f"lead in leader epoch {self.leader_epoch} at version {self.zk_version}"
        return f"follow {self.leader} in leader epoch {self.leader_epoch}"


def expected(context: ControllerContext, broker: BrokerId, partition: TopicPartition) -> Expected | None:
    """What a broker shall be to a partition; None where it is not to host it, or cannot now."""
    leadership = context.leadership(partition)
    if leadership is None or broker not in context.assignment(partition).replicas:
        return None
    if context.replica_state(partition, broker) is not ReplicaState.ONLINE:
        return None
    now = leadership.leader_and_isr
    role = HostedRole.LEADER if now.leader == broker else HostedRole.FOLLOWER
    return Expected(context.topic_id(partition.topic), role, now.leader, now.leader_epoch, now.zk_version)


class HostedDigests:
    """The digests of all brokers, as of the last `refresh`."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._of_topics: dict[str, dict[BrokerId, int]] = {}
        self._totals: dict[BrokerId, int] = {}
        self._online: dict[ReplicaStates, tuple[BrokerId, ...]] = {}

    def of(self, broker: BrokerId) -> int:
        """The digest a broker should report."""
        return self._totals.get(broker, 0)

    def refresh(self) -> Iterator[int]:
        """Work out again what was touched, a topic with each step; gives the partitions each step took."""
        touched = self._context.touched
        while touched:
            name, _ = touched.popitem()
            entry = self._context.topics.get(name)
            fresh = {} if entry is None else self._of_topic(entry)
            old = self._of_topics.pop(name, {})
            for broker in sorted(old.keys() | fresh.keys()):
                total = replaced(self._totals.get(broker, 0), old.get(broker, 0), fresh.get(broker, 0))
                self._totals[broker] = total
            if fresh:
                self._of_topics[name] = fresh
            yield 0 if entry is None else len(entry.assignments)

    def _of_topic(self, entry: TopicEntry) -> dict[BrokerId, int]:
        digests: dict[BrokerId, int] = {}
        topic = topic_number(entry.topic_id)
        for number, assignment in entry.partitions():
            leadership = entry.leadership[number]
            if leadership is None:
                continue
            now = leadership.leader_and_isr
            for broker in self._online_of(entry.replica_states[number]):
                if broker in assignment.replicas:
                    role = HostedRole.LEADER if now.leader == broker else HostedRole.FOLLOWER
                    own = replica_number(topic, number, now.leader, now.leader_epoch, now.zk_version, role)
                    digests[broker] = replaced(digests.get(broker, 0), 0, own)
        return digests

    def _online_of(self, states: ReplicaStates) -> tuple[BrokerId, ...]:
        online = self._online.get(states)
        if online is None:
            online = self._online[states] = tuple(each for each, state in states if state is ReplicaState.ONLINE)
        return online


class Repair(Enum):
    """What is done about a difference; the value is what counters call it."""

    TELL = "told again"
    READ = "read again"
    STOP = "stopped"


class Difference(NamedTuple):
    """How a report differs from what its broker shall be to a partition."""

    repair: Repair
    kind: str
    """A stable word, for tools."""
    why: str


def compare(wanted: Expected, told: ReplicaReport | None) -> Difference | None:
    """What differs for a replica that its broker shall host; None where nothing does."""
    if told is None or told.role is HostedRole.NONE:
        return Difference(Repair.TELL, "replica_missing", f"it does not serve what it shall {wanted}")
    if told.topic_id != wanted.topic_id:
        return Difference(Repair.TELL, "other_topic", f"what it serves is of topic id {told.topic_id}")
    if told.role is HostedRole.OFFLINE:
        why = f"its directory {told.directory} is offline, and the controller was not told"
        return Difference(Repair.TELL, "replica_offline", why)
    if told.leader_epoch > wanted.leader_epoch + LARGEST_LEAP:
        why = f"it {told}, too far beyond the controller's leader epoch {wanted.leader_epoch} to be believed"
        return Difference(Repair.TELL, "epoch_unbelievable", why)
    if told.leader_epoch > wanted.leader_epoch:
        why = f"it {told}, newer than the controller's leader epoch {wanted.leader_epoch}"
        return Difference(Repair.READ, "epoch_newer", why)
    if told.leader_epoch < wanted.leader_epoch:
        return Difference(Repair.TELL, "epoch_older", f"it {told}, and shall {wanted}")
    if told.leader != wanted.leader or (told.role is HostedRole.LEADER) != (wanted.role is HostedRole.LEADER):
        return Difference(Repair.READ, "role_differs", f"it {told}, and shall {wanted}")
    if told.role is HostedRole.UNFED:
        return Difference(Repair.TELL, "fetcher_missing", f"it {told}")
    if wanted.role is HostedRole.LEADER and told.zk_version > wanted.zk_version:
        why = f"it {told}, newer than the controller's version {wanted.zk_version}"
        return Difference(Repair.READ, "version_newer", why)
    if wanted.role is HostedRole.LEADER and told.zk_version < wanted.zk_version:
        return Difference(Repair.TELL, "version_older", f"it {told}, and shall {wanted}")
    return None


def judge_uncalled_for(
    context: ControllerContext, broker: BrokerId, partition: TopicPartition, told: ReplicaReport
) -> Difference | None:
    """What to do about a replica that its broker serves and shall not; None: nothing, it is under way already.

    It is stopped and its log stays: its deletion was not asked for. Replicas that are to be deleted learn it by their
    deletion, and those that were assigned and failed by what made them fail.
    """
    if told.role not in SERVED:
        return None
    if partition.topic not in context.topics:
        return Difference(Repair.STOP, "topic_unknown", f"it {told}, and there is no such topic")
    if context.is_queued_for_deletion(partition.topic):
        return None
    if told.topic_id != context.topic_id(partition.topic):
        return Difference(Repair.STOP, "other_topic", f"what it serves is of topic id {told.topic_id}")
    assignment = context.assignment(partition)
    if broker in assignment.replicas or broker in assignment.deleting:
        return None
    return Difference(Repair.STOP, "not_assigned", f"it {told}, and is assigned to {list(assignment.replicas)}")
