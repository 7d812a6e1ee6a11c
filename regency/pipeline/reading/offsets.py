"""Offsets as JSON, in the form of Spark's own Kafka source: {"topic": {"0": 23, "1": -1}}. Pure.

Where a read begins and ends is said everywhere the same, or by partition. An offset is that of the next record to
read. -2 stands for the earliest and -1 for the latest, in options only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from regency.model.ids import TopicPartition
from regency.model.settings.values import INT_MAX, LONG_MAX
from regency.pipeline.errors import OffsetsMalformed

EARLIEST: Final = -2
LATEST: Final = -1

Offsets = dict[TopicPartition, int]
"""Offsets by partition."""

_SHOWN = 5
_CHECKPOINT_HINT = (
    "The checkpoint belongs to another source, or is damaged: give the query another checkpointLocation, and"
    " startingOffsets with the place to go on from."
)


def parse_offsets(text: str, *, low: int) -> Offsets:
    """Offsets, or timestamps, of an option. Raises ValueError for anything but whole numbers from `low` on."""
    return _offsets(_parsed(text), low)


def parse_partitions(text: str) -> tuple[TopicPartition, ...]:
    """Partitions of the form {"a": [0, 1], "b": [2]}, sorted. Raises ValueError."""
    found: set[TopicPartition] = set()
    for topic, numbers in _object(_parsed(text), "the whole").items():
        if not isinstance(numbers, list) or not numbers:
            raise ValueError(f"topic {topic} has no list of partitions")
        for number in numbers:
            name = TopicPartition(topic, _partition(topic, number))
            if name in found:
                raise ValueError(f"{name} stands there twice")
            found.add(name)
    if not found:
        raise ValueError("it names no partition")
    return tuple(sorted(found))


def offsets_of_checkpoint(value: object) -> Offsets:
    """Offsets that Spark kept for a stream. Raises OffsetsMalformed."""
    try:
        return _offsets(value, 0)
    except ValueError as error:
        shown = json.dumps(value)[:200]
        raise OffsetsMalformed(
            f"The checkpoint's offsets {shown} cannot be read: {error}.", hint=_CHECKPOINT_HINT
        ) from error


def offsets_dict(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets for Spark to keep: topics and partitions in order, so that equal offsets are equal texts."""
    found: dict[str, dict[str, int]] = {}
    for name in sorted(offsets):
        found.setdefault(name.topic, {})[str(name.partition)] = offsets[name]
    return found


def offsets_json(offsets: Mapping[TopicPartition, int]) -> str:
    """Offsets as a value of startingOffsets or endingOffsets, as Spark's own Kafka source writes them."""
    return json.dumps(offsets_dict(offsets), separators=(",", ":"))


def named(partitions: Iterable[TopicPartition]) -> str:
    """Some partitions in words: the first few, and how many more."""
    return in_short([str(name) for name in sorted(partitions)])


def in_short(words: Sequence[str], *, separator: str = ", ") -> str:
    """The first few of them, and how many more there are."""
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return separator.join(words[:_SHOWN]) + more


def _parsed(text: str) -> object:
    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in pairs:
            if key in found:
                raise ValueError(f"{key} stands there twice")
            found[key] = value
        return found

    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON ({error})") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _offsets(value: object, low: int) -> Offsets:
    found: Offsets = {}
    for topic, partitions in _object(value, "the whole").items():
        for text, offset in _object(partitions, f"topic {topic}").items():
            name = TopicPartition(topic, _partition(topic, text))
            if name in found:
                raise ValueError(f"{name} stands there twice")
            if not isinstance(offset, int) or isinstance(offset, bool) or not low <= offset <= LONG_MAX:
                raise ValueError(f"{name} has {json.dumps(offset)[:40]}, not a whole number from {low} on")
            found[name] = offset
    return found


def _object(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no JSON object")  # noqa: TRY004  (text of an option, no type of Python)
    return value


def _partition(topic: str, value: object) -> int:
    number = int(value) if isinstance(value, str) and value.isdecimal() and value.isascii() else value
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= INT_MAX:
        raise ValueError(f"topic {topic} has a partition {json.dumps(value)[:40]}")
    return number


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
