"""Who asks for deletions: markers below /admin/delete_topics, by whatever writer, and clients' DeleteTopics.

Both leave a marker, so that any later controller goes on. A marker that asks for nothing is removed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from regency.controller.events import ControllerState, DeletionsAsked, ReplicasDeleted, Request
from regency.controller.machines.topic_deletion import DeletionProgress
from regency.controller.reassignment.replica_deletion import on_former_deleted
from regency.controller.state.states import PartitionState, ReplicaState
from regency.controller.store.cluster_store import MAX_PARTITION_NUMBER
from regency.controller.store.deletions import TopicZnode
from regency.controller.term import Term
from regency.controller.topics.topics import take_in
from regency.model.facts import ReplicaAssignment, TopicAssignment
from regency.model.ids import PartitionReplica, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.topic_ids import derive_topic_id
from regency.model.topic_names import is_internal, is_valid_topic_name

logger = logging.getLogger(__name__)

DISABLED = "delete.topic.enable is false"


class TopicRef(msgspec.Struct, frozen=True):
    """A topic by its name or by its id, which is None then."""

    name: str = ""
    topic_id: TopicId | None = None


class DeletedTopic(msgspec.Struct, frozen=True):
    """What became of a wish to delete a topic: NONE where its deletion is certain, though not done yet."""

    name: str
    topic_id: TopicId | None = None
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(eq=False)
class DeleteTopics(Request[tuple[DeletedTopic, ...]]):
    """Delete topics; the answer comes when ZooKeeper has it that they are to go, in the order asked for."""

    topics: tuple[TopicRef, ...]

    state = ControllerState.TOPIC_DELETION
    cause = "delete_topics"


class ListDeletions(Request[tuple[DeletionProgress, ...]]):
    """How far are the deletions that are not done?"""

    state = ControllerState.TOPIC_DELETION
    cause = "list_deletions"


def on_deletions_asked(term: Term) -> None:
    """Read the markers again and delete what they name. Raises ControllerMoved, ZkError."""
    markers = _valid_markers(term)
    if not markers:
        return
    readable, unreadable = _unknown(term, markers)
    if readable:
        take_in(term, readable)
    for partition in _adopt(term, unreadable):
        replicas = term.context.assignment(partition).replicas
        term.partitions.handle([partition], PartitionState.NEW)
        term.replicas.handle([PartitionReplica(*partition, each) for each in replicas], ReplicaState.NEW)
    _remove_stale(term, markers)
    term.deletions.enqueue(markers)


def load_deletions(term: Term) -> None:
    """At a failover, before replicas and partitions get their first states: learn which topics are to be deleted.

    `term.deletions.resume` goes on with them. Raises ControllerMoved, ZkError.
    """
    markers = _valid_markers(term)
    if not markers:
        return
    readable, unreadable = _unknown(term, markers)
    if readable:  # created since the list of topics was read: they are looked at as soon as this controller is ready
        term.queue.put(DeletionsAsked())
    _adopt(term, unreadable)
    _remove_stale(term, markers)
    term.deletions.begin(markers)


def delete_topics(term: Term, event: DeleteTopics) -> tuple[DeletedTopic, ...]:
    """Mark topics for deletion and begin with it, each for itself. Raises ControllerMoved, ZkError."""
    if not term.settings.delete_topic_enable:
        why = f"Topics cannot be deleted: {DISABLED}."
        return tuple(
            DeletedTopic(each.name, each.topic_id, ErrorCode.TOPIC_DELETION_DISABLED, why) for each in event.topics
        )
    outcomes = _resolve(term, event.topics)
    wanted = dict.fromkeys(each.name for each in outcomes if each.error is ErrorCode.NONE)
    new = [name for name in wanted if not term.context.is_queued_for_deletion(name)]
    if new:
        term.deletions.store.mark(new)
        on_deletions_asked(term)
    return outcomes


def on_replicas_deleted(term: Term, event: ReplicasDeleted) -> None:
    """A broker has confirmed deletions, unless that incarnation of it is over. Raises ControllerMoved, ZkError."""
    deleted = event.deleted
    broker = term.context.brokers.get(deleted.broker)
    if broker is not None and broker.epoch == deleted.broker_epoch:
        on_former_deleted(term, deleted)
        term.deletions.confirm(deleted)


def _valid_markers(term: Term) -> dict[str, int]:
    """The markers, unless topics may not be deleted: then they are removed."""
    markers = term.deletions.store.markers()
    if markers and not term.settings.delete_topic_enable:
        _refuse(term, markers, DISABLED)
        return {}
    return markers


def _unknown(term: Term, markers: dict[str, int]) -> tuple[list[str], dict[str, TopicZnode]]:
    """Marked topics that are not known though they have a znode: names of readable ones, and unreadable ones.

    Markers of topics that do not exist are removed, from `markers` too.
    """
    strangers = [name for name in markers if name not in term.context.topics]
    existing = term.deletions.store.existing(strangers)
    missing = [name for name in strangers if name not in existing]
    _refuse(term, missing, "there is no such topic")
    for name in missing:
        del markers[name]
    named = [name for name in existing if is_valid_topic_name(name)]
    readable = [name for name in named if name in term.store.read_topics(named).topics] if named else []
    return readable, {name: znode for name, znode in existing.items() if name not in readable}


def _adopt(term: Term, unreadable: Mapping[str, TopicZnode]) -> list[TopicPartition]:
    """Take topics that cannot be read for what their znodes still tell, so that they can be deleted.

    Which brokers have replicas of them is not known: every live one deletes what it holds. Returns the partitions.
    """
    brokers = tuple(sorted(term.context.brokers))
    added = []
    for name, znode in unreadable.items():
        numbers = [each for each in znode.partitions if each <= MAX_PARTITION_NUMBER and is_valid_topic_name(name)]
        topic_id = derive_topic_id(term.cluster_id, name, znode.czxid)
        partitions = {number: ReplicaAssignment(brokers) for number in numbers}
        added += term.context.put_topic(TopicAssignment(name, partitions, topic_id, znode.zk_version, znode.czxid))
        logger.warning("topic %s cannot be read: the live brokers delete what they hold of it", name)
    return added


def _remove_stale(term: Term, markers: dict[str, int]) -> None:
    """Remove markers that are older than the topic that has the name now: they were meant for an earlier one."""
    topics = term.context.topics
    stale = [name for name, czxid in markers.items() if name in topics and czxid < topics[name].czxid]
    _refuse(term, stale, "it was asked for before this topic was created, and meant an earlier one")
    for name in stale:
        del markers[name]


def _refuse(term: Term, topics: Iterable[str], why: str) -> None:
    names = list(topics)
    for name in names:
        term.decisions.note(f"topic {name}", "to be deleted", "not to be deleted", why)
    term.deletions.store.remove_markers(names)


def _resolve(term: Term, wanted: Sequence[TopicRef]) -> tuple[DeletedTopic, ...]:
    """Which topics are meant, or why none is."""
    topics = term.context.topics
    by_id = {entry.topic_id: name for name, entry in topics.items()} if any(each.topic_id for each in wanted) else {}
    existing = term.deletions.store.existing([each.name for each in wanted if each.name and each.name not in topics])
    outcomes = []
    for each in wanted:
        if each.topic_id is not None:
            name = by_id.get(each.topic_id, "")
            missing = DeletedTopic(
                "", each.topic_id, ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic of the id {each.topic_id}."
            )
        else:
            name = each.name if each.name in topics or each.name in existing else ""
            missing = DeletedTopic(
                each.name, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{each.name}' does not exist."
            )
        topic_id = topics[name].topic_id if name in topics else None
        if name and is_internal(name):
            why = f"Topic '{name}' is not deleted: brokers keep their groups or transactions in it."
            outcomes.append(DeletedTopic(name, topic_id, ErrorCode.INVALID_TOPIC_EXCEPTION, why))
        else:
            outcomes.append(DeletedTopic(name, topic_id) if name else missing)
    return tuple(outcomes)
