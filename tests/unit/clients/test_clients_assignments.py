"""Who leads and replicates what, of the first broker that answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from regency.clients.nodes import Node
from regency.clients.replicas import assignments as module
from regency.clients.replicas.assignments import Assignment, NobodyAnswers, assignments
from regency.kafka.peer import PeerUnavailable
from regency.model.ids import BrokerId, TopicId, TopicPartition

TOPIC_ID = TopicId(UUID(int=9))


def partition(number: int, leader: int) -> Any:
    return SimpleNamespace(partition_index=number, leader_id=leader, replica_nodes=[2, 1])


ANSWER = SimpleNamespace(
    brokers=[SimpleNamespace(node_id=1, host="one", port=9092), SimpleNamespace(node_id=2, host="two", port=9093)],
    topics=[
        SimpleNamespace(error_code=0, name="t", topic_id=TOPIC_ID, partitions=[partition(1, -1), partition(0, 2)]),
        SimpleNamespace(error_code=3, name="gone", topic_id=UUID(int=0), partitions=[]),
    ],
)


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Brokers asked, with their requests; only the one called `live` answers."""
    asked: list[Any] = []

    class Peer:
        def __init__(self, host: str, port: int, **_: Any) -> None:
            self.where = f"{host}:{port}"
            self.closed = False

        def exchange(self, message: Any, version: int) -> Any:
            asked.append((self.where, None if message.topics is None else [each.name for each in message.topics]))
            assert (version, message.allow_auto_topic_creation) == (12, False)
            if not self.where.startswith("live"):
                raise PeerUnavailable(f"The exchange with {self.where} failed.")
            return ANSWER

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(module, "PeerConnection", Peer)
    return asked


def test_the_first_that_answers_is_asked_and_missing_topics_are_left_out(peers: list[Any]) -> None:
    found = assignments("dead:1, live:2,live:3", ["t", "gone"], timeout_ms=100)
    assert peers == [("dead:1", ["gone", "t"]), ("live:2", ["gone", "t"])]
    assert found.nodes == {BrokerId(1): Node(BrokerId(1), "one", 9092), BrokerId(2): Node(BrokerId(2), "two", 9093)}
    replicas = (BrokerId(2), BrokerId(1))
    assert list(found.partitions.items()) == [
        (TopicPartition("t", 0), Assignment(TopicPartition("t", 0), TOPIC_ID, 2, replicas)),
        (TopicPartition("t", 1), Assignment(TopicPartition("t", 1), TOPIC_ID, None, replicas)),
    ]
    assert found.topics == {"t"}


def test_all_topics_are_asked_for_where_none_is_named(peers: list[Any]) -> None:
    assignments("live:2", None, timeout_ms=100)
    assert peers == [("live:2", None)]


def test_where_nobody_answers_all_are_named_and_why(peers: list[Any]) -> None:
    with pytest.raises(NobodyAnswers) as caught:
        assignments("dead:1,nowhere", (), timeout_ms=100)
    assert "The exchange with dead:1 failed. 'nowhere' is not HOST:PORT" in str(caught.value)
    assert peers == [("dead:1", [])]
