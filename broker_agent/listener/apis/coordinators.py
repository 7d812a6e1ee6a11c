"""FindCoordinator: which broker keeps a group. Has the topic that groups are kept in made where it is not there yet."""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from regency.broker_agent.listener.apis.cluster import FIRST_SNAPSHOT_MS
from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import Building, Exchange
from regency.broker_agent.steps import Steps, at_once
from regency.kafka.codec import FindCoordinatorResponse, Message, Request
from regency.kafka.groups.placement import OFFSETS_TOPIC
from regency.model.ids import NO_LEADER, BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
FIRST_WITH_SHARE: Final = 6
FIRST_WITH_KEYS: Final = 4
FIRST_WITH_TYPE: Final = 1
KEYS_PER_STEP: Final = 200
"""Looked up before others have a turn."""


class _Found(NamedTuple):
    key: str
    error: ErrorCode = ErrorCode.NONE
    node: BrokerId = NO_LEADER
    host: str = ""
    port: int = -1
    message: str | None = None


def handle(services: Services, exchange: Exchange) -> None:
    """The leader of the group's partition, at the listener that was asked; COORDINATOR_NOT_AVAILABLE: ask again.

    A transactional producer is sent to this very broker: InitProducerId tells it there, in the way that every client
    takes for final, that transactions are not offered.
    """
    if services.metadata.current.version == 0:
        exchange.run(_first(services, exchange))
    else:
        exchange.work(_look_up(services, exchange))


async def _first(services: Services, exchange: Exchange) -> Building:
    await services.metadata.wait_for(lambda snapshot: snapshot.version > 0, FIRST_SNAPSHOT_MS)
    return at_once(_look_up(services, exchange))


def _look_up(services: Services, exchange: Exchange) -> Steps[Building]:
    found: list[_Found] = []
    for key in _keys(exchange.request):
        found.append(_find(services, exchange, key))
        if len(found) % KEYS_PER_STEP == 0:
            yield
    return partial(_answer, exchange.request, found)


def failure(request: Request) -> Message:
    """The answer when the handler failed."""
    return _answer(request, [_Found(key, ErrorCode.UNKNOWN_SERVER_ERROR) for key in _keys(request)])


def _keys(request: Request) -> list[str]:
    message = request.message
    return list(message.coordinator_keys) if request.version >= FIRST_WITH_KEYS else [message.key]


def _find(services: Services, exchange: Exchange, key: str) -> _Found:
    request = exchange.request
    kind = request.message.key_type if request.version >= FIRST_WITH_TYPE else GROUP
    if kind == GROUP:
        return _find_group(services, exchange, key)
    if kind == TRANSACTION:
        return _at(services, exchange, key, services.settings.broker_id)
    if kind == SHARE and request.version >= FIRST_WITH_SHARE:
        return _Found(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, message="There are no share groups.")
    return _Found(key, ErrorCode.INVALID_REQUEST, message=f"There is no coordinator of type {kind}.")


def _find_group(services: Services, exchange: Exchange, group_id: str) -> _Found:
    snapshot = services.metadata.current
    if OFFSETS_TOPIC not in snapshot.topics:
        services.auto_creation.begin_offsets_topic(snapshot, exchange.context)
        return _Found(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE, message=f"{OFFSETS_TOPIC} is not there yet.")
    number = services.groups.partition_of(group_id)
    partition = None if number is None else snapshot.partition(TopicPartition(OFFSETS_TOPIC, number))
    return _at(services, exchange, group_id, NO_LEADER if partition is None else partition.leader)


def _at(services: Services, exchange: Exchange, key: str, broker: BrokerId) -> _Found:
    node = services.metadata.current.brokers.get(broker)
    endpoint = None if node is None else node.endpoint(exchange.listener)
    if endpoint is None:
        return _Found(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, message="The coordinator is not available.")
    return _Found(key, ErrorCode.NONE, broker, endpoint.host, endpoint.port)


def _answer(request: Request, found: list[_Found]) -> Message:
    version = request.version
    if version < FIRST_WITH_KEYS:
        (only,) = found
        return FindCoordinatorResponse(
            version=version,
            error_code=int(only.error),
            error_message=only.message,
            node_id=only.node,
            host=only.host,
            port=only.port,
        )
    return FindCoordinatorResponse(
        version=version,
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                version=version,
                key=each.key,
                node_id=each.node,
                host=each.host,
                port=each.port,
                error_code=int(each.error),
                error_message=each.message,
            )
            for each in found
        ],
    )
