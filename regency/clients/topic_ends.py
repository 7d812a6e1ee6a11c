"""Where a partition begins and ends, as its leader tells, also while that changes."""

from __future__ import annotations

import time
from typing import ClassVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from regency.model.errors import RegencyError

_PAUSE_S = 0.1
_MAY_PASS = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001  (librdkafka's own codes are named so)
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._DESTROY_BROKER,  # noqa: SLF001  (it is not in the metadata any more)
        KafkaError._UNKNOWN_BROKER,  # noqa: SLF001
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)
"""What a broker answers that leads no more, does not know yet how far it leads, or has not heard of a new topic; and
what the client says of one that does not answer."""


class EndsUnknown(RegencyError):
    """No leader of a partition answered in time where it ends."""

    code: ClassVar[str] = "ends_unknown"


def ends_of(consumer: Consumer, place: TopicPartition, within_s: float) -> tuple[int, int]:
    """The first offset, and the one after the last. The leader is looked up again when it has moved meanwhile.

    Raises EndsUnknown, and KafkaException for any other error.
    """
    deadline = time.monotonic() + within_s
    while True:
        try:
            left = max(deadline - time.monotonic(), _PAUSE_S)
            ends = consumer.get_watermark_offsets(place, timeout=left)
        except KafkaException as error:
            reason = error.args[0]
            if reason.code() not in _MAY_PASS:
                raise
            if time.monotonic() >= deadline:
                raise EndsUnknown(
                    f"{place.topic}-{place.partition} had no leader that tells where it ends for {within_s:.0f} s: "
                    f"{reason.str()}.",
                    hint="`regency topics describe` shows who leads.",
                ) from error
        else:
            return ends
        time.sleep(_PAUSE_S)
        _look_up(consumer, place.topic, max(deadline - time.monotonic(), _PAUSE_S))


def _look_up(consumer: Consumer, topic: str, within_s: float) -> None:
    """Have the consumer learn who leads now, if anybody tells it."""
    try:
        consumer.list_topics(topic, timeout=within_s)
    except KafkaException as error:
        if error.args[0].code() not in _MAY_PASS:
            raise
