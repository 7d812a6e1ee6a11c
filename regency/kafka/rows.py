"""The innermost rows of large answers, one per partition, under the names of Kafka's schemas.

kafka-python's encoder takes any object with these attributes. Its own containers take ten times as long to build, which
a broker with tens of thousands of partitions would notice. What a version does not have is not encoded.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from regency.kafka.codec import Message


class FetchedRow(msgspec.Struct, kw_only=True):
    """PartitionData of a FetchResponse."""

    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: bytes | memoryview
    aborted_transactions: Sequence[Message] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: Message = None
    current_leader: Message = None
    snapshot_id: None = None


class ProducedRow(msgspec.Struct, kw_only=True):
    """PartitionProduceResponse of a ProduceResponse."""

    index: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    error_message: str | None
    record_errors: Sequence[Message] = ()


class LeaderRow(msgspec.Struct, kw_only=True):
    """MetadataResponsePartition of a MetadataResponse."""

    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    offline_replicas: Sequence[int]
