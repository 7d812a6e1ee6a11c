"""ElectLeaders."""

from __future__ import annotations

from regency.controller.admin.asked import Asked, RequestRefused
from regency.controller.elections.leader_elections import ElectionOutcome, ElectionType, ElectLeaders
from regency.kafka.admin_answers import FIRST_WITH_ERROR, Row, answer
from regency.kafka.apis import Message
from regency.kafka.codec import Request
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.protos.admin_pb2 import Awaited


def elect(request: Request) -> Asked[tuple[ElectionOutcome, ...]]:
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
