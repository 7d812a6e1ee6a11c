"""Where a topic ends is asked of whoever leads, also while that changes."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from regency.clients.topic_ends import EndsUnknown, ends_of
from regency.demo import workload
from regency.demo.workload import _ends


class Topic:
    def __init__(self) -> None:
        self.topics = {"t": self}
        self.partitions = [0, 1]


class Moving:
    """A consumer of a topic whose leaders answer with these errors first."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.looked_up = 0

    def list_topics(self, topic: str, timeout: float) -> Topic:
        self.looked_up += 1
        return Topic()

    def get_watermark_offsets(self, place: object, timeout: float) -> tuple[int, int]:
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        return 0, 7


def test_a_leader_that_has_just_changed_is_looked_up_again() -> None:
    consumer = Moving(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.OFFSET_NOT_AVAILABLE)
    assert _ends(consumer, "t") == {0: (0, 7), 1: (0, 7)}
    assert consumer.looked_up == 3


@pytest.mark.parametrize(
    "error",
    [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._DESTROY_BROKER],
)
def test_a_broker_that_has_not_heard_of_the_topic_or_is_silent_is_asked_again(error: int) -> None:
    assert _ends(Moving(error, error), "t") == {0: (0, 7), 1: (0, 7)}


def test_who_leads_need_not_be_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Moving(KafkaError.UNKNOWN_TOPIC_OR_PART)
    told = consumer.list_topics

    def silent_once(topic: str, timeout: float) -> Topic:
        monkeypatch.setattr(consumer, "list_topics", told)
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(consumer, "list_topics", silent_once)
    assert ends_of(consumer, TopicPartition("t", 0), 5) == (0, 7)  # type: ignore[arg-type]


def test_another_error_is_no_reason_to_ask_again() -> None:
    with pytest.raises(KafkaException):
        _ends(Moving(KafkaError.TOPIC_AUTHORIZATION_FAILED), "t")


def test_it_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "_ENDS_S", 0.0)
    with pytest.raises(EndsUnknown, match=r"t-0 had no leader that tells where it ends"):
        _ends(Moving(*[KafkaError.NOT_LEADER_FOR_PARTITION] * 3), "t")
