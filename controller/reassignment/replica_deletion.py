"""Former replicas: their brokers delete the logs, and only when they have said so is it forgotten that there were any.

Until then they stand as `deleting` in the topic znode, so that a later controller orders it again, and a broker that
was dead gets the order when it returns. Kafka orders it once and forgets.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence

import msgspec

from regency.controller.channel.sender import Deleted
from regency.controller.machines.state_machine import ROUNDS
from regency.controller.reassignment.rules import forget_deleted
from regency.controller.state.states import ReplicaState
from regency.controller.store.access import WriteCode
from regency.controller.store.topics import StoredTopic, read_assignments, write_assignments
from regency.controller.term import Term
from regency.model.crash_points import crash_point
from regency.model.facts import TopicAssignment
from regency.model.ids import BrokerId, PartitionReplica, TopicPartition

logger = logging.getLogger(__name__)

CONFIRMED = ("deleted", "its broker has confirmed that it holds nothing of it any more")
GIVEN_UP = ("given up", "its broker never was in the cluster, or is gone for good")


def delete_replicas(term: Term, former: Sequence[PartitionReplica]) -> None:
    """Stop former replicas and have their logs deleted, by brokers that are dead when they return.

    Those of brokers that never were, or are gone for good, are taken for deleted.
    """
    if not former:
        return
    crash_point("controller.former_replicas.before_stop")
    term.replicas.handle(former, ReplicaState.OFFLINE)
    gone = [each for each in former if each.broker not in term.context.members]
    term.replicas.handle([*gone, *(each for each in former if _is_able(term, each))], ReplicaState.DELETION_STARTED)
    unable = [each for each in former if each.broker in term.context.members and not _is_able(term, each)]
    term.replicas.handle(unable, ReplicaState.DELETION_INELIGIBLE)
    if gone:
        term.replicas.handle(gone, ReplicaState.DELETION_SUCCESSFUL)
        forget_confirmed(term, dict.fromkeys(each.topic_partition for each in gone))


def resume_deletions(term: Term) -> None:
    """A new controller: order again what the one before ordered, or would have."""
    former = list(_former(term, term.context.deleting))
    for replica in former:
        term.context.set_replica_state(replica.topic_partition, replica.broker, ReplicaState.OFFLINE)
    delete_replicas(term, former)


def retry_deletions(term: Term, brokers: Collection[BrokerId]) -> None:
    """These brokers have started: have them delete what they missed."""
    missed = [each for each in _former(term, term.context.deleting) if each.broker in brokers]
    delete_replicas(term, [each for each in missed if _state(term, each) is ReplicaState.DELETION_INELIGIBLE])


def fail_deletions(
    term: Term, brokers: Collection[BrokerId], partitions: Iterable[TopicPartition] | None = None
) -> None:
    """These brokers are gone, or their replicas of these partitions are: nothing is deleted before they return."""
    former = _former(term, term.context.deleting if partitions is None else partitions)
    missed = [each for each in former if each.broker in brokers]
    ordered = [each for each in missed if _state(term, each) is ReplicaState.DELETION_STARTED]
    term.replicas.handle(ordered, ReplicaState.DELETION_INELIGIBLE)


def on_former_deleted(term: Term, deleted: Deleted) -> None:
    """A broker has confirmed deletions: forget those of former replicas."""
    context = term.context
    confirmed = [
        PartitionReplica(*partition, deleted.broker)
        for partition, topic_id in deleted.partitions.items()
        if deleted.broker in context.assignment(partition).deleting and context.topic_id(partition.topic) == topic_id
    ]
    ordered = [each for each in confirmed if _state(term, each) is ReplicaState.DELETION_STARTED]
    term.replicas.handle(ordered, ReplicaState.DELETION_SUCCESSFUL)
    forget_confirmed(term, dict.fromkeys(each.topic_partition for each in confirmed))


def forget_confirmed(term: Term, partitions: Iterable[TopicPartition]) -> None:
    """Take former replicas whose deletion is confirmed out of the topic znodes, each topic in one write."""
    waiting: dict[str, dict[TopicPartition, list[BrokerId]]] = {}
    for replica in _former(term, partitions):
        if _state(term, replica) is ReplicaState.DELETION_SUCCESSFUL:
            of_topic = waiting.setdefault(replica.topic, {})
            of_topic.setdefault(replica.topic_partition, []).append(replica.broker)
    for _ in range(ROUNDS):
        if not waiting:
            return
        _write(term, waiting)
    logger.warning("%d topics change all the time: deleted replicas are noted in them later", len(waiting))


def _write(term: Term, waiting: dict[str, dict[TopicPartition, list[BrokerId]]]) -> None:
    """Write what can be; what another has written meanwhile keeps waiting."""
    stored = read_assignments(term.store.access, list(waiting))
    for topic in [topic for topic in waiting if not _is_same(term, topic, stored)]:
        del waiting[topic]
    changes = {topic: (stored[topic], _without(term, stored[topic], waiting[topic])) for topic in waiting}
    results = write_assignments(term.store.access, changes)
    for topic, result in results.items():
        if result.code is WriteCode.CONFLICT:
            continue
        gone = waiting.pop(topic)
        if result.code is WriteCode.WRITTEN:
            term.context.topics[topic].zk_version = result.zk_version
            former = [PartitionReplica(topic, each.partition, broker) for each in gone for broker in gone[each]]
            term.decisions.note_each(
                (
                    str(each.topic_partition),
                    f"a former replica on broker {each.broker}",
                    *(CONFIRMED if each.broker in term.context.members else GIVEN_UP),
                )
                for each in former
            )
            term.replicas.handle(former, ReplicaState.NON_EXISTENT)


def _without(term: Term, stored: StoredTopic, gone: dict[TopicPartition, list[BrokerId]]) -> TopicAssignment:
    numbers = {
        partition.partition: forget_deleted(term.context.assignment(partition), brokers)
        for partition, brokers in gone.items()
    }
    return msgspec.structs.replace(stored.assignment, partitions={**stored.assignment.partitions, **numbers})


def _is_same(term: Term, topic: str, stored: dict[str, StoredTopic]) -> bool:
    known = term.context.topics.get(topic)
    return topic in stored and known is not None and stored[topic].assignment.czxid == known.czxid


def _former(term: Term, partitions: Iterable[TopicPartition]) -> Iterable[PartitionReplica]:
    for partition in partitions:
        for broker in term.context.assignment(partition).deleting:
            yield PartitionReplica(*partition, broker)


def _is_able(term: Term, replica: PartitionReplica) -> bool:
    """Whether its broker lives, and the log is not in a directory that failed."""
    offline = term.context.offline_replicas.get(replica.broker, ())
    return replica.broker in term.context.brokers and replica.topic_partition not in offline


def _state(term: Term, replica: PartitionReplica) -> ReplicaState:
    return term.context.replica_state(replica.topic_partition, replica.broker)
