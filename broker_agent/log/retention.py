"""When a segment is full, and when it is old enough to go. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import NamedTuple

from regency.broker_agent.log.segments.segment import Segment
from regency.broker_agent.log.selection import is_compacted
from regency.kafka.record_batch import BatchHeader
from regency.model.ids import Offset, TopicPartition
from regency.model.settings.log_config import LogConfig


class SegmentFacts(NamedTuple):
    """What retention looks at. `largest_timestamp` is wall milliseconds, `upper_bound` the offset after its last."""

    size: int
    largest_timestamp: int
    upper_bound: Offset


class Expired(NamedTuple):
    """How many of the oldest segments go, and why."""

    segments: int
    why: str


def expired_segments(
    segments: Iterable[SegmentFacts], config: LogConfig, *, log_start: Offset, high_watermark: Offset, now_ms: int
) -> Expired:
    """How many leading segments have expired: below the log start, beyond retention.bytes, or older than retention.ms.

    Never one that holds offsets at or above the high watermark, nor an empty last one; the first that stays ends the
    run. A policy without `delete` removes only what lies below the log start.
    """
    segments = list(segments)
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    by_size = "delete" in config.cleanup_policy and config.retention_bytes >= 0
    by_time = "delete" in config.cleanup_policy and config.retention_ms >= 0
    count = 0
    whys: list[str] = []
    for segment in segments:
        if segment.upper_bound > high_watermark or (segment is segments[-1] and not segment.size):
            break
        if segment.upper_bound <= log_start:
            why = f"below the log start {log_start}"
        elif by_size and excess >= segment.size:
            why = f"retention.bytes {config.retention_bytes}"
        elif by_time and now_ms - segment.largest_timestamp > config.retention_ms:
            why = f"retention.ms {config.retention_ms}"
        else:
            break
        count += 1
        excess -= segment.size
        if why not in whys:
            whys.append(why)
    return Expired(count, ", ".join(whys))


def must_roll(
    active: Segment, config: LogConfig, batch: BatchHeader, now_ms: int, *, partition: TopicPartition
) -> bool:
    """Whether `batch` begins a new segment: the active one is too large, too old or its indexes are full.

    A compacted log rolls by max.compaction.lag.ms too: what is in the active segment is not cleaned.
    Age is the distance of record timestamps where both have one, else wall time since the segment was opened.
    """
    if active.size + batch.size > config.segment_bytes or active.is_index_full:
        return True
    if not active.has_room(batch.last_offset):
        return True
    if active.first_timestamp >= 0 and batch.max_timestamp >= 0:
        waited = batch.max_timestamp - active.first_timestamp
    else:
        waited = now_ms - active.created_ms
    longest = min(config.segment_ms, config.max_compaction_lag_ms) if is_compacted(config) else config.segment_ms
    return waited > longest - roll_jitter_ms(config, partition, active.base_offset)


def roll_jitter_ms(config: LogConfig, partition: TopicPartition, base_offset: Offset) -> int:
    """How much earlier than segment.ms a segment rolls: spread over segment.jitter.ms, the same at every start."""
    if config.segment_jitter_ms <= 0:
        return 0
    return zlib.crc32(f"{partition}/{base_offset}".encode()) % config.segment_jitter_ms
