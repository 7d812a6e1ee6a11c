"""Kafka's admin requests in their envelopes (KIP-590): decoded here, answered in the same version of Kafka's protocol.

This module is imported with the first of them: most candidates never rule, and the schemas take 9 MB.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from regency.controller.elections.leader_elections import ElectionOutcome, ElectionType, ElectLeaders
from regency.controller.events import Request as ControllerRequest
from regency.controller.reassignment.requests import AlterReassignments, ListReassignments, PartitionOutcome
from regency.controller.request_gate import RequestGate, refusal
from regency.controller.topics.config_changes import AlterConfigs, ConfigAlteration, ConfigOutcome
from regency.controller.topics.creation import CreatedTopic, CreateTopics, NewTopic
from regency.controller.topics.deletion_requests import DeletedTopic, DeleteTopics, TopicRef
from regency.controller.topics.partition_creation import CreatePartitions, MorePartitions, TopicOutcome
from regency.kafka.admin_answers import FIRST_WITH_ERROR, FIRST_WITH_FACTOR, Row, answer, topics_to_delete
from regency.kafka.apis import ApiKey, Message
from regency.kafka.codec import ListPartitionReassignmentsResponse, Request, encode_body, parse_forwarded
from regency.kafka.decoder import FrameMalformed, UnsupportedApi
from regency.model.errors import RegencyError
from regency.model.facts import ReplicaAssignment
from regency.model.ids import BrokerId, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.principals import Principal, RequestContext
from regency.model.settings.dynamic import ConfigChange, Operation
from regency.protos import admin_pb2 as pb
from regency.protos.admin_pb2 import Awaited

logger = logging.getLogger(__name__)
T = TypeVar("T")


class RequestRefused(RegencyError):
    """A request that makes no sense as a whole; `error` goes to the client, for everything it names."""

    code = "request_refused"

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error


class Asked(NamedTuple, Generic[T]):
    """An event for the controller's thread; the response to its outcome, with what the client is to see before it."""

    event: ControllerRequest[T]
    respond: Callable[[T], tuple[Message, Sequence[Awaited]]]


BOTH = "Name a topic either by its name or by its id, not by both."


def _create_topics(request: Request) -> Asked[tuple[CreatedTopic, ...]]:
    """Answered when every partition has a leader that clients find."""
    message = request.message
    refused: dict[str, Row] = {}
    for topic in message.topics:
        missing = next((config.name for config in topic.configs if config.value is None), None)
        if missing is not None:
            refused[topic.name] = Row(topic.name, None, ErrorCode.INVALID_CONFIG, f"{missing} has no value.")

    def respond(outcomes: tuple[CreatedTopic, ...]) -> tuple[Message, list[Awaited]]:
        rows = refused | {
            each.name: Row(
                each.name,
                error=each.error,
                message=each.message,
                topic_id=each.topic_id,
                num_partitions=each.num_partitions,
                replication_factor=each.replication_factor,
            )
            for each in outcomes
        }
        made = [each for each in outcomes if each.error is ErrorCode.NONE and not message.validate_only]
        awaited = [Awaited(topic=each.name, partition=range(each.num_partitions)) for each in made]
        return answer(request, rows.values()), awaited

    wanted = tuple(_new_topic(topic) for topic in message.topics if topic.name not in refused)
    return Asked(CreateTopics(wanted, validate_only=message.validate_only), respond)


def _delete_topics(request: Request) -> Asked[tuple[DeletedTopic, ...]]:
    """Answered when clients find the topics no more; their replicas may still be going."""
    named = topics_to_delete(request)
    if any(topic.name and topic.topic_id for topic in named):
        raise RequestRefused(ErrorCode.INVALID_REQUEST, BOTH)

    def respond(outcomes: tuple[DeletedTopic, ...]) -> tuple[Message, list[Awaited]]:
        rows = [
            Row(each.name or None, error=each.error, message=each.message, topic_id=each.topic_id) for each in outcomes
        ]
        awaited = [
            Awaited(topic=each.name, topic_id=b"" if each.topic_id is None else each.topic_id.bytes)
            for each in outcomes
            if each.error is ErrorCode.NONE
        ]
        return answer(request, rows), awaited

    wanted = (TopicRef(each.name or "", None if each.topic_id is None else TopicId(each.topic_id)) for each in named)
    return Asked(DeleteTopics(tuple(wanted)), respond)


def _new_topic(topic: Message) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        tuple((each.partition_index, tuple(map(BrokerId, each.broker_ids))) for each in topic.assignments),
        {config.name: config.value for config in topic.configs},
    )


def _create_partitions(request: Request) -> Asked[tuple[TopicOutcome, ...]]:
    """Answered when every new partition has a leader that clients find.

    No assignments and an empty list of them are the same here: some clients cannot tell them apart.
    """
    message = request.message

    def respond(outcomes: tuple[TopicOutcome, ...]) -> tuple[Message, list[Awaited]]:
        rows = {each.topic: Row(each.topic, error=each.error, message=each.message) for each in outcomes}
        grown = [each for each in outcomes if each.error is ErrorCode.NONE and not message.validate_only]
        awaited = [Awaited(topic=each.topic, partition=each.added) for each in grown]
        return answer(request, rows.values()), awaited

    wanted = tuple(
        MorePartitions(
            topic.name, topic.count, tuple(tuple(map(BrokerId, each.broker_ids)) for each in topic.assignments or ())
        )
        for topic in message.topics
    )
    return Asked(CreatePartitions(wanted, validate_only=message.validate_only), respond)


def _alter_configs(request: Request) -> Asked[tuple[ConfigOutcome, ...]]:
    """Answered when the changes stand in ZooKeeper."""
    incremental = request.api_key is ApiKey.INCREMENTAL_ALTER_CONFIGS
    refused: dict[tuple[str, int], Row] = {}
    wanted: list[ConfigAlteration] = []
    for resource in request.message.resources:
        name, number = resource.resource_name, resource.resource_type
        problem = _problem_with(resource, incremental)
        if problem:
            refused[name, number] = Row(name, number, ErrorCode.INVALID_REQUEST, problem)
            continue
        changes = (
            ConfigChange(
                each.name, Operation(each.config_operation) if incremental else Operation.SET, each.value or ""
            )
            for each in resource.configs
        )
        wanted.append(ConfigAlteration(number, name, tuple(changes)))

    def respond(outcomes: tuple[ConfigOutcome, ...]) -> tuple[Message, tuple[()]]:
        rows = refused | {
            (each.name, each.resource_type): Row(each.name, each.resource_type, each.error, each.message)
            for each in outcomes
        }
        return answer(request, rows.values()), ()

    event = AlterConfigs(tuple(wanted), incremental=incremental, validate_only=request.message.validate_only)
    return Asked(event, respond)


def _problem_with(resource: Message, incremental: bool) -> str:
    """What of a resource makes no sense, whatever is set."""
    for config in resource.configs:
        if incremental and config.config_operation not in tuple(Operation):
            return f"{config.name}: there is no operation {config.config_operation}."
        deleted = incremental and config.config_operation == Operation.DELETE
        if config.value is None and not deleted:
            return f"{config.name} has no value; to return to the default, delete it."
    return ""


def _elect_leaders(request: Request) -> Asked[tuple[ElectionOutcome, ...]]:
    """Answered when clients find the new leaders."""
    message = request.message
    kind = message.election_type if request.version >= FIRST_WITH_ERROR else ElectionType.PREFERRED.value
    if kind not in {each.value for each in ElectionType}:
        why = f"There is no election of type {kind}: 0 is preferred, 1 unclean."
        raise RequestRefused(ErrorCode.INVALID_REQUEST, why)
    named = message.topic_partitions
    if named is not None:
        named = tuple(TopicPartition(topic.topic, number) for topic in named for number in topic.partitions)

    def respond(outcomes: tuple[ElectionOutcome, ...]) -> tuple[Message, list[Awaited]]:
        rows = [Row(*each.partition, each.error, each.message) for each in outcomes]
        awaited: dict[str, Awaited] = {}
        for each in outcomes:
            if each.error is ErrorCode.NONE:
                topic, number = each.partition
                leaders = awaited.setdefault(topic, Awaited(topic=topic))
                leaders.partition.append(number)
                leaders.leader.append(each.leader)
        return answer(request, rows), list(awaited.values())

    return Asked(ElectLeaders(ElectionType(kind), named), respond)


def _alter_reassignments(request: Request) -> Asked[tuple[PartitionOutcome, ...]]:
    """Begin, replace or cancel reassignments; answered when they stand in ZooKeeper."""
    message = request.message
    moves = tuple(
        (
            TopicPartition(topic.name, each.partition_index),
            None if each.replicas is None else tuple(map(BrokerId, each.replicas)),
        )
        for topic in message.topics
        for each in topic.partitions
    )
    keep_factor = request.version >= FIRST_WITH_FACTOR and not message.allow_replication_factor_change

    def respond(outcomes: tuple[PartitionOutcome, ...]) -> tuple[Message, tuple[()]]:
        return answer(request, (Row(*each.partition, each.error, each.message) for each in outcomes)), ()

    return Asked(AlterReassignments(moves, keep_factor=keep_factor), respond)


def _list_reassignments(request: Request) -> Asked[tuple[tuple[TopicPartition, ReplicaAssignment], ...]]:
    """Name what is being reassigned."""
    named = request.message.topics
    if named is not None:
        named = tuple(TopicPartition(topic.name, number) for topic in named for number in topic.partition_indexes)

    def respond(under_way: tuple[tuple[TopicPartition, ReplicaAssignment], ...]) -> tuple[Message, tuple[()]]:
        topic_class = ListPartitionReassignmentsResponse.OngoingTopicReassignment
        by_topic: dict[str, list[Message]] = {}
        for (topic, number), assignment in under_way:
            ongoing = topic_class.OngoingPartitionReassignment(
                version=request.version,
                partition_index=number,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding),
                removing_replicas=list(assignment.removing),
            )
            by_topic.setdefault(topic, []).append(ongoing)
        topics = [topic_class(version=request.version, name=name, partitions=each) for name, each in by_topic.items()]
        return ListPartitionReassignmentsResponse(version=request.version, error_code=0, topics=topics), ()

    return Asked(ListReassignments(named), respond)


APIS: Final[Mapping[ApiKey, Callable[[Request], Asked[Any]]]] = {
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _list_reassignments,
}

UNLOGGED: Final = frozenset({ApiKey.LIST_PARTITION_REASSIGNMENTS})
"""What changes nothing."""


def forward(gate: RequestGate, envelope: pb.Envelope) -> pb.EnvelopeReply:
    """Answer what a client asked an agent. An outcome without a response: the request was refused as a whole."""
    try:
        request = parse_forwarded(envelope.api_key, envelope.api_version, envelope.client_id, envelope.request)
        asked = APIS[request.api_key](request)
    except UnsupportedApi as error:
        return _refused(ErrorCode.UNSUPPORTED_VERSION, f"The controller is of another version: {error}")
    except FrameMalformed as error:
        return _refused(ErrorCode.INVALID_REQUEST, str(error))
    except RequestRefused as error:
        return _refused(error.error, str(error))

    def respond(outcome: Any) -> pb.EnvelopeReply:
        if request.api_key not in UNLOGGED:
            logger.info("did %s for %s", request.api_key.name, context(envelope))
        message, awaited = asked.respond(outcome)
        return pb.EnvelopeReply(response=bytes(encode_body(request.version, message)), awaited=awaited)

    return gate.answer(asked.event, respond, _refused)


def context(envelope: pb.Envelope) -> RequestContext:
    """Who asks, and from where."""
    principal = Principal(envelope.principal_type, envelope.principal_name)
    return RequestContext(principal, envelope.listener, envelope.client_address, envelope.client_id)


def _refused(error: ErrorCode, why: str) -> pb.EnvelopeReply:
    return pb.EnvelopeReply(outcome=refusal(error, why))
