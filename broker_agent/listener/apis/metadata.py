"""Metadata: brokers, topics and leaders as this agent knows them, and auto-creation of topics that are asked for.

Answers without errors are kept encoded until the snapshot they were made from is replaced: clients of one
application ask the same. One of many rows is put together aside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from typing import Final
from uuid import UUID

from regency.broker_agent.control.metadata_cache import MetadataSnapshot, PartitionMetadata, TopicMetadata
from regency.broker_agent.listener.apis.cluster import CLUSTER_OPERATIONS, FIRST_SNAPSHOT_MS
from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import Answer, Exchange
from regency.broker_agent.listener.turns import FEW_ROWS
from regency.kafka.codec import LeaderRow, Message, MetadataResponse, Request, encode_body
from regency.model.ids import NO_LEADER, BrokerId, TopicId
from regency.model.kafka_errors import ErrorCode
from regency.model.principals import RequestContext
from regency.model.topic_names import is_internal, is_valid_topic_name

FIRST_WITH_LISTENER_NOT_FOUND: Final = 6
FIRST_WITH_NULLABLE_NAME: Final = 12
TOPIC_OPERATIONS: Final = frozenset({3, 4, 5, 6, 7, 8, 10, 11})
"""Read, write, create, delete, alter, describe, describe and alter configs: all, as there is no authorizer."""


def handle(services: Services, exchange: Exchange) -> None:
    """Answer from the current snapshot, with the endpoints of the listener the request came in on.

    No list of topics means all, an empty one none. An unknown topic is created when request and settings allow it.
    An agent that has just started waits for its first snapshot: a client told of no topics would drop its records.
    """
    snapshot = services.metadata.current
    if snapshot.version > 0 and not exchange.request.is_large:
        key = _key(exchange)
        body = services.metadata_answers.get(snapshot.version, key)
        if body is None and _rows(exchange.request.message, snapshot) <= FEW_ROWS:
            body = _finish(services, snapshot, key, _build(*_parts(services, exchange, snapshot)))
        if body is not None:
            exchange.answer_body(body)
            return
    exchange.run(_answer(services, exchange))


async def _answer(services: Services, exchange: Exchange) -> Answer:
    """With the first snapshot, or of many rows. What several clients ask at the same time is put together once."""
    await services.metadata.wait_for(lambda snapshot: snapshot.version > 0, FIRST_SNAPSHOT_MS)
    snapshot = services.metadata.current
    parts = _parts(services, exchange, snapshot)
    if exchange.request.is_large:
        return _finish(services, snapshot, None, await services.aside.run(_build, *parts))
    key = _key(exchange)
    making = services.metadata_in_making.get((snapshot.version, key))
    if making is None:
        making = services.aside.run(_build, *parts)
        services.metadata_in_making[snapshot.version, key] = making
        making.add_done_callback(lambda _: services.metadata_in_making.pop((snapshot.version, key)))
    return _finish(services, snapshot, key, await asyncio.shield(making))


def _key(exchange: Exchange) -> Hashable:
    message = exchange.request.message
    return (
        exchange.request.version,
        exchange.listener,
        _asked(message),
        message.include_cluster_authorized_operations,
        message.include_topic_authorized_operations,
    )


def _asked(message: Message) -> tuple[tuple[UUID, str | None], ...] | None:
    return None if message.topics is None else tuple(dict.fromkeys((t.topic_id, t.name) for t in message.topics))


def _rows(message: Message, snapshot: MetadataSnapshot) -> int:
    """How many topics and partitions the answer tells of."""
    if message.topics is None:
        return sum(1 + len(topic.partitions) for topic in snapshot.topics.values())
    names = (snapshot.names.get(topic.topic_id) if topic.topic_id else topic.name for topic in message.topics)
    topics = (snapshot.topics.get(name) for name in names if name is not None)
    return sum(1 + len(topic.partitions) for topic in topics if topic is not None)


def _parts(services: Services, exchange: Exchange, snapshot: MetadataSnapshot) -> tuple[_Builder, str]:
    """What it takes to put an answer together without looking at anything else."""
    message = exchange.request.message
    creation = services.auto_creation
    told = None
    if message.allow_auto_topic_creation and creation.enabled:
        told = creation.outlook(snapshot)
    return _Builder(exchange.request, snapshot, exchange.context, told), services.cluster_id


def _build(builder: _Builder, cluster_id: str) -> tuple[_Builder, Answer]:
    """The encoded response, and who knows whether all that was asked for is known."""
    asked = _asked(builder.request.message)
    topics = list(builder.all_known() if asked is None else builder.asked_for(asked))
    return builder, encode_body(builder.request.version, builder.response(cluster_id, topics))


def _finish(
    services: Services, snapshot: MetadataSnapshot, key: Hashable | None, built: tuple[_Builder, Answer]
) -> Answer:
    builder, body = built
    if builder.to_create:
        services.auto_creation.begin(builder.to_create, snapshot, builder.context)
    if key is not None and not builder.unknown and snapshot is services.metadata.current:
        services.metadata_answers.put(snapshot.version, key, body)
    return body


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

    def __init__(
        self, request: Request, snapshot: MetadataSnapshot, context: RequestContext, creating: ErrorCode | None
    ) -> None:
        """`creating`: what to tell of a topic that is to be created; None: none is."""
        self.request = request
        self.context = context
        self._creating = creating
        self._version = request.version
        self._snapshot = snapshot
        self._endpoints = snapshot.endpoints(context.listener)
        self.unknown = False
        """Whether a topic was asked for that is not known: such an answer is good for the moment only."""
        self.to_create: list[str] = []

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
                CLUSTER_OPERATIONS if self.request.message.include_cluster_authorized_operations else None
            ),
        )

    def all_known(self) -> Iterable[Message]:
        """An entry for every topic there is."""
        return (self.known(self._snapshot.topics[name]) for name in sorted(self._snapshot.topics))

    def asked_for(self, asked: Iterable[tuple[UUID | None, str | None]]) -> Iterable[Message]:
        """An entry for every topic the request names, by id from version 10 or by name."""
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
            elif self._creating is not None and not is_internal(name):
                self.to_create.append(name)
                yield self._missing(name, self._creating)
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
                TOPIC_OPERATIONS if self.request.message.include_topic_authorized_operations else None
            ),
        )

    def _partition(self, partition: PartitionMetadata) -> LeaderRow:
        error, leader = ErrorCode.NONE, partition.leader
        if leader not in self._endpoints:  # the client could not reach it
            is_known = leader in self._snapshot.brokers and self._version >= FIRST_WITH_LISTENER_NOT_FOUND
            error, leader = ErrorCode.LISTENER_NOT_FOUND if is_known else ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
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
