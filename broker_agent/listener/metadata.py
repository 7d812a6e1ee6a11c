"""Metadata: brokers, topics and leaders as this agent knows them, and auto-creation of topics that are asked for.

Answers without errors are kept encoded until the snapshot they were made from is replaced: clients of one
application ask the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from regency.broker_agent.listener.cluster import CLUSTER_OPERATIONS, FIRST_SNAPSHOT_MS
from regency.broker_agent.listener.exchange import Exchange
from regency.broker_agent.listener.lookup import endpoints, leader_error
from regency.broker_agent.listener.services import Services
from regency.broker_agent.metadata import MetadataSnapshot, PartitionMetadata, TopicMetadata
from regency.broker_agent.wire.codec import Message, MetadataResponse, Request, encode_body
from regency.broker_agent.wire.rows import LeaderRow
from regency.model.ids import BrokerId, TopicId
from regency.model.kafka_errors import ErrorCode
from regency.model.topic_names import is_internal, is_valid_topic_name

FIRST_WITH_LISTENER_NOT_FOUND: Final = 6
FIRST_WITH_NULLABLE_NAME: Final = 12
TOPIC_OPERATIONS: Final = frozenset({3, 4, 5, 6, 7, 8, 10, 11})
"""Read, write, create, delete, alter, describe, describe and alter configs: all, as there is no authorizer."""


def handle(services: Services, exchange: Exchange) -> None:
    """Answer from the current snapshot, with the endpoints of the listener the request came in on.

    No list of topics means all, an empty one none. A topic nobody knows is created when request and settings allow it.
    An agent that has just started waits for its first snapshot: a client told of no topics would drop its records.
    """
    if services.metadata.current.version > 0:
        exchange.answer_body(_body(services, exchange))
    else:
        exchange.run(_first(services, exchange))


async def _first(services: Services, exchange: Exchange) -> Message:
    await services.metadata.wait_for(lambda snapshot: snapshot.version > 0, FIRST_SNAPSHOT_MS)
    return _message(services, exchange)[0]


def _body(services: Services, exchange: Exchange) -> bytes | bytearray:
    request = exchange.request
    message = request.message
    version = services.metadata.current.version
    key = (
        request.version,
        exchange.listener,
        _asked(message),
        message.include_cluster_authorized_operations,
        message.include_topic_authorized_operations,
    )
    body = services.metadata_answers.get(version, key)
    if body is None:
        answer, whole = _message(services, exchange)
        body = encode_body(request.version, answer)
        if whole:
            services.metadata_answers.put(version, key, body)
    return body


def _asked(message: Message) -> tuple[tuple[UUID, str | None], ...] | None:
    return None if message.topics is None else tuple(dict.fromkeys((t.topic_id, t.name) for t in message.topics))


def _message(services: Services, exchange: Exchange) -> tuple[Message, bool]:
    """The response from the current snapshot, and whether everything that was asked for is known."""
    snapshot = services.metadata.current
    builder = _Builder(exchange.request, snapshot, exchange.listener)
    asked = _asked(exchange.request.message)
    if asked is None:
        topics = [builder.known(snapshot.topics[name]) for name in sorted(snapshot.topics)]
    else:
        topics = list(builder.asked_for(asked, services))
    return builder.response(services.cluster_id, topics), not builder.unknown


def failure(request: Request) -> Message:
    """The answer when the handler failed: no brokers, and the error for every topic that was named."""
    error = int(ErrorCode.UNKNOWN_SERVER_ERROR)
    topics = [
        MetadataResponse.MetadataResponseTopic(
            version=request.version, error_code=error, name=topic.name or "", topic_id=topic.topic_id, partitions=[]
        )
        for topic in request.message.topics or ()
    ]
    return MetadataResponse(version=request.version, brokers=[], cluster_id=None, controller_id=-1, topics=topics)


class _Builder:
    """A metadata response while it is put together."""

    def __init__(self, request: Request, snapshot: MetadataSnapshot, listener: str) -> None:
        self._request = request
        self._version = request.version
        self._snapshot = snapshot
        self._listener = listener
        self._endpoints = endpoints(snapshot, listener)
        self.unknown = False
        """Whether a topic was asked for that is not known: such an answer is good for the moment only."""

    def response(self, cluster_id: str, topics: list[Message]) -> Message:
        """The whole answer."""
        brokers = [
            MetadataResponse.MetadataResponseBroker(
                version=self._version, node_id=broker, host=endpoint.host, port=endpoint.port, rack=rack
            )
            for broker, (endpoint, rack) in self._endpoints.items()
        ]
        return MetadataResponse(
            version=self._version,
            brokers=brokers,
            cluster_id=cluster_id,
            controller_id=self._snapshot.controller_id,
            topics=topics,
            authorized_operations=(
                CLUSTER_OPERATIONS if self._request.message.include_cluster_authorized_operations else None
            ),
        )

    def asked_for(self, asked: Iterable[tuple[UUID | None, str | None]], services: Services) -> Iterable[Message]:
        """An entry for every topic the request names, by id from version 10 or by name."""
        create = self._request.message.allow_auto_topic_creation and services.auto_creation.enabled
        for asked_id, asked_name in asked:
            topic_id = None if asked_id is None else TopicId(asked_id)
            name = asked_name if topic_id is None else self._snapshot.names.get(topic_id)
            topic = self._snapshot.topics.get(name) if name is not None else None
            if topic is not None:
                yield self.known(topic)
                continue
            self.unknown = True
            if topic_id is not None:
                yield self._missing(None, ErrorCode.UNKNOWN_TOPIC_ID, topic_id)
            elif name is None or not is_valid_topic_name(name):
                yield self._missing(name, ErrorCode.INVALID_TOPIC_EXCEPTION)
            elif create and not is_internal(name):
                yield self._missing(name, services.auto_creation.begin([name], self._snapshot))
            else:
                yield self._missing(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def known(self, topic: TopicMetadata) -> Message:
        """The entry of a topic."""
        return MetadataResponse.MetadataResponseTopic(
            version=self._version,
            error_code=0,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=is_internal(topic.name),
            partitions=[self._partition(topic.partitions[number]) for number in sorted(topic.partitions)],
            authorized_operations=(
                TOPIC_OPERATIONS if self._request.message.include_topic_authorized_operations else None
            ),
        )

    def _partition(self, partition: PartitionMetadata) -> LeaderRow:
        error, leader = leader_error(self._snapshot, partition, self._listener)
        if error is ErrorCode.LISTENER_NOT_FOUND and self._version < FIRST_WITH_LISTENER_NOT_FOUND:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        return LeaderRow(
            error_code=int(error),
            partition_index=partition.partition,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=partition.replicas,
            isr_nodes=partition.isr,
            offline_replicas=[replica for replica in partition.replicas if self._is_offline(partition, replica)],
        )

    def _is_offline(self, partition: PartitionMetadata, replica: BrokerId) -> bool:
        return replica in partition.offline or replica not in self._endpoints

    def _missing(self, name: str | None, error: ErrorCode, topic_id: TopicId | None = None) -> Message:
        if name is None and self._version < FIRST_WITH_NULLABLE_NAME:
            name = ""
        return MetadataResponse.MetadataResponseTopic(
            version=self._version, error_code=int(error), name=name, topic_id=topic_id, partitions=[]
        )
