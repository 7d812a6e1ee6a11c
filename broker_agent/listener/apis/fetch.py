"""Fetch: what consumers and followers read. Records pass through as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final
from uuid import UUID

import msgspec

from regency.broker_agent.control.metadata_cache import MetadataSnapshot
from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import LONGEST_WAIT_MS, Building, Exchange
from regency.broker_agent.listener.stats import FETCH_CONSUMER, FETCH_FOLLOWER
from regency.broker_agent.listener.turns import FEW_ROWS
from regency.broker_agent.replication.fetch_sessions import FetchContext
from regency.broker_agent.steps import Steps
from regency.kafka.codec import FetchedRow, FetchResponse, Message, Request
from regency.kafka.fetching.values import NO_RECORDS, FetchedPartition, FetchParams, FetchPartition
from regency.model.ids import (
    NO_BROKER_EPOCH,
    ZERO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from regency.model.kafka_errors import ErrorCode

FIRST_WITH_SESSIONS: Final = 7
FIRST_WITH_CURRENT_LEADER: Final = 12
FIRST_WITH_TOPIC_IDS: Final = 13
FIRST_WITH_REPLICA_STATE: Final = 15
FIRST_WITH_NODE_ENDPOINTS: Final = 16

LARGEST_ANSWER_BYTES: Final = 7 << 20
"""Of records: more at once would hold up the data loop for 50 ms where memory is slow."""
PARTITIONS_PER_STEP: Final = 2_000
"""Looked at before others have their turn; reading them has steps of its own."""
HELD_BACK_MS: Final = 100
"""How long a fetch waits at least for which there is no room."""

_TELL_LEADER: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_FULL_WITHOUT_SESSION: Final = -1

Unknown = list[tuple[TopicId, int]]
"""Partitions asked for by an id that no known topic has."""


def handle(services: Services, exchange: Exchange) -> None:
    """Answer now or after a long poll, which ends when the connection does.

    Followers come in on the inter-broker listener only: where that is another one, clients' networks have no replicas.
    """
    request = exchange.request
    params = _params(services, request)
    exchange.times = services.stats.timing.of(FETCH_FOLLOWER if params.from_follower else FETCH_CONSUMER)
    if params.from_follower and exchange.listener != services.settings.inter_broker_listener_name:
        exchange.answer(_refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        return
    exchange.work(_read(services, exchange, params))


def _read(services: Services, exchange: Exchange, params: FetchParams) -> Steps[Message | None]:
    """Have what is asked for read, and answered then."""
    request = exchange.request
    partitions, unknown = yield from _wanted(services, request)
    context = _session(services, request, params, partitions, names_unknown=bool(unknown))
    if isinstance(context, ErrorCode):
        return _top_level_error(request.version, context)

    def respond(results: Mapping[TopicPartition, FetchedPartition]) -> None:
        if not params.from_follower:
            results = _within(services.unsent.room(params.max_bytes), results)
        exchange.work(_tell(services, exchange, params, context, results, unknown))

    exchange.cancel_with(services.replicas.fetch(params, context.partitions, respond))
    return None


def failure(request: Request) -> Message:
    """The answer when the handler failed."""
    return _refused(request, ErrorCode.UNKNOWN_SERVER_ERROR)


def _refused(request: Request, error: ErrorCode) -> Message:
    """An error for the whole request: on top from version 7, before that for every partition."""
    if request.version >= FIRST_WITH_SESSIONS:
        return _top_level_error(request.version, error)
    failed = FetchedPartition(error)
    results = {
        TopicPartition(topic.topic, partition.partition): failed
        for topic in request.message.topics
        for partition in topic.partitions
    }
    return _Answer(request, {}).build(0, results)


def _tell(
    services: Services,
    exchange: Exchange,
    params: FetchParams,
    context: FetchContext,
    results: Mapping[TopicPartition, FetchedPartition],
    unknown: Unknown,
) -> Steps[Building]:
    request = exchange.request
    session_id, news = yield from context.finish(results)
    exchange.is_large = exchange.is_large or len(news) > FEW_ROWS
    if len(context.partitions) <= PARTITIONS_PER_STEP:
        _count(services, exchange, params, context.partitions, news)
    else:
        asked, rows = iter(context.partitions), iter(news.items())
        while some := list(islice(asked, PARTITIONS_PER_STEP)):
            _count(services, exchange, params, some, dict(islice(rows, PARTITIONS_PER_STEP)))
            yield
    ids = {wanted.topic_partition: wanted.topic_id for wanted in context.partitions}
    answer = _Answer(request, ids)
    if request.version >= FIRST_WITH_CURRENT_LEADER:
        answer.tell_leaders(services.metadata.current, exchange.listener)
    return partial(answer.build, session_id, news, unknown)


def _count(
    services: Services,
    exchange: Exchange,
    params: FetchParams,
    asked: Sequence[FetchPartition],
    news: Mapping[TopicPartition, FetchedPartition],
) -> None:
    """Some of the partitions that were asked for, and some to answer."""
    if params.from_follower:
        services.stats.traffic.fetched_by_follower(len(asked), news)
    else:
        services.stats.traffic.fetched_by_consumer(asked, news)
    for result in news.values():
        if result.error is not ErrorCode.NONE:
            exchange.count_error(result.error)


def _params(services: Services, request: Request) -> FetchParams:
    """What holds for the whole fetch. A consumer gets at most fetch.max.bytes, and what there is room for."""
    message = request.message
    replica_id, replica_epoch = BrokerId(message.replica_id), NO_BROKER_EPOCH
    if request.version >= FIRST_WITH_REPLICA_STATE:
        state = message.replica_state
        replica_id = BrokerId(state.replica_id if state is not None else -1)
        replica_epoch = BrokerEpoch(state.replica_epoch if state is not None else -1)
    max_bytes = max(0, min(message.max_bytes, LARGEST_ANSWER_BYTES))
    max_wait_ms = min(message.max_wait_ms, LONGEST_WAIT_MS)
    if replica_id < 0:
        max_bytes = min(max_bytes, services.settings.fetch_max_bytes)
        room = services.unsent.room(max_bytes)
        if room <= 0:
            services.stats.fetches_held_back += 1
            return FetchParams(replica_id, replica_epoch, max(max_wait_ms, HELD_BACK_MS), 1, NO_RECORDS)
        max_bytes = min(max_bytes, room)
    return FetchParams(replica_id, replica_epoch, max_wait_ms, min(message.min_bytes, max_bytes), max_bytes)


def _within(room: int, results: Mapping[TopicPartition, FetchedPartition]) -> Mapping[TopicPartition, FetchedPartition]:
    """What there is room for now, of a fetch that has waited; a first batch where there is any."""
    cut: dict[TopicPartition, FetchedPartition] = {}
    used = 0
    for key, result in results.items():
        size = len(result.records)
        if size and used + size > max(room, 0) and (used or room <= 0):
            cut[key] = msgspec.structs.replace(result, records=b"")
        used += size
    return {**results, **cut} if cut else results


def _name(services: Services, topic_id: TopicId) -> str | None:
    """Name of a topic, from metadata or, as LeaderAndIsr comes before UpdateMetadata, from what is hosted here."""
    return services.metadata.current.names.get(topic_id) or services.replicas.topic_name(topic_id)


def _wanted(services: Services, request: Request) -> Steps[tuple[list[FetchPartition], Unknown]]:
    """What the request names, and what it names by ids that no known topic has."""
    by_id = request.version >= FIRST_WITH_TOPIC_IDS
    wanted: list[FetchPartition] = []
    unknown: Unknown = []
    looked_at = 0
    for topic in request.message.topics:
        topic_id = _topic_id(topic.topic_id) if by_id else None
        name = topic.topic if topic_id is None else _name(services, topic_id)
        for partition in topic.partitions:
            looked_at += 1
            if looked_at % PARTITIONS_PER_STEP == 0:
                yield
            if name is None:
                unknown.append((topic_id or ZERO_TOPIC_ID, partition.partition))
                continue
            wanted.append(
                FetchPartition(
                    TopicPartition(name, partition.partition),
                    topic_id,
                    Offset(partition.fetch_offset),
                    partition.partition_max_bytes,
                    LeaderEpoch(partition.current_leader_epoch),
                    LeaderEpoch(partition.last_fetched_epoch),
                    Offset(partition.log_start_offset),
                )
            )
    return wanted, unknown


def _session(
    services: Services, request: Request, params: FetchParams, partitions: list[FetchPartition], *, names_unknown: bool
) -> FetchContext | ErrorCode:
    """The fetch in its session.

    A partition whose topic id is unknown cannot be remembered by name, and a client does not repeat in an incremental
    fetch what it believes remembered. So such a full fetch gets no session, and such an incremental one
    FETCH_SESSION_TOPIC_ID_ERROR, after which the client begins again.
    """
    message = request.message
    # A topic that was deleted and created again is forgotten by its old id and added by its new one, under one name.
    added = {wanted.topic_partition for wanted in partitions}
    forgotten: list[TopicPartition] = []
    for topic in message.forgotten_topics_data:
        name = topic.topic
        if request.version >= FIRST_WITH_TOPIC_IDS:
            name = _name(services, _topic_id(topic.topic_id))
        if name is None:
            names_unknown = True
        else:
            named = (TopicPartition(name, partition) for partition in topic.partitions)
            forgotten.extend(key for key in named if key not in added)
    epoch = message.session_epoch if request.version >= FIRST_WITH_SESSIONS else _FULL_WITHOUT_SESSION
    if names_unknown and epoch > 0:
        return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    if names_unknown:
        epoch = _FULL_WITHOUT_SESSION
    return services.sessions.resolve(
        message.session_id, epoch, partitions, forgotten, params.from_follower, services.clock.monotonic_ms()
    )


def _topic_id(decoded: UUID | None) -> TopicId:
    return ZERO_TOPIC_ID if decoded is None else TopicId(decoded)


def _top_level_error(version: int, error: ErrorCode) -> Message:
    return FetchResponse(version=version, error_code=int(error), session_id=0, responses=[])


class _Answer:
    """A fetch response while it is put together."""

    def __init__(self, request: Request, ids: Mapping[TopicPartition, TopicId | None]) -> None:
        self._version = request.version
        self._committed = request.message.isolation_level == 1
        self._ids = ids
        self._snapshot: MetadataSnapshot | None = None
        self._listener = ""
        self._leaders: set[BrokerId] = set()

    def tell_leaders(self, snapshot: MetadataSnapshot, listener: str) -> None:
        """Name current leaders, and from version 16 their addresses, with errors that mean one (KIP-951)."""
        self._snapshot = snapshot
        self._listener = listener

    def build(
        self, session_id: int, results: Mapping[TopicPartition, FetchedPartition], unknown: Unknown | None = None
    ) -> Message:
        """The response: results grouped by topic in their order, then the partitions of unknown ids."""
        by_topic: dict[tuple[str, TopicId | None], list[FetchedRow]] = {}
        for key, result in results.items():
            group = by_topic.setdefault((key.topic, self._ids.get(key)), [])
            group.append(self._partition(key, result))
        for topic_id, partition in unknown or ():
            group = by_topic.setdefault(("", topic_id), [])
            group.append(self._partition(TopicPartition("", partition), FetchedPartition(ErrorCode.UNKNOWN_TOPIC_ID)))
        topic_class = FetchResponse.FetchableTopicResponse
        topics = [
            topic_class(version=self._version, topic=name, topic_id=topic_id, partitions=partitions)
            for (name, topic_id), partitions in by_topic.items()
        ]
        return FetchResponse(
            version=self._version, session_id=session_id, responses=topics, node_endpoints=self._endpoints()
        )

    def _partition(self, key: TopicPartition, result: FetchedPartition) -> FetchedRow:
        row = FetchedRow(
            partition_index=key.partition,
            error_code=int(self._told(result.error)),
            high_watermark=result.high_watermark,
            last_stable_offset=result.high_watermark,
            log_start_offset=result.log_start_offset,
            records=result.records,
            aborted_transactions=() if self._committed else None,
        )
        if result.diverging is not None:
            row.diverging_epoch = FetchResponse.FetchableTopicResponse.PartitionData.EpochEndOffset(
                epoch=result.diverging.leader_epoch, end_offset=result.diverging.end_offset
            )
        if self._snapshot is not None and result.error in _TELL_LEADER:
            self._tell_leader(self._snapshot, row, key, result)
        return row

    def _told(self, error: ErrorCode) -> ErrorCode:
        """Clients up to version 5 do not know KAFKA_STORAGE_ERROR (KIP-112)."""
        hidden = error is ErrorCode.KAFKA_STORAGE_ERROR and self._version <= 5
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if hidden else error

    def _tell_leader(
        self, snapshot: MetadataSnapshot, row: FetchedRow, key: TopicPartition, result: FetchedPartition
    ) -> None:
        leader, epoch = result.leader, result.leader_epoch
        known = snapshot.partition(key)
        if known is not None and known.leader_epoch > epoch:
            leader, epoch = known.leader, known.leader_epoch
        if leader < 0:
            return
        leader_class = FetchResponse.FetchableTopicResponse.PartitionData.LeaderIdAndEpoch
        row.current_leader = leader_class(leader_id=leader, leader_epoch=epoch)
        self._leaders.add(leader)

    def _endpoints(self) -> list[Message]:
        if self._snapshot is None or self._version < FIRST_WITH_NODE_ENDPOINTS or not self._leaders:
            return []
        return [
            FetchResponse.NodeEndpoint(
                version=self._version, node_id=broker, host=endpoint.host, port=endpoint.port, rack=rack
            )
            for broker, (endpoint, rack) in self._snapshot.endpoints(self._listener).items()
            if broker in self._leaders
        ]
