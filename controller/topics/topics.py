"""Topics and partitions that appear in ZooKeeper, by whatever writer, and topics whose znode is gone."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from regency.controller.events import DeletionsAsked
from regency.controller.reassignment.moves import ReassignmentsWait
from regency.controller.reassignment.requests import finish
from regency.controller.state.states import PartitionState, ReplicaState
from regency.controller.store.access import WriteCode
from regency.controller.store.cluster_store import TopicsRead
from regency.controller.term import Term
from regency.model.crash_points import crash_point
from regency.model.facts import TopicAssignment
from regency.model.ids import PartitionReplica, TopicPartition
from regency.model.topic_ids import derive_topic_id

logger = logging.getLogger(__name__)


def on_topics_changed(term: Term) -> None:
    """Read the list of topics again: take in new ones, forget those that are gone."""
    names = term.store.topic_names()
    known = term.context.topics
    listed = frozenset(names)
    missing = sorted(name for name in known if name not in listed)
    term.deletions.abandon([name for name in missing if term.context.is_queued_for_deletion(name)])
    for gone in missing:
        forget_topic(term, gone)
    take_in(term, [name for name in names if name not in known])


def take_in(term: Term, names: Sequence[str]) -> None:
    """Read these topics, give them ids where they have none, and create the partitions that are not known yet."""
    if not names:
        return
    added = load_topics(term, names)
    if added:
        crash_point("controller.topics.before_partitions")
        create_partitions(term, added)
        finish(term, added)  # their writer may have named replicas to add and to remove


def load_topics(term: Term, names: Sequence[str]) -> list[TopicPartition]:
    """Read these topics into the context, watched and with ids. Returns the partitions that were not known."""
    term.watches.arm(names)
    read = term.store.read_topics(names)
    for name in read.gone:
        if name not in term.context.topics:
            term.watches.disarm(name)
    added = []
    for name, topic in _with_ids(term, read).items():
        entry = term.context.topics.get(name)
        if entry is not None and topic.topic_id != entry.topic_id:
            logger.warning("topic %s was deleted and created again outside: it is taken in as a new one", name)
            if term.context.is_queued_for_deletion(name):
                term.queue.put(DeletionsAsked())  # the request for the one before must not hit this one
            forget_topic(term, name)
            term.watches.arm([name])
        if term.context.is_queued_for_deletion(name):
            _report_added(term, topic)
            continue
        _report_missing(term, topic)
        added.extend(term.context.put_topic(topic))
    return added


def _report_missing(term: Term, topic: TopicAssignment) -> None:
    """Tell, once for what is missing, that a topic znode has fewer partitions than there are: none is taken away."""
    entry = term.context.topics.get(topic.topic)
    if entry is None or len(entry.assignments) <= len(topic.partitions):
        return
    missing = [number for number, _ in entry.partitions() if number not in topic.partitions]
    if missing and term.report_once(f"missing {topic.topic} {missing}"):
        logger.error(
            "the znode of topic %s lacks partitions %s, which exist: partitions cannot be taken away. They are served "
            "until another controller rules, which will not know them; write them back into it",
            topic.topic,
            missing[:10],
        )


def create_partitions(term: Term, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, str]:
    """Bring new partitions to life. Returns why, for those that have no leader yet; they wait for a live replica."""
    replicas = [
        PartitionReplica(*partition, broker)
        for partition in partitions
        for broker in term.context.assignment(partition).replicas
    ]
    term.partitions.handle(partitions, PartitionState.NEW)
    term.replicas.handle(replicas, ReplicaState.NEW)
    crash_point("controller.partitions.before_states")
    failed = term.partitions.handle(partitions, PartitionState.ONLINE)
    crash_point("controller.partitions.after_states")
    online = [each for each in replicas if term.context.is_online(each.broker, each.topic_partition)]
    term.replicas.handle(online, ReplicaState.ONLINE)
    offline = [each for each in replicas if not term.context.is_online(each.broker, each.topic_partition)]
    term.replicas.handle(offline, ReplicaState.OFFLINE)
    for partition, why in list(failed.items())[:10]:
        logger.warning("%s waits for a leader: %s", partition, why)
    if len(failed) > 10:
        logger.warning("%d partitions more wait for a leader", len(failed) - 10)
    term.decisions.note_each((str(each), "nothing", "waits for a leader", str(why)) for each, why in failed.items())
    return failed


def forget_topic(term: Term, name: str) -> None:
    """Drop a topic whose znode is gone. Its replicas are left as they are: their deletion was not asked for."""
    topic_id = term.context.topic_id(name)
    if term.context.is_reassigning(name):
        term.queue.put(ReassignmentsWait())  # what is asked for in ZooKeeper may name partitions that are gone
    term.context.remove_topic(name)
    term.batch.topic_removed(name, topic_id)
    term.watches.disarm(name)
    term.decisions.note(f"topic {name}", f"id {topic_id}", "gone", "its znode is gone")


def _report_added(term: Term, topic: TopicAssignment) -> None:
    """Tell that partitions were added to a topic that is to be deleted: they are not created (KAFKA-6193)."""
    known = term.context.topics[topic.topic].assignments
    added = [each for each in sorted(topic.partitions) if each >= len(known) or known[each] is None]
    if added and term.report_once(f"added to {topic.topic} {added}"):
        logger.warning("partitions %s of topic %s are not created: it is to be deleted", added[:10], topic.topic)


def _with_ids(term: Term, read: TopicsRead) -> dict[str, TopicAssignment]:
    """The topics that were read, each with an id, written where there was none.

    An id that was known under the same czxid comes back; a new one is derived, so that every
    controller computes the same. A topic that changes meanwhile is brought here again by its watch.
    """
    topics = dict(read.topics)
    given = []
    for name, content in read.without_id.items():
        topic = topics[name]
        entry = term.context.topics.get(name)
        known = entry is not None and entry.czxid == topic.czxid
        topic_id = term.context.topic_id(name) if known else derive_topic_id(term.cluster_id, name, topic.czxid)
        topics[name] = msgspec.structs.replace(topic, topic_id=topic_id)
        given.append((topics[name], content))
    for (topic, _), result in zip(given, term.store.set_topic_ids(given), strict=True):
        if result.code is WriteCode.WRITTEN:
            topics[topic.topic] = msgspec.structs.replace(topic, zk_version=result.zk_version)
        elif result.code is WriteCode.MISSING:
            del topics[topic.topic]
    return topics
