"""Where logs begin: only later for a reason. Records below are gone, and no other rule misses them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.log.segments.segment import Segment
from regency.broker_agent.log.selection import is_compacted
from regency.broker_agent.replication.delete_records import TO_HIGH_WATERMARK
from regency.model.ids import BrokerId, Offset, TopicId
from regency.model.settings.log_config import LogConfig
from simulation.judging.invariants import broken
from simulation.judging.log_rules import Peek, batches_in

Key = tuple[TopicId, int]
"""A partition, by the topic's identity."""


class Content(NamedTuple):
    """What is in a segment's file, by its batches alone."""

    size: int
    newest_ms: int
    """The greatest timestamp."""
    end: int
    """The offset behind its last batch; -1 where it has none."""


class Head:
    """A log's beginning as it was looked at last."""

    __slots__ = ("producers", "segments", "start", "truncations")

    def __init__(self, log: PartitionLog) -> None:
        self.start: int = log.log_start_offset
        self.segments: Sequence[Segment] = tuple(log._segments)
        self.truncations = log._flusher._truncations
        self.producers = frozenset(log._producers._producers)
        """Who had produced what is, or was, in it."""


class RetentionRules:
    """Remembers where leaders' logs began, and every broker's. Raises InvariantBroken."""

    def __init__(self, peek: Peek) -> None:
        self._peek = peek
        self._led: dict[Key, int] = {}
        self._held: dict[tuple[BrokerId, Key], int] = {}

    def opened(self, broker: BrokerId, key: Key, log: PartitionLog) -> Head:
        """A process has a log, perhaps one that another process has left."""
        head = Head(log)
        known = self._held.get((broker, key), 0)
        if head.start > max(known, self._led.get(key, 0)):
            raise broken(
                "retention-by-rule",
                f"broker {broker}, {log.topic_partition}: begins at {head.start} after a restart, at {known} before",
            )
        self._held[broker, key] = head.start
        return head

    def led(self, key: Key, log: PartitionLog) -> None:
        """A leader's log, which was looked at, begins here: followers may do so, too."""
        self._led[key] = max(self._led.get(key, 0), log.log_start_offset)

    def asked(self, key: Key, log: PartitionLog, offset: Offset) -> None:
        """A client wants what is below an offset to be deleted: a leader may begin there, if that is committed."""
        below = log.high_watermark if offset == TO_HIGH_WATERMARK else offset
        if below <= log.high_watermark:
            self._led[key] = max(self._led.get(key, 0), below)

    def died(self, broker: BrokerId, key: Key, log: PartitionLog) -> None:
        """The process died in a step that nobody looks at: where the log begins now, it may begin next time."""
        self._held[broker, key] = max(self._held.get((broker, key), 0), log.log_start_offset)

    def look(self, broker: BrokerId, key: Key, head: Head, log: PartitionLog, high_watermark: int, now_ms: int) -> None:
        """A step is over, before which the high watermark was as given; `now_ms` is the broker's wall time."""
        start, segments = log.log_start_offset, log._segments
        if start > head.start:
            self._check_producers(broker, head, log)
            # What lay below the log start may have gone before, and its files with it: nothing is lost by that.
            offered = [
                segment
                for segment, following in zip_longest(head.segments, head.segments[1:])
                if following is None or following.base_offset > head.start
            ]
            kept = set(map(id, segments))
            dropped = sum(id(segment) not in kept for segment in offered)
            # A cut that counts as begun may have failed before it changed anything.
            untold = start > self._led.get(key, 0)
            if dropped and (untold or log._flusher._truncations == head.truncations):
                self._check_dropped(broker, offered, dropped, log, high_watermark, now_ms)
            elif untold:
                raise broken(
                    "retention-by-rule",
                    f"broker {broker}, {log.topic_partition}: begins at {start}, where no leader's log has begun",
                )
        is_other = segments.first is not head.segments[0] or segments.active is not head.segments[-1]
        if is_other or is_compacted(log.config):
            head.segments = tuple(segments)
        if len(log._producers) != len(head.producers) or log._flusher._truncations != head.truncations:
            head.producers = frozenset(log._producers._producers)
        head.start, head.truncations = start, log._flusher._truncations
        self._held[broker, key] = start

    def overdue(self, broker: BrokerId, log: PartitionLog, now_ms: int) -> str | None:
        """Why the oldest segment should have gone, but for the time that retention takes to come round."""
        if log.config.retention_ms < 0 and log.config.retention_bytes < 0:
            return None
        contents = [self._content(broker, segment) for segment in log._segments]
        oldest = contents[0]
        if oldest is None or oldest.end > log.high_watermark or not oldest.size:
            return None
        why = _why_it_goes(oldest, sum(each.size for each in contents if each is not None), log.config, now_ms)
        return None if why is None else f"the records below {oldest.end} of {log.topic_partition} stay, {why}"

    def _check_producers(self, broker: BrokerId, head: Head, log: PartitionLog) -> None:
        """A day has to pass before a producer is forgotten, and no run lasts as long, whatever clocks say."""
        gone = head.producers.difference(log._producers._producers)
        if gone and log._flusher._truncations == head.truncations:
            raise broken(
                "producers-kept",
                f"broker {broker}, {log.topic_partition}: it forgets producers {sorted(gone)} when it begins at "
                f"{log.log_start_offset} instead of {head.start}",
            )

    def _check_dropped(
        self,
        broker: BrokerId,
        offered: Iterable[Segment],
        dropped: int,
        log: PartitionLog,
        high_watermark: int,
        now_ms: int,
    ) -> None:
        """The first of the segments that were offered were dropped by retention, each for a reason."""
        contents = [self._content(broker, segment) or Content(0, -1, -1) for segment in offered]
        left = sum(each.size for each in contents)
        where = f"broker {broker}, {log.topic_partition}"
        for content in contents[:dropped]:
            if content.end > high_watermark:
                raise broken(
                    "retention-by-rule", f"{where}: drops records below {content.end}, committed is {high_watermark}"
                )
            if _why_it_goes(content, left, log.config, now_ms) is None:
                raise broken(
                    "retention-by-rule",
                    f"{where}: drops records below {content.end}, the newest of {content.newest_ms} at {now_ms}, when "
                    f"there are {left} bytes; retention.ms is {log.config.retention_ms}, retention.bytes "
                    f"{log.config.retention_bytes}",
                )
            left -= content.size
        end = contents[dropped - 1].end
        if log.log_start_offset != end:
            raise broken("retention-by-rule", f"{where}: begins at {log.log_start_offset}, dropped to {end}")

    def _content(self, broker: BrokerId, segment: Segment) -> Content | None:
        file = self._peek(broker, segment.log.path)
        if file is None:
            return None
        batches = batches_in(file)
        if not batches:
            return Content(0, -1, -1)
        newest = max(batch.header.max_timestamp for batch in batches)
        return Content(batches[-1].end, newest, batches[-1].digest.next_offset)


def _why_it_goes(content: Content, left: int, config: LogConfig, now_ms: int) -> str | None:
    """Why the oldest of what is left may go, by the settings alone."""
    if "delete" not in config.cleanup_policy:
        return None
    if 0 <= config.retention_bytes <= left - content.size:
        return f"though there are {left} bytes and retention.bytes is {config.retention_bytes}"
    if 0 <= config.retention_ms < now_ms - content.newest_ms:
        return f"though the newest is {now_ms - content.newest_ms} ms old and retention.ms is {config.retention_ms}"
    return None


def reasons(rules: RetentionRules, broker: BrokerId, logs: Iterable[PartitionLog], now_ms: int) -> list[str]:
    """What of a broker's logs has expired and stays."""
    found = (rules.overdue(broker, log, now_ms) for log in logs)
    return [f"broker {broker}: {each}" for each in found if each is not None]
