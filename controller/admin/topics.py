"""CreateTopics and DeleteTopics."""

from __future__ import annotations

from regency.controller.admin.asked import Asked, RequestRefused
from regency.controller.events import CreatedTopic, CreateTopics, NewTopic
from regency.controller.topics.deletion_requests import DeletedTopic, DeleteTopics, TopicRef
from regency.kafka.admin_answers import Row, answer, topics_to_delete
from regency.kafka.apis import Message
from regency.kafka.codec import Request
from regency.model.ids import BrokerId, TopicId
from regency.model.kafka_errors import ErrorCode
from regency.protos.admin_pb2 import Awaited

BOTH = "Name a topic either by its name or by its id, not by both."


def create(request: Request) -> Asked[tuple[CreatedTopic, ...]]:
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


def delete(request: Request) -> Asked[tuple[DeletedTopic, ...]]:
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
