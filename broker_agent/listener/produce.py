"""Produce: hands record batches to the ReplicaManager. Looks at the header of a batch, never at a record."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from regency.broker_agent.listener.exchange import LONGEST_WAIT_MS, Exchange, guarded
from regency.broker_agent.listener.services import Services
from regency.broker_agent.listener.stats import Closing
from regency.broker_agent.listener.traffic import records_in
from regency.broker_agent.replication.api import ProduceResult
from regency.broker_agent.wire.codec import Message, ProduceResponse, Request
from regency.broker_agent.wire.rows import ProducedRow
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.topic_names import is_internal

NO_ACKS: Final = 0
ADMIN_CLIENT: Final = "__admin_client"
"""Client id of Kafka's own brokers where they write to internal topics; nobody else may."""
_VALID_ACKS: Final = (-1, 0, 1)
_BATCH_START: Final = struct.Struct(">qiibIh")
"""Base offset, length of what follows, leader epoch, magic, CRC, attributes."""
_BYTES_BEFORE_LENGTH_COUNTS: Final = 12
_ZSTD: Final = 4
_COMPRESSION: Final = 0x07
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20

Results = Mapping[TopicPartition, ProduceResult]


def handle(services: Services, exchange: Exchange) -> None:
    """Append what is acceptable, at once; answer when the ReplicaManager does.

    With acks=0 there is no answer, and any error closes the connection: the client learns in no other way that it
    sends to the wrong broker.
    """
    message = exchange.request.message
    refused = _refused_as_a_whole(message)
    batches: dict[TopicPartition, memoryview] = {}
    sizes: dict[TopicPartition, tuple[int, int]] = {}
    if not refused:
        for topic in message.topic_data:
            for partition in topic.partition_data:
                key = TopicPartition(topic.name, partition.index)
                refusal = _guarded(topic.name, exchange.request) or _check(partition.records, exchange.request.version)
                if refusal is not None:
                    refused[key] = refusal
                else:
                    batches[key] = partition.records
                    sizes[key] = len(partition.records), records_in(partition.records)
                partition.records = None  # the request is kept until it is answered, its bytes need not be

    def respond(appended: Results) -> None:
        results = {**appended, **refused}
        services.stats.traffic.produced(results, sizes)
        guarded(exchange, lambda: _respond(exchange, results))

    if batches:
        services.replicas.append(message.acks, min(message.timeout_ms, LONGEST_WAIT_MS), batches, respond)
    else:
        respond({})


def failure(request: Request) -> Message | None:
    """The answer when the handler failed; None with acks=0, which has none."""
    if request.message.acks == NO_ACKS:
        return None
    return _answer(request, dict.fromkeys(_partitions(request.message), _result(ErrorCode.UNKNOWN_SERVER_ERROR, "")))


def _respond(exchange: Exchange, results: Results) -> None:
    request = exchange.request
    for result in results.values():
        if result.error is not ErrorCode.NONE:
            exchange.count_error(result.error)
    if request.message.acks != NO_ACKS:
        exchange.answer(_answer(request, results))
        return
    errors = [f"{key}: {result.error.name}" for key, result in results.items() if result.error is not ErrorCode.NONE]
    if errors:
        exchange.refuse(Closing.UNACKNOWLEDGED, "; ".join(errors[:3]))
    else:
        exchange.answer_nothing()


def _answer(request: Request, results: Results) -> Message:
    version = request.version
    topic_class = ProduceResponse.TopicProduceResponse
    topics = []
    for topic in request.message.topic_data:
        partitions = []
        for partition in topic.partition_data:
            result = results[TopicPartition(topic.name, partition.index)]
            partitions.append(
                ProducedRow(
                    index=partition.index,
                    error_code=int(_told(result.error, version)),
                    base_offset=result.base_offset,
                    log_append_time_ms=result.log_append_time_ms,
                    log_start_offset=result.log_start_offset,
                    error_message=result.message or None,
                )
            )
        topics.append(topic_class(version=version, name=topic.name, partition_responses=partitions))
    return ProduceResponse(version=version, responses=topics)


def _told(error: ErrorCode, version: int) -> ErrorCode:
    """Clients of version 3 do not know KAFKA_STORAGE_ERROR (KIP-112)."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if error is ErrorCode.KAFKA_STORAGE_ERROR and version <= 3 else error


def _refused_as_a_whole(message: Message) -> dict[TopicPartition, ProduceResult]:
    """A refusal for every partition where the request itself cannot be done; else empty."""
    partitions = _partitions(message)
    if message.transactional_id is not None:
        refusal = _result(ErrorCode.UNSUPPORTED_VERSION, "Transactions are not offered.")
    elif message.acks not in _VALID_ACKS:
        refusal = _result(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {message.acks}.")
    elif len(set(partitions)) != len(partitions):
        refusal = _result(ErrorCode.INVALID_REQUEST, "A partition is named twice in one request.")
    else:
        return {}
    return dict.fromkeys(partitions, refusal)


def _guarded(topic: str, request: Request) -> ProduceResult | None:
    """A refusal where brokers keep the topic for themselves."""
    if not is_internal(topic) or request.client_id == ADMIN_CLIENT:
        return None
    return _result(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Clients do not write to the internal topic {topic}.")


def _check(records: memoryview | None, version: int) -> ProduceResult | None:
    """Why a record set is refused before the log sees it; None: it is one batch of format 2, for the log to validate.

    Source: ProduceRequest.validateRecords of Kafka: exactly one batch per partition, zstd only from version 7.
    """
    if records is None or len(records) < _BATCH_START.size:
        return _result(ErrorCode.INVALID_RECORD, "Every partition needs one record batch.")
    _, length, _, magic, _, attributes = _BATCH_START.unpack_from(records)
    if magic != 2:
        return _result(ErrorCode.INVALID_RECORD, f"Record batches of format 2 are taken, not of format {magic}.")
    if 0 <= length < len(records) - _BYTES_BEFORE_LENGTH_COUNTS:
        return _result(ErrorCode.INVALID_RECORD, "Every partition takes exactly one record batch per request.")
    if attributes & _TRANSACTIONAL:
        return _result(ErrorCode.UNSUPPORTED_VERSION, "Transactions are not offered.")
    if attributes & _CONTROL:
        return _result(ErrorCode.INVALID_RECORD, "Control batches are written by brokers, not by clients.")
    if attributes & _COMPRESSION == _ZSTD and version < 7:
        return _result(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or newer.")
    return None


def _partitions(message: Message) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, partition.index)
        for topic in message.topic_data
        for partition in topic.partition_data
    ]


def _result(error: ErrorCode, message: str) -> ProduceResult:
    return ProduceResult(error, message=message)
