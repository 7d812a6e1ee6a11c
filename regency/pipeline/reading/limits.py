"""Where a read begins and ends, as the options say it: everywhere the same, or by partition. Pure."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from regency.model.ids import TopicPartition
from regency.pipeline.reading.offsets import Offsets


class Everywhere(msgspec.Struct, frozen=True):
    """The earliest (-2) or the latest (-1) offset of every partition."""

    offset: int


class ByPartition(msgspec.Struct, frozen=True):
    """An offset for each partition, -2 and -1 among them."""

    offsets: Offsets


class ByTimestamp(msgspec.Struct, frozen=True):
    """The first offset at or after a time, in wall milliseconds; `latest_if_none` where no record is that new."""

    timestamps: Offsets | int
    latest_if_none: bool

    def of(self, name: TopicPartition) -> int:
        """The time for one partition, which is one of those named."""
        return self.timestamps if isinstance(self.timestamps, int) else self.timestamps[name]


Limit: TypeAlias = Everywhere | ByPartition | ByTimestamp


def named_partitions(limit: Limit) -> set[TopicPartition] | None:
    """The partitions a limit names one by one; None where it holds for whichever there are."""
    if isinstance(limit, ByPartition):
        return set(limit.offsets)
    if isinstance(limit, ByTimestamp) and isinstance(limit.timestamps, dict):
        return set(limit.timestamps)
    return None
