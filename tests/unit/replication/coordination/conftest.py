"""Group coordinators of brokers whose replicas, logs and network are real, and whose clock is moved by hand."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import msgspec
import pytest

from regency.broker_agent.control.metadata_cache import (
    MetadataCache,
    MetadataChange,
    MetadataUpdate,
    PartitionMetadata,
    TopicDelta,
)
from regency.broker_agent.groups.api import Caller, JoinRequest, JoinResult, OffsetResults
from regency.broker_agent.groups.coordinator import GroupCoordinator
from regency.kafka.groups.placement import OFFSETS_TOPIC
from regency.kafka.groups.records import OffsetAndMetadata
from regency.model import znodes
from regency.model.facts import ReplicaAssignment, TopicAssignment
from regency.model.ids import (
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
    ZkVersion,
)
from regency.runtime.zookeeper.session import Stat, Znode

HOME = TopicPartition(OFFSETS_TOPIC, 0)
"""Where every group is: the topic has one partition."""
READ = TopicPartition("read", 0)


def topic_id_of(topic: str) -> TopicId:
    return TopicId(UUID(bytes=topic.encode().ljust(16, b"\0")[:16]))


class FakeSession:
    """ZooKeeper with the znode of the topic of offsets, or without."""

    def __init__(self) -> None:
        self.znode: Znode | None = None

    def read(self, path: str) -> Znode | None:
        return self.znode


class InlineWorker:
    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        try:
            outcome = work()
        except Exception as error:  # noqa: BLE001
            outcome = error
        done(outcome)


class Coordination:
    """The coordinator of one broker of a cluster."""

    def __init__(self, cluster: Any, number: int, **settings: Any) -> None:
        self.cluster = cluster
        self.broker = cluster[number]
        self.session = FakeSession()
        self.metadata = MetadataCache()
        self.too_early_ms = 0
        """By how much what is asked for later comes too early, as where clocks are not of one speed."""
        self._later: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._epochs = itertools.count(1)
        self.coordinator = GroupCoordinator(
            msgspec.structs.replace(cluster.settings, **{"group_initial_rebalance_delay_ms": 0, **settings}),
            self.broker.manager,
            self.metadata,
            self.session,
            InlineWorker(),
            cluster.clock,
            self.later,
            lambda: UUID(int=next(self._numbers)),
        )

    def later(self, milliseconds: int, work: Callable[[], None]) -> None:
        due_ms = self.cluster.clock.monotonic_ms() + max(min(milliseconds, 1), milliseconds - self.too_early_ms)
        heapq.heappush(self._later, (due_ms, next(self._numbers), work))

    def run_one(self) -> bool:
        """The next call that is due; whether there was one."""
        if not self._later or self._later[0][0] > self.cluster.clock.monotonic_ms():
            return False
        heapq.heappop(self._later)[2]()
        return True

    def settle(self) -> None:
        """Let everything happen for which no time has to pass."""
        while self.run_one():
            self.cluster.run()
        self.cluster.run()

    def advance(self, milliseconds: int, step: int = 500) -> None:
        """Let time pass for all, and everything happen that is due here."""
        end = self.cluster.clock.monotonic_ms() + milliseconds
        self.settle()
        while (left := end - self.cluster.clock.monotonic_ms()) > 0:
            self.cluster.advance(min(step, left))
            self.settle()

    def publish(self, *topics: str, partitions: int = 1, in_zookeeper: bool = True) -> None:
        """Let metadata show these, and ZooKeeper the topic of offsets with so many partitions."""
        told = [
            TopicDelta(
                name,
                topic_id_of(name),
                [
                    PartitionMetadata(number, BrokerId(1), LeaderEpoch(0), ZkVersion(0), (BrokerId(1),), (BrokerId(1),))
                    for number in range(partitions if name == OFFSETS_TOPIC else 1)
                ],
            )
            for name in topics
        ]
        if OFFSETS_TOPIC in topics and in_zookeeper:
            self.place(partitions)
        update = MetadataUpdate(
            ControllerEpoch(next(self._epochs)), BrokerId(1), [MetadataChange([], told)], 1, True, True, True
        )
        assert self.metadata.apply(update) is None

    def place(self, partitions: int) -> None:
        replicas = {number: ReplicaAssignment((BrokerId(1),)) for number in range(partitions)}
        topic = TopicAssignment(OFFSETS_TOPIC, replicas, topic_id_of(OFFSETS_TOPIC), ZkVersion(0), 1)
        path = f"/brokers/topics/{OFFSETS_TOPIC}"
        self.session.znode = Znode(path, znodes.encode_topic(topic), Stat(1, 1, 0, 0, 0))

    # Clients

    def join(self, group_id: str = "g", member_id: str = "", **changes: Any) -> list[JoinResult]:
        answers: list[JoinResult] = []
        request = JoinRequest(
            group_id=group_id,
            member_id=member_id,
            instance_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            protocol_type="consumer",
            protocols=(("range", b"\0\0\0\0\0\0\xff\xff\xff\xff"),),
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            requires_known_member_id=False,
            supports_skipping_assignment=False,
        )
        self.coordinator.join(msgspec.structs.replace(request, **changes), answers.append)
        return answers

    def commit(
        self, offsets: Mapping[TopicPartition, int] | None = None, group_id: str = "g", caller: Caller | None = None
    ) -> list[OffsetResults]:
        answers: list[OffsetResults] = []
        now_ms = self.cluster.clock.wall_ms()
        values = {
            partition: OffsetAndMetadata(Offset(offset), LeaderEpoch(-1), "", now_ms)
            for partition, offset in ({READ: 5} if offsets is None else offsets).items()
        }
        self.coordinator.commit(group_id, caller or Caller(), values, answers.append)
        return answers

    def committed(self, partition: TopicPartition = READ, group_id: str = "g") -> Any:
        """The offset, None, or an error."""
        found = self.coordinator.fetch_offsets(group_id, [partition], require_stable=False)
        if isinstance(found, dict):
            found = found[partition]
        return found.offset if isinstance(found, OffsetAndMetadata) else found


@pytest.fixture
def coordinate(cluster: Any) -> Callable[..., Coordination]:
    """coordinate(1): the coordinator of broker 1, to which metadata has shown both topics."""

    def make(number: int = 1, *topics: str, **settings: Any) -> Coordination:
        made = Coordination(cluster, number, **settings)
        made.publish(*(topics or (OFFSETS_TOPIC, READ.topic)))
        return made

    return make


@pytest.fixture
def coordination(cluster: Any, coordinate: Callable[..., Coordination]) -> Coordination:
    """Broker 1 leads the only partition of the topic, and has loaded it."""
    made = coordinate(1)
    cluster.lead(1, partition=HOME)
    made.settle()
    return made
