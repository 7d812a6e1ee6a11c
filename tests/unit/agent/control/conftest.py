"""An agent's control service over replicas, logs and settings that the tests play."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

import pytest

from regency.broker_agent.control.gate import Office
from regency.broker_agent.control.metadata_cache import MetadataCache
from regency.broker_agent.control.service import ControlService
from regency.broker_agent.replication.api import (
    AppliedState,
    LeaderAddress,
    PartitionState,
    ReplicaDescription,
    StopPartition,
)
from regency.model.clock import ManualClock
from regency.model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
    ZkVersion,
)
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2
from regency.runtime.zookeeper.session import ZkConnectionLost

T1 = UUID(int=1).bytes
FLIGHTS = TopicPartition("flights", 0)


class Hosted:
    """Replicas that do what they are told and remember it."""

    def __init__(self) -> None:
        self.states: list[PartitionState] = []
        self.stops: list[StopPartition] = []
        self.leaders: Mapping[BrokerId, LeaderAddress] = {}
        self.clock = ManualClock()
        self.takes_ms = 0
        """To apply the state of a partition."""
        self.calls: list[int] = []
        """Partitions of each call."""
        self.complete = False
        self.refuse: dict[TopicPartition, ErrorCode] = {}
        self.lost: set[TopicPartition] = set()

    def apply_states(
        self, states: Sequence[PartitionState], leaders: Mapping[BrokerId, LeaderAddress]
    ) -> dict[TopicPartition, AppliedState]:
        self.states += states
        self.leaders = leaders
        self.calls.append(len(states))
        self.clock.advance(len(states) * self.takes_ms)
        return {each.topic_partition: self._applied(each.topic_partition, each.leader_epoch) for each in states}

    def stop_replicas(self, stops: Sequence[StopPartition]) -> dict[TopicPartition, AppliedState]:
        self.stops += stops
        return {each.topic_partition: self._applied(each.topic_partition, each.leader_epoch) for each in stops}

    def _applied(self, partition: TopicPartition, epoch: LeaderEpoch) -> AppliedState:
        return AppliedState(self.refuse.get(partition, ErrorCode.NONE), epoch)

    def describe(self, tps: Iterable[TopicPartition] | None = None) -> list[ReplicaDescription]:
        return [
            ReplicaDescription(
                FLIGHTS,
                TopicId(UUID(int=1)),
                BrokerId(1),
                LeaderEpoch(4),
                ZkVersion(0),
                (),
                Offset(7),
                Offset(9),
                Offset(2),
                LeaderEpoch(3),
                "/data",
                epochs=((LeaderEpoch(1), Offset(2)), (LeaderEpoch(3), Offset(5))),
            )
            for partition in tps or ()
            if partition == FLIGHTS
        ]

    def describe_logs(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, ReplicaDescription | None]:
        held: dict[TopicPartition, ReplicaDescription | None] = {}
        held.update((each.topic_partition, each) for each in self.describe(tps))
        held.update(dict.fromkeys(partition for partition in tps if partition in self.lost))
        return held

    def first_full_request_done(self) -> None:
        self.complete = True


class Disk:
    """Logs that are there."""

    def __init__(self) -> None:
        self.held: set[TopicPartition] = set()

    def get(self, topic_partition: TopicPartition) -> object | None:
        return self if topic_partition in self.held else None


class Settings:
    """Topic settings that can be out of reach."""

    def __init__(self) -> None:
        self.loaded: list[list[str]] = []
        self.away = False

    def load(self, topics: Iterable[str]) -> None:
        if self.away:
            raise ZkConnectionLost("no contact")
        self.loaded.append(list(topics))


class NamedInFull:
    """What full requests said."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.looked_at: list[list[TopicPartition]] = []

    def begin(self) -> None:
        self.told.append("begin")

    def named(self, states: Sequence[PartitionState]) -> None:
        self.told.append([state.topic_partition for state in states])

    def set_earlier_aside(self, states: Sequence[PartitionState]) -> None:
        self.looked_at.append([state.topic_partition for state in states])

    def all_named(self) -> None:
        self.told.append("all named")

    def look_again(self) -> None:
        self.told.append("look again")


class Agent:
    """A control service and all it works on."""

    def __init__(self, loop) -> None:
        self.loop, self.hosted, self.disk, self.settings = loop, Hosted(), Disk(), Settings()
        self.metadata = MetadataCache()
        self.epoch = BrokerEpoch(50)
        self.strays = NamedInFull()
        self.left = 0
        self.service = ControlService(
            loop,
            self.hosted,
            self.disk,
            self.metadata,
            self.settings,
            self.strays,
            lambda: self.epoch,
            self.ask_zookeeper,
            self.hosted.clock,
            shut_down=self.leave,
        )
        self.seq = 0
        self.ruling = 3
        """Controller epoch in which broker 9 rules, as ZooKeeper says."""
        self.zookeeper_away = False
        self.asked = 0

    def ask_zookeeper(self) -> Office:
        self.asked += 1
        if self.zookeeper_away:
            raise ZkConnectionLost("no contact")
        return Office(ControllerEpoch(self.ruling), BrokerId(9), self.epoch)

    def leave(self) -> None:
        self.left += 1

    def header(self, controller_epoch: int = 3, broker_epoch: int = 50, seq: int | None = None) -> control_pb2.Header:
        self.seq += 1
        return control_pb2.Header(
            controller_id=9,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            seq=self.seq if seq is None else seq,
            controller_endpoint="nine:9093",
        )

    def lead(self, partitions: Sequence[int] = (0,), full: bool = False, last: bool = False, **header: int):
        return self.service.leader_and_isr(
            control_pb2.LeaderAndIsrRequest(
                header=self.header(**header),
                full=full,
                last_chunk=last,
                topics=[self.states(partitions)],
                leaders=[control_pb2.LeaderEndpoint(broker_id=1, broker_epoch=50, host="one", port=9092)],
            )
        )

    def publish(self, first: int, *, snapshot: bool = False) -> control_pb2.ControlResponse:
        delta = control_pb2.MetadataDelta(
            brokers_present=True,
            live_brokers=[
                control_pb2.BrokerMetadata(
                    broker_id=2,
                    broker_epoch=60,
                    shutting_down=True,
                    endpoints=[control_pb2.BrokerEndpoint(listener="PLAINTEXT", host="two", port=9092)],
                )
            ],
            topics=[self.states([0, 1])],
        )
        return self.service.update_metadata(
            control_pb2.UpdateMetadataRequest(
                header=self.header(),
                snapshot=snapshot,
                first_chunk=snapshot,
                last_chunk=snapshot,
                first_delta=first,
                deltas=[delta.SerializeToString()],
            )
        )

    @staticmethod
    def states(partitions: Sequence[int]) -> control_pb2.PartitionStates:
        count = len(partitions)
        return control_pb2.PartitionStates(
            topic="flights",
            topic_id=T1,
            partition=partitions,
            leader=[1] * count,
            leader_epoch=[4] * count,
            zk_version=[6] * count,
            controller_epoch=[3] * count,
            isr_len=[2] * count,
            isr=[1, 2] * count,
            replicas_len=[3] * count,
            replicas=[1, 2, 3] * count,
            is_new=[True] * count,
        )


@pytest.fixture
def agent(loop) -> Agent:
    return Agent(loop)
