"""Answers to the admin requests that brokers forward: rows, one for each thing that a request names, as Kafka has them.

The controller makes them of what became of each; a broker that reaches no controller, of what the request names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from regency.kafka.apis import ApiKey
from regency.kafka.codec import (
    AlterConfigsResponse,
    AlterPartitionReassignmentsResponse,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    ElectLeadersResponse,
    IncrementalAlterConfigsResponse,
    ListPartitionReassignmentsResponse,
    Message,
    Request,
)
from regency.model.kafka_errors import ErrorCode

Named: TypeAlias = tuple[str | None, int | None]
"""A topic without a number, a partition with its own, or a resource with its type."""

FIRST_WITH_CONFIGS: Final = 5
"""Version of CreateTopics whose answer has the settings of each topic."""

FIRST_WITH_DISABLED: Final = 3
"""Version of DeleteTopics that knows TOPIC_DELETION_DISABLED."""

FIRST_WITH_IDS: Final = 6
"""Version of DeleteTopics that names topics by id too."""

FIRST_WITH_FACTOR: Final = 1
"""Version of AlterPartitionReassignments that may demand that no replication factor changes (KIP-860)."""

FIRST_WITH_ERROR: Final = 1
"""Version of ElectLeaders that has a type of election, and in its answer an error of the whole."""

TOPIC_CONFIG: Final = 1
"""Source of a topic's own configuration in the protocol."""


class Row(NamedTuple):
    """What became of one thing; `name` None where a topic is known by its id alone."""

    name: str | None
    number: int | None = None
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    topic_id: UUID | None = None
    num_partitions: int = -1
    replication_factor: int = -1


def answer(request: Request, rows: Iterable[Row], error: ErrorCode = ErrorCode.NONE, why: str = "") -> Message:
    """The response with these rows, and with the error of the whole where it has a place for that."""
    return _BUILDERS[request.api_key](request, rows, error, why)


def refuse(
    request: Request, error: ErrorCode, why: str, all_partitions: Callable[[], Iterable[Named]] = tuple
) -> Message:
    """One error for everything that the request names. Where there is no other place for it, an election of everything
    has it at `all_partitions`.
    """
    rows = [each._replace(error=error, message=why) for each in _subjects(request)]
    if request.api_key is ApiKey.ELECT_LEADERS and request.version < FIRST_WITH_ERROR and not rows:
        rows = [Row(*named, error, why) for named in all_partitions()]
    return answer(request, rows, error, why)


def rows_of(api_key: ApiKey, message: Message) -> list[Row]:
    """The rows of a response about topics, partitions that were added, or leaders."""
    match api_key:
        case ApiKey.CREATE_TOPICS:
            rows = [(row.name, None, row) for row in message.topics]
        case ApiKey.CREATE_PARTITIONS:
            rows = [(row.name, None, row) for row in message.results]
        case ApiKey.DELETE_TOPICS:
            rows = [(row.name, None, row) for row in message.responses]
        case _:
            topics = message.replica_election_results
            rows = [(topic.topic, row.partition_id, row) for topic in topics for row in topic.partition_result]
    return [
        Row(
            name,
            number,
            ErrorCode(row.error_code),
            getattr(row, "error_message", None) or "",
            getattr(row, "topic_id", None),
            getattr(row, "num_partitions", -1),
            getattr(row, "replication_factor", -1),
        )
        for name, number, row in rows
    ]


def topics_to_delete(request: Request) -> list[Row]:
    """The topics that a DeleteTopics names, each once."""
    message = request.message
    if request.version < FIRST_WITH_IDS:
        return [Row(name) for name in dict.fromkeys(message.topic_names)]
    return list(dict.fromkeys(Row(topic.name, topic_id=topic.topic_id) for topic in message.topics))


def _subjects(request: Request) -> list[Row]:
    """What a request names, without an outcome."""
    message = request.message
    match request.api_key:
        case ApiKey.DELETE_TOPICS:
            return topics_to_delete(request)
        case ApiKey.CREATE_TOPICS | ApiKey.CREATE_PARTITIONS:
            return [Row(name) for name in dict.fromkeys(topic.name for topic in message.topics)]
        case ApiKey.ALTER_CONFIGS | ApiKey.INCREMENTAL_ALTER_CONFIGS:
            return list(dict.fromkeys(Row(each.resource_name, each.resource_type) for each in message.resources))
        case ApiKey.ELECT_LEADERS:
            topics = message.topic_partitions or ()
            return [Row(topic.topic, number) for topic in topics for number in topic.partitions]
        case ApiKey.ALTER_PARTITION_REASSIGNMENTS:
            return [Row(topic.name, each.partition_index) for topic in message.topics for each in topic.partitions]
    return []


def _outcome(row: Row, version: int, **fields: Any) -> dict[str, Any]:
    """The fields that every row has, besides its own."""
    failed = row.error is not ErrorCode.NONE
    told = (row.message or row.error.name) if failed else None
    return {"version": version, "error_code": int(row.error), "error_message": told, **fields}


def _created_topics(request: Request, rows: Iterable[Row], _: ErrorCode, __: str) -> Message:
    """With the settings asked for, never null: Java's client cannot read null beside success."""
    result_class = CreateTopicsResponse.CreatableTopicResult
    configs = {}
    if request.version >= FIRST_WITH_CONFIGS:
        configs = {topic.name: topic.configs for topic in request.message.topics}
    return CreateTopicsResponse(
        version=request.version,
        topics=[
            result_class(
                **_outcome(row, request.version, name=row.name, topic_id=row.topic_id),
                num_partitions=row.num_partitions,
                replication_factor=row.replication_factor,
                configs=[
                    result_class.CreatableTopicConfigs(
                        version=request.version,
                        name=config.name,
                        value=config.value,
                        read_only=False,
                        config_source=TOPIC_CONFIG,
                        is_sensitive=False,
                    )
                    for config in (configs.get(row.name, ()) if row.error is ErrorCode.NONE else ())
                ],
            )
            for row in rows
        ],
    )


def _created_partitions(request: Request, rows: Iterable[Row], _: ErrorCode, __: str) -> Message:
    result_class = CreatePartitionsResponse.CreatePartitionsTopicResult
    results = [result_class(**_outcome(row, request.version, name=row.name)) for row in rows]
    return CreatePartitionsResponse(version=request.version, results=results)


def _deleted_topics(request: Request, rows: Iterable[Row], _: ErrorCode, __: str) -> Message:
    result_class = DeleteTopicsResponse.DeletableTopicResult
    responses = []
    for row in rows:
        if row.error is ErrorCode.TOPIC_DELETION_DISABLED and request.version < FIRST_WITH_DISABLED:
            row = row._replace(error=ErrorCode.INVALID_REQUEST)
        responses.append(result_class(**_outcome(row, request.version, name=row.name, topic_id=row.topic_id)))
    return DeleteTopicsResponse(version=request.version, responses=responses)


def _altered_configs(request: Request, rows: Iterable[Row], _: ErrorCode, __: str) -> Message:
    incremental = request.api_key is ApiKey.INCREMENTAL_ALTER_CONFIGS
    response_class = IncrementalAlterConfigsResponse if incremental else AlterConfigsResponse
    result_class = response_class.AlterConfigsResourceResponse
    responses = [
        result_class(**_outcome(row, request.version, resource_type=row.number, resource_name=row.name)) for row in rows
    ]
    return response_class(version=request.version, responses=responses)


def _elected(request: Request, rows: Iterable[Row], error: ErrorCode, _: str) -> Message:
    topic_class = ElectLeadersResponse.ReplicaElectionResult
    by_topic: dict[str | None, list[Message]] = {}
    for row in rows:
        result = topic_class.PartitionResult(**_outcome(row, request.version, partition_id=row.number))
        by_topic.setdefault(row.name, []).append(result)
    return ElectLeadersResponse(
        version=request.version,
        error_code=int(error),
        replica_election_results=[
            topic_class(version=request.version, topic=topic, partition_result=results)
            for topic, results in by_topic.items()
        ],
    )


def _reassigned(request: Request, rows: Iterable[Row], error: ErrorCode, why: str) -> Message:
    topic_class = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
    by_topic: dict[str | None, list[Message]] = {}
    for row in rows:
        result = topic_class.ReassignablePartitionResponse(**_outcome(row, request.version, partition_index=row.number))
        by_topic.setdefault(row.name, []).append(result)
    flags = {}
    if request.version >= FIRST_WITH_FACTOR:
        flags["allow_replication_factor_change"] = request.message.allow_replication_factor_change
    return AlterPartitionReassignmentsResponse(
        **_outcome(Row(None, None, error, why), request.version),
        responses=[
            topic_class(version=request.version, name=topic, partitions=results) for topic, results in by_topic.items()
        ],
        **flags,
    )


def _no_list(request: Request, _: Iterable[Row], error: ErrorCode, why: str) -> Message:
    return ListPartitionReassignmentsResponse(**_outcome(Row(None, None, error, why), request.version), topics=[])


_BUILDERS: Final[dict[ApiKey, Callable[[Request, Iterable[Row], ErrorCode, str], Message]]] = {
    ApiKey.CREATE_TOPICS: _created_topics,
    ApiKey.DELETE_TOPICS: _deleted_topics,
    ApiKey.ALTER_CONFIGS: _altered_configs,
    ApiKey.CREATE_PARTITIONS: _created_partitions,
    ApiKey.ELECT_LEADERS: _elected,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _altered_configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassigned,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _no_list,
}
