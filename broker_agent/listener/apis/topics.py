"""CreateTopics: what can be refused without the controller is refused here; the rest is its decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from regency.broker_agent.control.admin_forwarder import CreatedTopicResult, NewTopicSpec, NotController
from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import Building, Exchange
from regency.kafka.codec import CreateTopicsResponse, Message, Request
from regency.model.errors import RegencyError
from regency.model.ids import BrokerId
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings
from regency.model.settings.log_config import topic_log_config
from regency.model.topic_names import InvalidTopicName, validate_topic_name

FIRST_WITH_CONFIGS: Final = 5
USE_DEFAULT: Final = -1
_TOPIC_CONFIG: Final = 1
"""Source of a topic's own configuration in the protocol."""


class TopicRefused(RegencyError):
    """A topic cannot be created as it is specified; `error` goes to the client."""

    code = "topic_refused"

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error


def handle(services: Services, exchange: Exchange) -> None:
    """Forward to the controller and answer when every new partition has a leader or the timeout has passed."""
    exchange.run(_create(services, exchange.request))


def failure(request: Request) -> Message:
    """The answer when the handler failed."""
    return _answer(request, _same_for_all(request, ErrorCode.UNKNOWN_SERVER_ERROR, ""))


async def _create(services: Services, request: Request) -> Building:
    message = request.message
    wanted, results = await services.build(request, partial(_specify_all, message, services.settings))
    if wanted:
        try:
            created = await services.admin.create_topics(
                wanted, validate_only=message.validate_only, timeout_ms=message.timeout_ms, require_local=True
            )
        except NotController as error:
            return partial(_answer, request, _same_for_all(request, ErrorCode.NOT_CONTROLLER, str(error)))
        results.update((result.name, result) for result in created)
    return partial(_answer, request, results)


def _specify_all(
    message: Message, settings: BrokerSettings
) -> tuple[list[NewTopicSpec], dict[str, CreatedTopicResult]]:
    """What is asked of the controller, and what is refused here."""
    results: dict[str, CreatedTopicResult] = {}
    wanted: list[NewTopicSpec] = []
    times_named = Counter(topic.name for topic in message.topics)
    for topic in message.topics:
        if times_named[topic.name] > 1:
            twice = "The topic is named twice in the request."
            results[topic.name] = CreatedTopicResult(topic.name, ErrorCode.INVALID_REQUEST, twice)
            continue
        try:
            wanted.append(specify(topic, settings))
        except TopicRefused as refused:
            results[topic.name] = CreatedTopicResult(topic.name, refused.error, str(refused))
    return wanted, results


def specify(topic: Message, settings: BrokerSettings) -> NewTopicSpec:
    """A topic of a request as the controller wants it, with this broker's defaults filled in. Raises TopicRefused.

    Whether there are brokers enough only the controller knows: metadata here may not name the newest yet.
    """
    try:
        validate_topic_name(topic.name)
    except InvalidTopicName as error:
        raise TopicRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from error
    configs = _configs(topic, settings)
    if topic.assignments:
        if (topic.num_partitions, topic.replication_factor) != (USE_DEFAULT, USE_DEFAULT):
            raise TopicRefused(
                ErrorCode.INVALID_REQUEST, "Give either assignments or numbers of partitions and replicas, not both."
            )
        return NewTopicSpec(topic.name, assignments=_assignments(topic), configs=configs)
    partitions = settings.num_partitions if topic.num_partitions == USE_DEFAULT else topic.num_partitions
    factor = (
        settings.default_replication_factor if topic.replication_factor == USE_DEFAULT else topic.replication_factor
    )
    if partitions < 1:
        raise TopicRefused(ErrorCode.INVALID_PARTITIONS, f"A topic has 1 or more partitions, not {partitions}.")
    if factor < 1:
        raise TopicRefused(ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is 1 or more, not {factor}.")
    return NewTopicSpec(topic.name, partitions, factor, configs=configs)


def _assignments(topic: Message) -> dict[int, tuple[BrokerId, ...]]:
    assignments: dict[int, tuple[BrokerId, ...]] = {}
    for assignment in topic.assignments:
        replicas = tuple(BrokerId(broker) for broker in assignment.broker_ids)
        if assignment.partition_index in assignments:
            problem = f"partition {assignment.partition_index} is assigned twice"
        elif not replicas:
            problem = f"partition {assignment.partition_index} has no replicas"
        elif len(set(replicas)) != len(replicas):
            problem = f"partition {assignment.partition_index} names a broker twice"
        else:
            assignments[assignment.partition_index] = replicas
            continue
        raise TopicRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The assignment is not possible: {problem}.")
    if sorted(assignments) != list(range(len(assignments))):
        raise TopicRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions are numbered from 0 without gaps.")
    if len({len(replicas) for replicas in assignments.values()}) != 1:
        raise TopicRefused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "All partitions must have the same number of replicas."
        )
    return assignments


def _configs(topic: Message, settings: BrokerSettings) -> dict[str, str]:
    configs: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise TopicRefused(ErrorCode.INVALID_CONFIG, f"{config.name} has no value.")
        configs[config.name] = config.value
    try:
        topic_log_config(settings.log_config(), configs, source=f"the settings of topic {topic.name}")
    except RegencyError as error:
        raise TopicRefused(ErrorCode.INVALID_CONFIG, str(error)) from error
    return configs


def _same_for_all(request: Request, error: ErrorCode, message: str) -> dict[str, CreatedTopicResult]:
    return {topic.name: CreatedTopicResult(topic.name, error, message) for topic in request.message.topics}


def _answer(request: Request, results: Mapping[str, CreatedTopicResult]) -> Message:
    configs = {topic.name: topic.configs for topic in request.message.topics}
    return CreateTopicsResponse(
        version=request.version,
        topics=[_result(request.version, result, configs[name]) for name, result in results.items()],
    )


def _result(version: int, result: CreatedTopicResult, configs: Sequence[Message]) -> Message:
    """One topic. From version 5 with its settings, never null: Java's client cannot read null beside success."""
    result_class = CreateTopicsResponse.CreatableTopicResult
    failed = result.error is not ErrorCode.NONE
    told = [] if failed or version < FIRST_WITH_CONFIGS else configs
    return result_class(
        version=version,
        name=result.name,
        topic_id=result.topic_id,
        error_code=int(result.error),
        error_message=(result.message or result.error.name) if failed else None,
        num_partitions=USE_DEFAULT if failed else result.num_partitions,
        replication_factor=USE_DEFAULT if failed else result.replication_factor,
        configs=[
            result_class.CreatableTopicConfigs(
                version=version,
                name=config.name,
                value=config.value,
                read_only=False,
                config_source=_TOPIC_CONFIG,
                is_sensitive=False,
            )
            for config in told
        ],
    )
