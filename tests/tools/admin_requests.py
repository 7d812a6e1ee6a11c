"""Admin requests of Kafka's protocol as tests send them, in their envelopes, and the rows of their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from regency.kafka.apis import FORWARDED, OFFERED, ApiKey, Message
from regency.kafka.codec import (
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
    encode_body,
)
from regency.protos.admin_pb2 import Envelope

VERSIONS = [
    (api, version) for api in sorted(FORWARDED) for version in range(OFFERED[api].lowest, OFFERED[api].highest + 1)
]
"""Every API that is forwarded in every version that is offered."""


def new_topic(
    name: str,
    partitions: int = -1,
    factor: int = -1,
    *,
    assignments: Sequence[tuple[int, list[int]]] = (),
    configs: Mapping[str, str | None] | None = None,
) -> Any:
    topic = CreateTopicsRequest.CreatableTopic
    return topic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            topic.CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
            for number, brokers in assignments
        ],
        configs=[topic.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def creating(*topics: Any, **options: Any) -> Message:
    return CreateTopicsRequest(topics=list(topics), **{"timeout_ms": 5000, **options})


def deleting(version: int, *names: str | UUID, timeout_ms: int = 5000) -> Message:
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
    state = DeleteTopicsRequest.DeleteTopicState
    topics = [state(name=None, topic_id=each) if isinstance(each, UUID) else state(name=each) for each in names]
    return DeleteTopicsRequest(topics=topics, timeout_ms=timeout_ms)


def growing(*topics: tuple[str, int, list[list[int]] | None], validate_only: bool = False) -> Message:
    grown = CreatePartitionsRequest.CreatePartitionsTopic
    return CreatePartitionsRequest(
        topics=[
            grown(
                name=name,
                count=count,
                assignments=None
                if assignments is None
                else [grown.CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments],
            )
            for name, count, assignments in topics
        ],
        timeout_ms=5000,
        validate_only=validate_only,
    )


def altering(
    *resources: tuple[int, str, list[tuple[str, int, str | None]]],
    incremental: bool = True,
    validate_only: bool = False,
) -> Message:
    request = IncrementalAlterConfigsRequest if incremental else AlterConfigsRequest
    resource = request.AlterConfigsResource
    operations = [{"config_operation": operation} for _, _, changes in resources for _, operation, _ in changes]
    told = iter(operations if incremental else [{}] * len(operations))
    return request(
        resources=[
            resource(
                resource_type=kind,
                resource_name=name,
                configs=[resource.AlterableConfig(name=key, value=value, **next(told)) for key, _, value in changes],
            )
            for kind, name, changes in resources
        ],
        validate_only=validate_only,
    )


def electing(version: int, partitions: list[int] | None, *, kind: int = 0, topic: str = "t") -> Message:
    named = ElectLeadersRequest.TopicPartitions(version=version, topic=topic, partitions=partitions)
    message = ElectLeadersRequest(
        version=version, topic_partitions=None if partitions is None else [named], timeout_ms=5000
    )
    if version >= 1:
        message.election_type = kind
    return message


def moving(partitions: Mapping[int, list[int] | None], **options: Any) -> Message:
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    moves = [topic.ReassignablePartition(partition_index=each, replicas=to) for each, to in partitions.items()]
    return AlterPartitionReassignmentsRequest(topics=[topic(name="t", partitions=moves)], timeout_ms=5000, **options)


def listing(partitions: list[int] | None) -> Message:
    topic = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    named = None if partitions is None else [topic(name="t", partition_indexes=partitions)]
    return ListPartitionReassignmentsRequest(topics=named, timeout_ms=5000)


def any_request(api: ApiKey, version: int) -> Message:
    """One that names topic `t`, its partition 0 where partitions are named."""
    match api:
        case ApiKey.CREATE_TOPICS:
            return creating(new_topic("t", 1, 2, configs={"retention.ms": "5"}))
        case ApiKey.DELETE_TOPICS:
            return deleting(version, "t")
        case ApiKey.CREATE_PARTITIONS:
            return growing(("t", 2, None))
        case ApiKey.ALTER_CONFIGS | ApiKey.INCREMENTAL_ALTER_CONFIGS:
            return altering((2, "t", [("retention.ms", 0, "5")]), incremental=api is not ApiKey.ALTER_CONFIGS)
        case ApiKey.ELECT_LEADERS:
            return electing(version, [0])
        case ApiKey.ALTER_PARTITION_REASSIGNMENTS:
            return moving({0: [2, 3]})
        case _:
            return listing([0])


def enveloped(message: Message, version: int, *, client_id: str = "test") -> Envelope:
    """As an agent sends it for a client on its own machine."""
    return Envelope(
        api_key=message.API_KEY,
        api_version=version,
        request=bytes(encode_body(version, message)),
        principal_type="User",
        principal_name="ANONYMOUS",
        listener="PLAINTEXT",
        client_address="127.0.0.1",
        client_id=client_id,
    )


def outcomes(answer: Message) -> dict[Any, tuple[int, str | None]]:
    """Error and message of each row, by topic, by resource, or by topic and partition."""
    found = {}
    for row in _rows(answer, "topics", "results", "responses", "replica_election_results"):
        name = getattr(row, "name", None) or getattr(row, "topic", None) or getattr(row, "resource_name", None)
        nested = _rows(row, "partitions", "partition_result")
        for each in nested:
            number = getattr(each, "partition_index", None) if hasattr(each, "partition_index") else each.partition_id
            found[name, number] = (each.error_code, each.error_message)
        if not nested:
            found[name] = (row.error_code, getattr(row, "error_message", None))
    return found


def _rows(message: Any, *names: str) -> list[Any]:
    return next((list(getattr(message, name)) for name in names if getattr(message, name, None) is not None), [])
