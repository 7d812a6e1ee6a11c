"""CreatePartitions."""

from __future__ import annotations

from regency.controller.admin.asked import Asked
from regency.controller.topics.partition_creation import CreatePartitions, MorePartitions, TopicOutcome
from regency.kafka.admin_answers import Row, answer
from regency.kafka.apis import Message
from regency.kafka.codec import Request
from regency.model.ids import BrokerId
from regency.model.kafka_errors import ErrorCode
from regency.protos.admin_pb2 import Awaited


def create(request: Request) -> Asked[tuple[TopicOutcome, ...]]:
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
