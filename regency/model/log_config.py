"""Configuration of one partition's log: the topic-level keys of Kafka, with a broker's values as defaults."""

from __future__ import annotations

import msgspec

UNLIMITED = -1
NEVER = 2**63 - 1


class LogConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Topic-level settings under Kafka's names (dots as underscores). Units: `_ms` milliseconds, `_bytes` bytes."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 168 * 3_600_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    retention_ms: int = 168 * 3_600_000
    """-1: for ever."""
    retention_bytes: int = UNLIMITED
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = 1_048_588
    cleanup_policy: tuple[str, ...] = ("delete",)
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    message_timestamp_type: str = "CreateTime"
    compression_type: str = "producer"
    preallocate: bool = False
