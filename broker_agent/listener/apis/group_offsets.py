"""OffsetCommit, OffsetFetch and OffsetDelete: how far groups have come."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache, partial
from typing import Final, TypeAlias

from regency.broker_agent.groups.api import NO_MEMBER, Caller, FetchedOffsets, OffsetResults
from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import Building, Exchange, guarded
from regency.broker_agent.listener.turns import FEW_ROWS
from regency.broker_agent.steps import Steps
from regency.kafka.codec import (
    Message,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetchResponse,
    Request,
    encode_body,
)
from regency.kafka.groups.records import OffsetAndMetadata
from regency.model.ids import NO_LEADER_EPOCH, UNKNOWN_OFFSET, LeaderEpoch, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

_COMMIT_WITH_RETENTION: Final = range(2, 5)
_COMMIT_WITH_EPOCHS: Final = 6
_COMMIT_WITH_INSTANCES: Final = 7
_FETCH_WITH_ERROR: Final = 2
_FETCH_WITH_STABLE: Final = 7
_FETCH_WITH_GROUPS: Final = 8
_NO_RETENTION: Final = -1
PARTITIONS_PER_STEP: Final = 1_000
GROUPS_PER_STEP: Final = 100
"""Looked at before others have a turn."""
_REMEMBERED_ROWS: Final = 10
"""Of an answer to OffsetCommit that is kept encoded."""

Rows: TypeAlias = tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
"""Topics, each with its partitions and their error codes."""


# OffsetCommit


def handle_commit(services: Services, exchange: Exchange) -> None:
    """Commit the offsets of partitions that there are; the rest is answered UNKNOWN_TOPIC_OR_PARTITION."""
    exchange.change(_commit(services, exchange))


def _commit(services: Services, exchange: Exchange) -> Steps[None]:
    request = exchange.request
    message, version = request.message, request.version
    now_ms = services.clock.wall_ms()
    retention_ms = message.retention_time_ms if version in _COMMIT_WITH_RETENTION else _NO_RETENTION
    expire_ms = None if retention_ms == _NO_RETENTION else now_ms + retention_ms
    known: dict[TopicPartition, OffsetAndMetadata] = {}
    unknown: OffsetResults = {}
    for topic in message.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if (len(known) + len(unknown)) % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                yield
            if not services.metadata.has_partition(partition):
                unknown[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            epoch = each.committed_leader_epoch if version >= _COMMIT_WITH_EPOCHS else NO_LEADER_EPOCH
            known[partition] = OffsetAndMetadata(
                Offset(each.committed_offset), LeaderEpoch(epoch), each.committed_metadata or "", now_ms, expire_ms
            )

    def respond(results: OffsetResults) -> None:
        told = {**results, **unknown}
        if exchange.is_large or sum(len(topic.partitions) for topic in message.topics) > _REMEMBERED_ROWS:
            guarded(exchange, lambda: exchange.take(partial(_answer_commit, request, told)))
        else:
            guarded(exchange, lambda: exchange.take(_encoded(version, _rows(request, told))))

    if not known:
        respond({})
        return
    instance = message.group_instance_id if version >= _COMMIT_WITH_INSTANCES else None
    caller = Caller(message.member_id or NO_MEMBER, instance, message.generation_id_or_member_epoch)
    services.groups.commit(message.group_id, caller, known, respond)


def failure_of_commit(request: Request) -> Message:
    """The answer when the handler of OffsetCommit failed."""
    topics, failed = request.message.topics, ErrorCode.UNKNOWN_SERVER_ERROR
    every = {TopicPartition(topic.name, each.partition_index): failed for topic in topics for each in topic.partitions}
    return _answer_commit(request, every)


def _answer_commit(request: Request, results: OffsetResults) -> Message:
    return _committed(request.version, _rows(request, results))


def _rows(request: Request, results: OffsetResults) -> Rows:
    return tuple(
        [
            (
                topic.name,
                tuple(
                    [
                        (each.partition_index, int(results[TopicPartition(topic.name, each.partition_index)]))
                        for each in topic.partitions
                    ]
                ),
            )
            for topic in request.message.topics
        ]
    )


@lru_cache(10_000)
def _encoded(version: int, rows: Rows) -> bytes:
    """The body of an answer; a consumer commits the same few partitions again and again."""
    return bytes(encode_body(version, _committed(version, rows)))


def _committed(version: int, rows: Rows) -> Message:
    topic_class = OffsetCommitResponse.OffsetCommitResponseTopic
    return OffsetCommitResponse(
        version=version,
        topics=[
            topic_class(
                version=version,
                name=name,
                partitions=[
                    topic_class.OffsetCommitResponsePartition(version=version, partition_index=number, error_code=error)
                    for number, error in partitions
                ],
            )
            for name, partitions in rows
        ],
    )


# OffsetFetch


def handle_fetch(services: Services, exchange: Exchange) -> None:
    """What a group has committed, or several from version 8 on; of all partitions where none are named."""
    request = exchange.request
    message, version = request.message, request.version
    stable = version >= _FETCH_WITH_STABLE and bool(message.require_stable)
    if version >= _FETCH_WITH_GROUPS:
        exchange.work(_fetch_of_groups(services, exchange, stable=stable))
        return
    offsets = services.groups.fetch_offsets(message.group_id, _named(message.topics), require_stable=stable)
    _note_size(exchange, [offsets])
    exchange.take(partial(_fetched, request, offsets))


def _fetch_of_groups(services: Services, exchange: Exchange, *, stable: bool) -> Steps[Building]:
    found: list[tuple[str, FetchedOffsets | ErrorCode]] = []
    for each in exchange.request.message.groups:
        offsets = services.groups.fetch_offsets(each.group_id, _named(each.topics), require_stable=stable)
        found.append((each.group_id, offsets))
        if len(found) % GROUPS_PER_STEP == 0:
            yield
    _note_size(exchange, [offsets for _, offsets in found])
    return partial(_fetched_of_groups, exchange.request.version, found)


def _note_size(exchange: Exchange, found: Iterable[FetchedOffsets | ErrorCode]) -> None:
    """Have an answer of many rows put together aside."""
    if sum(len(offsets) for offsets in found if not isinstance(offsets, ErrorCode)) > FEW_ROWS:
        exchange.is_large = True


def failure_of_fetch(request: Request) -> Message:
    """The answer when the handler of OffsetFetch failed."""
    if request.version >= _FETCH_WITH_GROUPS:
        failed = [(each.group_id, ErrorCode.UNKNOWN_SERVER_ERROR) for each in request.message.groups]
        return _fetched_of_groups(request.version, failed)
    return _fetched(request, ErrorCode.UNKNOWN_SERVER_ERROR)


def _named(topics: Iterable[Message] | None) -> Collection[TopicPartition] | None:
    if topics is None:
        return None
    return dict.fromkeys(TopicPartition(topic.name, number) for topic in topics for number in topic.partition_indexes)


def _fetched(request: Request, offsets: FetchedOffsets | ErrorCode) -> Message:
    """Below version 2 an error of the whole is told for every partition."""
    version, error = request.version, ErrorCode.NONE
    if isinstance(offsets, ErrorCode):
        error = offsets
        offsets = dict.fromkeys(_named(request.message.topics) or (), error) if version < _FETCH_WITH_ERROR else {}
    topic_class = OffsetFetchResponse.OffsetFetchResponseTopic
    return OffsetFetchResponse(
        version=version,
        error_code=int(error),
        topics=[
            topic_class(
                version=version,
                name=name,
                partitions=[
                    topic_class.OffsetFetchResponsePartition(version=version, **_row(number, held))
                    for number, held in partitions
                ],
            )
            for name, partitions in _by_topic(offsets).items()
        ],
    )


def _fetched_of_groups(version: int, found: Iterable[tuple[str, FetchedOffsets | ErrorCode]]) -> Message:
    group_class = OffsetFetchResponse.OffsetFetchResponseGroup
    topic_class = group_class.OffsetFetchResponseTopics
    groups = []
    for group_id, offsets in found:
        error = offsets if isinstance(offsets, ErrorCode) else ErrorCode.NONE
        topics = _by_topic({} if isinstance(offsets, ErrorCode) else offsets)
        groups.append(
            group_class(
                version=version,
                group_id=group_id,
                error_code=int(error),
                topics=[
                    topic_class(
                        version=version,
                        name=name,
                        partitions=[
                            topic_class.OffsetFetchResponsePartitions(version=version, **_row(number, held))
                            for number, held in partitions
                        ],
                    )
                    for name, partitions in topics.items()
                ],
            )
        )
    return OffsetFetchResponse(version=version, groups=groups)


def _by_topic(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | ErrorCode | None],
) -> dict[str, list[tuple[int, OffsetAndMetadata | ErrorCode | None]]]:
    topics: dict[str, list[tuple[int, OffsetAndMetadata | ErrorCode | None]]] = {}
    for (name, number), held in offsets.items():
        topics.setdefault(name, []).append((number, held))
    return topics


def _row(number: int, held: OffsetAndMetadata | ErrorCode | None) -> dict[str, object]:
    if isinstance(held, OffsetAndMetadata):
        offset, epoch, metadata, error = held.offset, held.leader_epoch, held.metadata, ErrorCode.NONE
    else:
        offset, epoch, metadata, error = UNKNOWN_OFFSET, NO_LEADER_EPOCH, "", held or ErrorCode.NONE
    return {
        "partition_index": number,
        "committed_offset": offset,
        "committed_leader_epoch": epoch,
        "metadata": metadata,
        "error_code": int(error),
    }


# OffsetDelete


def handle_delete(services: Services, exchange: Exchange) -> None:
    """Forget offsets of topics that there are, and that no member reads."""
    request = exchange.request
    topics = services.metadata.current.topics
    known = [
        TopicPartition(topic.name, each.partition_index)
        for topic in request.message.topics
        if topic.name in topics
        for each in topic.partitions
    ]
    services.groups.delete_offsets(
        request.message.group_id,
        known,
        lambda error, results: guarded(exchange, lambda: exchange.take(partial(_deleted, request, error, results))),
    )


def failure_of_delete(request: Request) -> Message:
    """The answer when the handler of OffsetDelete failed."""
    return _deleted(request, ErrorCode.UNKNOWN_SERVER_ERROR, {})


def _deleted(request: Request, error: ErrorCode, results: OffsetResults) -> Message:
    version = request.version
    topic_class = OffsetDeleteResponse.OffsetDeleteResponseTopic
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = request.message.topics if error is ErrorCode.NONE else ()
    return OffsetDeleteResponse(
        version=version,
        error_code=int(error),
        topics=[
            topic_class(
                version=version,
                name=topic.name,
                partitions=[
                    topic_class.OffsetDeleteResponsePartition(
                        version=version,
                        partition_index=each.partition_index,
                        error_code=int(results.get(TopicPartition(topic.name, each.partition_index), missing)),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in topics
        ],
    )
