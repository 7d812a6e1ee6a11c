"""Which part of a log is to be compacted, and whether it is time. Pure. Source: LogCleanerManager of Kafka 3.9."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from regency.model.ids import Offset
from regency.model.settings.log_config import COMPACT, LogConfig


class ClosedSegment(NamedTuple):
    """What is known of a segment that takes no more batches. Timestamps are wall milliseconds, -1 for none."""

    base_offset: Offset
    upper_bound: Offset
    """Where the next one begins."""
    size: int
    first_timestamp: int
    """Of its first batch."""
    largest_timestamp: int


class Dirty(NamedTuple):
    """The part of a log that can be compacted now: from `first` to `end`, where a segment begins."""

    first: Offset
    end: Offset
    clean_bytes: int
    dirty_bytes: int
    delay_ms: int
    """By how long max.compaction.lag.ms has passed; 0 where it has not."""
    is_due: bool

    @property
    def ratio(self) -> float:
        """Share of what is looked at that has not been cleaned yet."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)


def is_compacted(config: LogConfig) -> bool:
    """Whether cleanup.policy has `compact`."""
    return COMPACT in config.cleanup_policy


def dirty_part(
    closed: Sequence[ClosedSegment],
    config: LogConfig,
    *,
    log_start: Offset,
    cleaned_to: Offset | None,
    stable: Offset,
    now_ms: int,
) -> Dirty | None:
    """What can be compacted of the segments `closed`, oldest first; None where that is nothing.

    `stable` is up to where records are committed, on the disk, and of no transaction under way. `cleaned_to` below the
    log start, or None, is the log start.
    """
    first = log_start if cleaned_to is None else max(cleaned_to, log_start)
    end = first
    clean_bytes = dirty_bytes = 0
    oldest = -1
    for segment in closed:
        if segment.upper_bound <= first:
            clean_bytes += segment.size
            continue
        is_young = config.min_compaction_lag_ms > 0 and (
            segment.largest_timestamp > now_ms - config.min_compaction_lag_ms
        )
        if segment.upper_bound > stable or is_young:
            break
        end = segment.upper_bound
        dirty_bytes += segment.size
        if segment.first_timestamp > 0 and (oldest < 0 or segment.first_timestamp < oldest):
            oldest = segment.first_timestamp
    if not dirty_bytes:
        return None
    delay_ms = max(0, now_ms - oldest - config.max_compaction_lag_ms) if oldest > 0 else 0
    found = Dirty(first, end, clean_bytes, dirty_bytes, delay_ms, is_due=False)
    return found._replace(is_due=delay_ms > 0 or found.ratio > config.min_cleanable_dirty_ratio)
