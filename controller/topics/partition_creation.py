"""CreatePartitions: checks what is asked for, places the new replicas as the topic's first were, writes its znode.

The znode is written at the version its content was decided from, with everything in it that is not ours to change; the
new partitions then come to life as if another tool had added them. Source: KIP-195.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

import msgspec

from regency.controller.events import ControllerState, Request
from regency.controller.store.access import WriteCode
from regency.controller.store.topics import StoredTopic, read_assignments, write_assignments
from regency.controller.term import Term
from regency.controller.topics.creation import TopicRefused, check_replicas, check_room, check_size
from regency.controller.topics.topics import take_in
from regency.model.facts import MAX_PARTITIONS, ReplicaAssignment, TopicAssignment
from regency.model.ids import BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.topic_names import is_internal
from regency.planning.placement import PlacementImpossible, continue_placement

logger = logging.getLogger(__name__)

ROUNDS = 5
"""How often it is decided again because another writer has written the topic znode meanwhile."""


class MorePartitions(msgspec.Struct, frozen=True):
    """A topic that shall have `count` partitions; `assignments` of the new ones, in order, or none to have them placed.

    None and no assignments at all are the same.
    """

    topic: str
    count: int
    assignments: tuple[tuple[BrokerId, ...], ...] = ()


class TopicOutcome(msgspec.Struct, frozen=True):
    """What became of what was asked for one topic; `added`: the numbers of its new partitions."""

    topic: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    added: range = range(0)


@dataclass(eq=False)
class CreatePartitions(Request[tuple[TopicOutcome, ...]]):
    """Add partitions to topics; the answer comes when they are in ZooKeeper and their leaders are elected."""

    topics: tuple[MorePartitions, ...]
    _: KW_ONLY
    validate_only: bool

    state = ControllerState.TOPIC_CHANGE
    cause = "create_partitions"


def add_partitions(term: Term, event: CreatePartitions) -> tuple[TopicOutcome, ...]:
    """Add partitions, to each topic for itself: one that is refused harms no other. Answers in the order asked for."""
    outcomes: dict[str, TopicOutcome] = {}
    times = Counter(wanted.topic for wanted in event.topics)
    pending = {wanted.topic: wanted for wanted in event.topics if times[wanted.topic] == 1}
    for name, count in times.items():
        if count > 1:
            why = f"Topic '{name}' stands {count} times in the request."
            outcomes[name] = TopicOutcome(name, ErrorCode.INVALID_REQUEST, why)
    for _ in range(ROUNDS):
        planned = _plan(term, pending, outcomes)
        pending = {} if event.validate_only else _write(term, pending, planned, outcomes)
        if not pending:
            break
    for name in pending:
        why = f"Topic '{name}' was written {ROUNDS} times by another client meanwhile. Try again."
        outcomes[name] = TopicOutcome(name, ErrorCode.REQUEST_TIMED_OUT, why)
    return tuple(outcomes[wanted.topic] for wanted in event.topics)


def _plan(
    term: Term, wanted: Mapping[str, MorePartitions], outcomes: dict[str, TopicOutcome]
) -> dict[str, tuple[StoredTopic, TopicAssignment]]:
    """What the topic znodes shall hold, with what they were read as. Refused ones get their outcome."""
    stored = read_assignments(term.store.access, list(wanted))
    planned: dict[str, tuple[StoredTopic, TopicAssignment]] = {}
    room = MAX_PARTITIONS
    for name, more in wanted.items():
        try:
            found = stored.get(name)
            if found is None:
                raise _unknown(term, name)
            check_room(more.count - len(found.assignment.partitions), room)
            planned[name] = (found, plan_more(term, found.assignment, more))
        except TopicRefused as refusal:
            outcomes[name] = TopicOutcome(name, refusal.error, str(refusal))
        else:
            room -= more.count - len(found.assignment.partitions)
            outcomes[name] = TopicOutcome(name, added=range(len(found.assignment.partitions), more.count))
    return planned


def plan_more(term: Term, topic: TopicAssignment, more: MorePartitions) -> TopicAssignment:
    """The topic with the wanted partitions added. Raises TopicRefused."""
    have = len(topic.partitions)
    _check_state(term, topic)
    if more.count < have:
        raise TopicRefused(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic '{topic.topic}' has {have} partitions, which is more than the requested {more.count}.",
            hint="Partitions cannot be taken away.",
        )
    if more.count == have:
        raise TopicRefused(ErrorCode.INVALID_PARTITIONS, f"Topic '{topic.topic}' already has {have} partitions.")
    check_size(more.count)
    added = _assigned(term, topic, more) if more.assignments else _placed(term, topic, more.count)
    partitions = {**topic.partitions, **{number: ReplicaAssignment(each) for number, each in added.items()}}
    return msgspec.structs.replace(topic, partitions=partitions)


def _check_state(term: Term, topic: TopicAssignment) -> None:
    """Refuse a topic that is about to go, is being moved, or of which ZooKeeper and this controller disagree.

    And those of brokers themselves: what is kept in them is found by the number of partitions.
    """
    name = topic.topic
    if is_internal(name):
        raise TopicRefused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' cannot have more partitions: brokers would look for every group in another one.",
        )
    if term.context.is_queued_for_deletion(name):
        raise TopicRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' is queued for deletion.")
    moving = [number for number, each in sorted(topic.partitions.items()) if each.is_reassigning]
    known = term.context.topics.get(name)
    if known is not None:
        moving = moving or [number for number, each in known.partitions() if each.is_reassigning]
        missing = [number for number, _ in known.partitions() if number not in topic.partitions]
        if missing and topic.czxid == known.czxid:
            raise TopicRefused(
                ErrorCode.INVALID_PARTITIONS,
                f"The znode of topic '{name}' lacks partitions {missing[:10]}, which exist.",
                hint="Write them back into it first.",
            )
    if moving:
        raise TopicRefused(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"Partition {moving[0]} of topic '{name}' is being reassigned.",
            hint="Try again when that is done, or cancel it.",
        )
    if not topic.partitions or sorted(topic.partitions) != list(range(len(topic.partitions))):
        raise TopicRefused(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"The partitions of topic '{name}' are not numbered from 0 without gaps in its znode: "
            f"{sorted(topic.partitions)[:10]}.",
            hint="Write those that are missing into it first.",
        )
    if not topic.partitions[0].replicas:
        raise TopicRefused(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"Partition 0 of topic '{name}' has no replicas in its znode."
        )


def _placed(term: Term, topic: TopicAssignment, count: int) -> dict[int, tuple[BrokerId, ...]]:
    live = {broker: term.context.brokers[broker].rack for broker in sorted(term.context.usable)}
    first = topic.partitions[0].replicas
    try:
        return continue_placement(live, first, len(topic.partitions), count)
    except PlacementImpossible as error:
        hint = f"Start brokers: the topic has {len(first)} replicas of each partition."
        raise TopicRefused(ErrorCode.INVALID_REPLICATION_FACTOR, error.message, hint=hint) from error


def _assigned(term: Term, topic: TopicAssignment, more: MorePartitions) -> dict[int, tuple[BrokerId, ...]]:
    have = len(topic.partitions)
    if len(more.assignments) != more.count - have:
        raise TopicRefused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{more.count - have} partitions are added, but {len(more.assignments)} assignments are given.",
        )
    factor = len(topic.partitions[0].replicas)
    for number, replicas in enumerate(more.assignments, start=have):
        check_replicas(term, number, replicas, factor)
    return dict(enumerate(more.assignments, start=have))


def _unknown(term: Term, name: str) -> TopicRefused:
    if name in term.context.topics:
        return TopicRefused(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"The znode of topic '{name}' cannot be read.", hint="Correct it first."
        )
    return TopicRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")


def _write(
    term: Term,
    wanted: Mapping[str, MorePartitions],
    planned: Mapping[str, tuple[StoredTopic, TopicAssignment]],
    outcomes: dict[str, TopicOutcome],
) -> dict[str, MorePartitions]:
    """Write what was planned and bring it to life. Returns those that another writer has written meanwhile."""
    results = write_assignments(term.store.access, planned)
    again: dict[str, MorePartitions] = {}
    written: list[str] = []
    for name, result in results.items():
        before, after = (len(each.partitions) for each in (planned[name][0].assignment, planned[name][1]))
        if result.code is WriteCode.WRITTEN:
            written.append(name)
            term.decisions.note(f"topic {name}", f"{before} partitions", f"{after} partitions", "a client asked for it")
        elif result.code is WriteCode.CONFLICT:
            again[name] = wanted[name]
        elif result.code is WriteCode.MISSING:
            why = f"Topic '{name}' was deleted meanwhile."
            outcomes[name] = TopicOutcome(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
        else:
            why = f"Topic '{name}' cannot have {after} partitions: {result.why}."
            outcomes[name] = TopicOutcome(name, ErrorCode.INVALID_PARTITIONS, why)
    take_in(term, written)
    for name in written:
        numbers = range(len(planned[name][0].assignment.partitions), len(planned[name][1].partitions))
        leaderless = [number for number in numbers if TopicPartition(name, number) in term.context.leaderless]
        if leaderless:
            logger.warning("topic %s: %d of its new partitions wait for a leader", name, len(leaderless))
    return again
