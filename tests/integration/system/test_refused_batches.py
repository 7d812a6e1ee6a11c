"""What a broker refuses of a produce, as a client sees it: Kafka's codes, and nothing of it in the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from regency.cluster.agent import HOST
from regency.cluster.cluster import Cluster
from regency.cluster.state import KAFKA_LISTENER
from regency.kafka.codec import ProduceRequest
from regency.kafka.peer import PeerConnection
from regency.kafka.record_batch import compute_crc, read_header
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode

pytestmark = pytest.mark.integration

TOPIC = ProduceRequest.TopicProduceData


def test_what_is_refused_has_kafkas_codes_and_leaves_no_trace(
    cluster: Cluster, create_topic: Callable[..., None]
) -> None:
    create_topic(cluster, partitions=1, replication=1)
    leader = cluster.snapshot().partitions[TopicPartition("t", 0)].leadership.leader
    port = next(each for each in cluster.state.brokers if each.id == leader).ports[KAFKA_LISTENER]
    peer = PeerConnection(HOST, port, client_id="odd", connect_timeout_ms=5_000, request_timeout_ms=20_000)
    good = batch()
    asked: list[tuple[bytes | None, dict[str, Any], ErrorCode]] = [
        (None, {}, ErrorCode.INVALID_RECORD),
        (b"", {}, ErrorCode.INVALID_RECORD),
        (bytes(22), {}, ErrorCode.INVALID_RECORD),
        (good[:16] + b"\1" + good[17:], {}, ErrorCode.INVALID_RECORD),
        (good + good, {}, ErrorCode.INVALID_RECORD),
        (batch(attributes=0x20), {}, ErrorCode.INVALID_RECORD),
        (batch(attributes=0x10), {}, ErrorCode.UNSUPPORTED_VERSION),
        (good, {"transactional_id": "tx"}, ErrorCode.UNSUPPORTED_VERSION),
        (good, {"acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS),
        (good[:-1] + b"?", {}, ErrorCode.CORRUPT_MESSAGE),
        (good, {}, ErrorCode.NONE),
    ]
    try:
        results = [produce(peer, records, **options) for records, options, _ in asked]
    finally:
        peer.close()
    assert [ErrorCode(result.error_code) for result in results] == [error for _, _, error in asked]
    assert results[-1].base_offset == 0


def produce(peer: PeerConnection, records: bytes | None, *, acks: int = 1, transactional_id: str | None = None) -> Any:
    topic = TOPIC(name="t", partition_data=[TOPIC.PartitionProduceData(index=0, records=records)])
    request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=10_000, topic_data=[topic])
    return peer.exchange(request, 9).responses[0].partition_responses[0]


def batch(*, attributes: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 16,
    )
    assert builder.append(0, timestamp=1000, key=None, value=b"v", headers=[])
    built = bytearray(builder.build())
    built[21:23] = attributes.to_bytes(2, "big")
    built[17:21] = compute_crc(built, read_header(built)).to_bytes(4, "big")
    return bytes(built)
