"""Where a partition begins and ends, as its leader tells, also while that changes."""

from __future__ import annotations

import time
from typing import ClassVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from regency.model.errors import RegencyError

_LEADER_MOVED = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)
"""What a broker answers that leads no more, or does not know yet how far it leads."""


class EndsUnknown(RegencyError):
    """Nobody who leads a partition told in time where it ends."""

    code: ClassVar[str] = "ends_unknown"


def ends_of(consumer: Consumer, place: TopicPartition, within_s: float) -> tuple[int, int]:
    """The first offset, and the one after the last. Whoever leads is looked up again when that has moved meanwhile.

    Raises EndsUnknown, and KafkaException for any other error.
    """
    deadline = time.monotonic() + within_s
    while True:
        try:
            return consumer.get_watermark_offsets(place, timeout=within_s)
        except KafkaException as error:
            reason = error.args[0]
            if reason.code() not in _LEADER_MOVED:
                raise
            if time.monotonic() >= deadline:
                raise EndsUnknown(
                    f"{place.topic}-{place.partition} had no leader that tells where it ends for {within_s:.0f} s: "
                    f"{reason.str()}."
                ) from error
        consumer.list_topics(place.topic, timeout=within_s)  # who leads it now
