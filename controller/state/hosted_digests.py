"""What every broker should report to host, by what the controller knows: per replica, and as one digest per broker.

The digests are kept, and worked out again for the topics that were touched only, so that it costs next to nothing to
see that a broker with a hundred thousand replicas hosts what it should. Pure; the controller's thread only.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from regency.controller.state.context import ControllerContext
from regency.controller.state.states import ReplicaState
from regency.controller.state.topic_entry import ReplicaStates, TopicEntry
from regency.model.hosting import HostedRole, replaced, replica_number, topic_number
from regency.model.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition, ZkVersion


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
