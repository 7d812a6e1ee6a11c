"""A cluster of a few dictionaries for the rules of planning, and librdkafka's for producers."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping

import pytest
from mock_cluster import MockCluster, new_topic

from regency.clients.cluster_client import ClusterUnavailable, TopicFacts, TopicGone
from regency.model.ids import Offset, TopicId, TopicPartition


class ScriptedCluster:
    """Topics with logs from `starts` to `ends`; what a client asks of a cluster."""

    def __init__(self) -> None:
        self.ids: dict[str, TopicId] = {}
        self.starts: dict[TopicPartition, int] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.times: dict[TopicPartition, list[tuple[int, int]]] = {}
        """Timestamp and offset of records by partition; none has a later one."""
        self.failures = 0
        """How many questions fail."""
        self.silent = False
        """Whether they fail since no broker answers at all."""
        self.asked = 0
        self.closed = False

    def create(self, topic: str, *logs: tuple[int, int]) -> None:
        self.ids[topic] = TopicId(uuid.uuid4())
        for number, (start, end) in enumerate(logs):
            self.starts[TopicPartition(topic, number)] = start
            self.ends[TopicPartition(topic, number)] = end

    def delete(self, topic: str) -> None:
        del self.ids[topic]
        for name in [name for name in self.ends if name.topic == topic]:
            del self.starts[name], self.ends[name]

    def topics(self, names: Collection[str] | None) -> dict[str, TopicFacts]:
        self._ask()
        return {
            topic: TopicFacts(topic_id, tuple(name.partition for name in sorted(self.ends) if name.topic == topic))
            for topic, topic_id in self.ids.items()
            if names is None or topic in names
        }

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset | None]:
        self._ask()
        found: dict[TopicPartition, Offset | None] = {}
        for name, time in wanted.items():
            if name not in self.ends:
                raise TopicGone(f"{name} does not exist.", name.topic)
            if time in (-1, -2):
                found[name] = Offset(self.ends[name] if time == -1 else self.starts[name])
            else:
                later = [offset for when, offset in self.times.get(name, []) if when >= time]
                found[name] = Offset(min(later)) if later else None
        return found

    def close(self) -> None:
        self.closed = True

    def _ask(self) -> None:
        self.asked += 1
        if self.failures:
            self.failures -= 1
            raise ClusterUnavailable("nobody answers.", silent=self.silent)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> ScriptedCluster:
    cluster = ScriptedCluster()
    monkeypatch.setattr("regency.pipeline.reading.cluster_view.ClusterClient", lambda settings, **_: cluster)
    return cluster


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Addresses of a cluster inside of this process. It makes any topic, with four partitions."""
    cluster = MockCluster()
    yield cluster.servers
    cluster.die()


@pytest.fixture
def topic() -> str:
    return new_topic()
