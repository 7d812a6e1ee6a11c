"""CreateTopics: checks what is asked for, places replicas, writes each topic in one fenced piece, brings it to life."""

from __future__ import annotations

import logging
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import msgspec

from regency.controller.events import ControllerState, Request
from regency.controller.store.access import WriteCode
from regency.controller.term import Term
from regency.controller.topics.topics import take_in
from regency.model.errors import RegencyError
from regency.model.facts import MAX_PARTITIONS, ReplicaAssignment, TopicAssignment
from regency.model.ids import BrokerId, TopicId
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import SettingsInvalid, topic_log_config
from regency.model.topic_names import InvalidTopicName, metric_name, metric_names, validate_topic_name
from regency.planning.placement import PlacementImpossible, place_replicas
from regency.runtime.zookeeper.session import ZkRequestTooLarge

logger = logging.getLogger(__name__)


class NewTopic(msgspec.Struct, frozen=True):
    """A topic that a client wants. -1 for the broker's default, or where `assignments` has it."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, tuple[BrokerId, ...]], ...] = ()
    """Partition numbers with their replicas, as they were given."""
    configs: Mapping[str, str] = {}


class CreatedTopic(msgspec.Struct, frozen=True):
    """What became of a NewTopic."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    topic_id: TopicId | None = None
    num_partitions: int = -1
    replication_factor: int = -1


@dataclass(eq=False)
class CreateTopics(Request[tuple[CreatedTopic, ...]]):
    """Create topics; the answer comes when they are in ZooKeeper and their leaders are elected."""

    topics: tuple[NewTopic, ...]
    _: KW_ONLY
    validate_only: bool

    state = ControllerState.TOPIC_CHANGE
    cause = "create_topics"


class TopicRefused(RegencyError):
    """A topic cannot be created as asked for; `error` is the code for a Kafka client."""

    code: ClassVar[str] = "topic_refused"

    def __init__(self, error: ErrorCode, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.error = error


def create_topics(term: Term, event: CreateTopics) -> tuple[CreatedTopic, ...]:
    """Create topics, each for itself: one that is refused harms no other. Answers stand in the order asked for."""
    wanted, validate_only = event.topics, event.validate_only
    planned: dict[str, TopicAssignment] = {}
    outcomes: dict[str, CreatedTopic] = {}
    times = Counter(topic.name for topic in wanted)
    taken = metric_names(term.context.topics if metric_names(times) else ())
    room = MAX_PARTITIONS
    for topic in wanted:
        if times[topic.name] > 1:
            why = f"Topic '{topic.name}' stands {times[topic.name]} times in the request."
            outcomes[topic.name] = CreatedTopic(topic.name, ErrorCode.INVALID_REQUEST, why)
            continue
        try:
            plan = plan_topic(term, topic, taken, room)
        except TopicRefused as refusal:
            outcomes[topic.name] = CreatedTopic(topic.name, refusal.error, str(refusal))
        else:
            planned[topic.name] = plan
            taken.setdefault(metric_name(topic.name), topic.name)
            room -= len(plan.partitions)
    configs = {topic.name: topic.configs for topic in wanted}
    if not validate_only:
        refused = _write(term, {name: (plan, configs[name]) for name, plan in planned.items()})
        outcomes.update(refused)
        take_in(term, sorted(planned.keys() - refused.keys()))
    for name, plan in planned.items():
        if name not in outcomes:
            outcomes[name] = _created(term, plan, validate_only=validate_only)
    return tuple(outcomes[topic.name] for topic in wanted)


def plan_topic(term: Term, topic: NewTopic, taken: Mapping[str, str], room: int) -> TopicAssignment:
    """Check a wanted topic and place its replicas. Raises TopicRefused.

    `taken` are the topics that exist or are wanted before it in the request, by their names in metrics; `room` is how
    many partitions the request may still make.
    """
    try:
        validate_topic_name(topic.name)
        topic_log_config(term.log_config, topic.configs)
    except InvalidTopicName as error:
        raise TopicRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, error.message, hint=error.hint) from error
    except SettingsInvalid as error:
        raise TopicRefused(ErrorCode.INVALID_CONFIG, error.message, hint=error.hint) from error
    if topic.name in term.context.topics:
        going = " and is being deleted" if term.context.is_queued_for_deletion(topic.name) else ""
        raise TopicRefused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists{going}.")
    collision = taken.get(metric_name(topic.name))
    if collision is not None:
        raise TopicRefused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{topic.name}' collides with '{collision}': '.' and '_' are the same in metric names.",
            hint="Choose another name.",
        )
    wanted = len(topic.assignments) or topic.num_partitions
    check_room(term.settings.num_partitions if wanted == -1 else wanted, room)
    if topic.assignments:
        return TopicAssignment(topic.name, _assigned(term, topic))
    return TopicAssignment(topic.name, _placed(term, topic))


def _placed(term: Term, topic: NewTopic) -> dict[int, ReplicaAssignment]:
    partitions = term.settings.num_partitions if topic.num_partitions == -1 else topic.num_partitions
    factor = term.settings.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
    if partitions < 1:
        raise TopicRefused(
            ErrorCode.INVALID_PARTITIONS, f"The number of partitions must be 1 or more, not {partitions}."
        )
    check_size(partitions)
    if factor < 1:
        raise TopicRefused(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor must be 1 or more, not {factor}."
        )
    live = {broker: term.context.brokers[broker].rack for broker in sorted(term.context.usable)}
    spread = zlib.crc32(topic.name.encode()) % max(len(live), 1)
    try:
        placed = place_replicas(live, partitions, factor, start=spread)
    except PlacementImpossible as error:
        hint = f"Use at most {len(live)}, or start more brokers." if live else "Start brokers."
        raise TopicRefused(ErrorCode.INVALID_REPLICATION_FACTOR, error.message, hint=hint) from error
    return {partition: ReplicaAssignment(replicas) for partition, replicas in placed.items()}


def _assigned(term: Term, topic: NewTopic) -> dict[int, ReplicaAssignment]:
    assignments = dict(topic.assignments)
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        raise TopicRefused(
            ErrorCode.INVALID_REQUEST,
            f"Topic '{topic.name}': give either assignments, or the number of partitions and the replication factor.",
        )
    check_size(len(assignments))
    numbers = sorted(partition for partition, _ in topic.assignments)
    if numbers != list(range(len(assignments))):
        raise TopicRefused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Partitions must be numbered from 0, each once and without gaps, not {numbers[:20]}.",
        )
    factor = len(assignments[0])
    for partition, replicas in sorted(assignments.items()):
        check_replicas(term, partition, replicas, factor)
    return {partition: ReplicaAssignment(tuple(replicas)) for partition, replicas in sorted(assignments.items())}


def check_replicas(term: Term, partition: int, replicas: Sequence[BrokerId], factor: int) -> None:
    """Raise TopicRefused where a new partition of a topic with that factor cannot have these replicas."""
    problem = ""
    if not replicas:
        problem = "has no replicas"
    elif len(set(replicas)) != len(replicas):
        problem = f"names a broker twice: {list(replicas)}"
    elif min(replicas) < 0:
        problem = f"names a broker below 0: {list(replicas)}"
    elif len(replicas) != factor:
        problem = f"has {len(replicas)} replicas, partition 0 has {factor}"
    elif unknown := [replica for replica in replicas if replica not in term.context.brokers]:
        listed = ", ".join(map(str, sorted(term.context.brokers))) or "none"
        problem = f"names brokers that are not live: {unknown}; live are {listed}"
    if problem:
        raise TopicRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Partition {partition} {problem}.")


def check_size(partitions: int) -> None:
    """Raise TopicRefused where a topic cannot have so many partitions."""
    if partitions > MAX_PARTITIONS:
        raise TopicRefused(
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} partitions are too many for one topic, {MAX_PARTITIONS} are allowed.",
            hint="Spread them over several topics.",
        )


def check_room(partitions: int, room: int) -> None:
    """Raise TopicRefused where a request that makes these would make more than one topic may have.

    All of a request is one event of the controller, during which no leader is elected. KRaft's limit is 10,000.
    """
    if room < partitions <= MAX_PARTITIONS:
        raise TopicRefused(
            ErrorCode.POLICY_VIOLATION,
            f"{partitions} partitions are too many beside the others of this request, which may make {MAX_PARTITIONS}.",
            hint="Ask for them in another request.",
        )


def _write(term: Term, planned: Mapping[str, tuple[TopicAssignment, Mapping[str, str]]]) -> dict[str, CreatedTopic]:
    """Write topics with their settings. Returns those that were not written."""
    try:
        results = term.store.create_topics(planned)
    except ZkRequestTooLarge as error:
        if len(planned) > 1:
            return {name: outcome for each in planned for name, outcome in _write(term, {each: planned[each]}).items()}
        (name,) = planned
        return {name: CreatedTopic(name, ErrorCode.INVALID_PARTITIONS, f"Topic '{name}' is too large: {error}")}
    refused = {}
    for name, result in results.items():
        if result.code is WriteCode.EXISTS:
            refused[name] = CreatedTopic(name, ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        elif result.code is not WriteCode.WRITTEN:
            why = f"Topic '{name}' was not written: its settings changed meanwhile ({result.why}). Try again."
            refused[name] = CreatedTopic(name, ErrorCode.REQUEST_TIMED_OUT, why)
    return refused


def _created(term: Term, plan: TopicAssignment, *, validate_only: bool) -> CreatedTopic:
    return CreatedTopic(
        plan.topic,
        topic_id=None if validate_only else term.context.topic_id(plan.topic),
        num_partitions=len(plan.partitions),
        replication_factor=len(plan.partitions[0].replicas),
    )
