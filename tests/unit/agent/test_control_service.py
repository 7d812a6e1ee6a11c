from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

import pytest

from regency.broker_agent.control_service import SLICE, ControlService
from regency.broker_agent.data_loop import LoopClosed
from regency.broker_agent.metadata_cache import MetadataCache, RulingController
from regency.broker_agent.replication.api import (
    AppliedState,
    LeaderAddress,
    PartitionState,
    ReplicaDescription,
    StopPartition,
)
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
from regency.runtime.zk_session import ZkConnectionLost

T1 = UUID(int=1).bytes
FLIGHTS = TopicPartition("flights", 0)


class Hosted:
    """Replicas that do what they are told and remember it."""

    def __init__(self) -> None:
        self.states: list[PartitionState] = []
        self.stops: list[StopPartition] = []
        self.leaders: Mapping[BrokerId, LeaderAddress] = {}
        self.slices: list[int] = []
        self.complete = False
        self.refuse: dict[TopicPartition, ErrorCode] = {}
        self.lost: set[TopicPartition] = set()

    def apply_states(
        self, states: Sequence[PartitionState], leaders: Mapping[BrokerId, LeaderAddress]
    ) -> dict[TopicPartition, AppliedState]:
        self.states += states
        self.leaders = leaders
        self.slices.append(len(states))
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
            shut_down=self.leave,
        )
        self.seq = 0

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
                topics=[states(partitions)],
                leaders=[control_pb2.LeaderEndpoint(broker_id=1, broker_epoch=50, host="one", port=9092)],
            )
        )


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


def test_a_leader_and_isr_reaches_the_replicas_with_its_leaders(agent: Agent) -> None:
    answer = agent.lead()
    assert (answer.error_code, answer.broker_epoch, answer.controller_epoch, len(answer.topics)) == (0, 50, 3, 0)
    (state,) = agent.hosted.states
    assert state == PartitionState(
        FLIGHTS,
        TopicId(UUID(int=1)),
        ControllerEpoch(3),
        BrokerId(1),
        LeaderEpoch(4),
        (BrokerId(1), BrokerId(2)),
        ZkVersion(6),
        (BrokerId(1), BrokerId(2), BrokerId(3)),
        is_new=True,
    )
    assert agent.hosted.leaders == {1: LeaderAddress(BrokerId(1), BrokerEpoch(50), "one", 9092)}


def test_only_partitions_that_failed_are_named_in_the_answer(agent: Agent) -> None:
    agent.hosted.refuse[TopicPartition("flights", 1)] = ErrorCode.FENCED_LEADER_EPOCH
    answer = agent.lead([0, 1, 2])
    (topic,) = answer.topics
    assert (topic.topic, topic.topic_id) == ("flights", T1)
    assert (list(topic.partition), list(topic.error_code), list(topic.leader_epoch)) == ([1], [74], [4])


def test_many_partitions_are_handled_in_slices(agent: Agent) -> None:
    agent.lead(range(2 * SLICE + 1))
    assert agent.hosted.slices == [SLICE, SLICE, 1]


def test_settings_of_new_logs_are_read_before_their_replicas_exist(agent: Agent) -> None:
    agent.lead()
    assert agent.settings.loaded == [["flights"]]
    agent.disk.held.add(FLIGHTS)
    agent.lead()
    assert agent.settings.loaded == [["flights"]]


def test_a_new_replica_waits_where_its_settings_cannot_be_read_and_the_others_do_not(agent: Agent) -> None:
    agent.settings.away = True
    agent.disk.held.add(FLIGHTS)
    answer = agent.lead([0, 1])
    assert [state.topic_partition for state in agent.hosted.states] == [FLIGHTS]
    assert list(answer.topics[0].partition) == [1]
    assert list(answer.topics[0].error_code) == [ErrorCode.NETWORK_EXCEPTION]


def test_strays_are_looked_for_among_what_all_pieces_of_a_full_request_left_out(agent: Agent) -> None:
    agent.lead(partitions=(0, 1), full=True)
    agent.lead(partitions=(2,))
    agent.lead(partitions=(3,), full=True, last=True)
    names = [TopicPartition("flights", partition) for partition in range(4)]
    assert agent.strays.told == ["begin", names[:2], names[3:], "all named"]
    assert agent.strays.looked_at == [names[:2], names[2:3], names[3:]]
    agent.lead(controller_epoch=4)
    assert agent.strays.told[-1] == "begin"


def test_the_last_chunk_of_a_full_request_completes_it(agent: Agent) -> None:
    agent.lead(full=True)
    assert not agent.hosted.complete
    agent.lead(full=True, last=True)
    assert agent.hosted.complete


def test_a_repeated_request_is_answered_without_doing_it_again(agent: Agent) -> None:
    first = agent.lead(seq=7)
    again = agent.lead(seq=7)
    assert first == again
    assert len(agent.hosted.states) == 1


def test_a_deposed_controller_gets_the_newest_epoch_and_changes_nothing(agent: Agent) -> None:
    agent.lead()
    answer = agent.lead(controller_epoch=2)
    assert (answer.error_code, answer.controller_epoch) == (ErrorCode.STALE_CONTROLLER_EPOCH, 3)
    assert len(agent.hosted.states) == 1


def test_a_request_for_an_earlier_incarnation_gets_the_current_epoch(agent: Agent) -> None:
    answer = agent.lead(broker_epoch=49)
    assert (answer.error_code, answer.broker_epoch) == (ErrorCode.STALE_BROKER_EPOCH, 50)
    assert agent.hosted.states == []


def test_the_first_request_of_a_controller_tells_where_it_is(agent: Agent) -> None:
    agent.lead()
    assert agent.metadata.ruling == RulingController(BrokerId(9), ControllerEpoch(3), "nine:9093")


def test_columns_that_do_not_fit_are_refused(agent: Agent) -> None:
    broken = states([0, 1])
    del broken.leader[1:]
    request = control_pb2.LeaderAndIsrRequest(header=agent.header(), topics=[broken])
    assert agent.service.leader_and_isr(request).error_code == ErrorCode.INVALID_REQUEST
    broken = states([0, 1])
    broken.isr.append(3)
    request = control_pb2.LeaderAndIsrRequest(header=agent.header(), topics=[broken])
    assert agent.service.leader_and_isr(request).error_code == ErrorCode.INVALID_REQUEST
    assert agent.hosted.states == []


def test_a_stop_reaches_the_replicas(agent: Agent) -> None:
    stop = control_pb2.StopPartitions(
        topic="flights", topic_id=T1, partition=[0, 1], leader_epoch=[-2, 5], delete_partition=[True, False]
    )
    answer = agent.service.stop_replica(control_pb2.StopReplicaRequest(header=agent.header(), topics=[stop]))
    assert answer.error_code == 0
    assert [(s.topic_partition.partition, s.leader_epoch, s.delete) for s in agent.hosted.stops] == [
        (0, -2, True),
        (1, 5, False),
    ]


def metadata(agent: Agent, first: int, *, snapshot: bool = False) -> control_pb2.ControlResponse:
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
        topics=[states([0, 1])],
    )
    return agent.service.update_metadata(
        control_pb2.UpdateMetadataRequest(
            header=agent.header(),
            snapshot=snapshot,
            first_chunk=snapshot,
            last_chunk=snapshot,
            first_delta=first,
            deltas=[delta.SerializeToString()],
        )
    )


def test_metadata_is_published_whole(agent: Agent) -> None:
    assert metadata(agent, 1, snapshot=True).error_code == 0
    view = agent.metadata.current
    node = view.brokers[BrokerId(2)]
    assert (node.epoch, node.shutting_down, node.rack, str(node.endpoints[0])) == (
        60,
        True,
        None,
        "PLAINTEXT://two:9092",
    )
    held = view.partition(TopicPartition("flights", 1))
    assert held is not None and (held.leader, held.isr, held.replicas, held.offline) == (1, (1, 2), (1, 2, 3), ())


def test_a_gap_in_the_metadata_asks_for_a_snapshot(agent: Agent) -> None:
    metadata(agent, 1, snapshot=True)
    before = agent.metadata.current
    assert metadata(agent, 5).error_code == ErrorCode.INVALID_REQUEST
    assert agent.metadata.current is before


def test_replicas_are_described_without_a_place_in_the_sequence(agent: Agent) -> None:
    agent.lead(seq=7)
    agent.hosted.lost.add(TopicPartition("flights", 6))
    refs = [
        control_pb2.PartitionRefs(topic="flights", topic_id=T1, partition=[0, 5, 6]),
        control_pb2.PartitionRefs(topic="flights", topic_id=UUID(int=2).bytes, partition=[0]),
    ]
    answer = agent.service.describe_replicas(
        control_pb2.DescribeReplicasRequest(header=agent.header(seq=0), topics=refs)
    )
    first, other = answer.topics
    unknown, lost = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR
    assert list(first.error_code) == [0, unknown, lost]
    assert (first.last_batch_epoch[0], first.log_start_offset[0], first.log_end_offset[0], first.high_watermark[0]) == (
        3,
        2,
        9,
        7,
    )
    assert first.log_end_offset[1] == -1
    assert list(other.error_code) == [ErrorCode.INCONSISTENT_TOPIC_ID]


def test_a_deposed_controller_is_told_nothing_about_replicas(agent: Agent) -> None:
    agent.lead()
    answer = agent.service.describe_replicas(
        control_pb2.DescribeReplicasRequest(header=agent.header(controller_epoch=2))
    )
    assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH


def test_a_broker_leaves_when_the_newest_controller_says_so_to_this_incarnation(agent: Agent) -> None:
    agent.lead(seq=7)

    answer = agent.service.shut_down(control_pb2.ShutDownRequest(header=agent.header(seq=0)))

    assert (answer.error_code, answer.broker_epoch, agent.left) == (0, 50, 1)


def test_a_broker_does_not_leave_for_a_deposed_controller_or_when_an_earlier_life_is_meant(agent: Agent) -> None:
    agent.lead()

    deposed = agent.service.shut_down(control_pb2.ShutDownRequest(header=agent.header(controller_epoch=2)))
    earlier = agent.service.shut_down(control_pb2.ShutDownRequest(header=agent.header(broker_epoch=49)))

    assert deposed.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert earlier.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert agent.left == 0


def test_a_controller_that_could_not_be_noted_is_noted_with_its_next_request(loop, monkeypatch) -> None:
    agent = Agent(loop)

    def stuck(*_: object, **__: object) -> None:
        raise LoopClosed("The data loop did not answer.")

    with monkeypatch.context() as patched:
        patched.setattr(agent.loop, "call", stuck)
        assert agent.lead(seq=1).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert agent.metadata.ruling is None

    assert agent.lead(seq=2).error_code == ErrorCode.NONE
    assert agent.metadata.ruling is not None and agent.metadata.ruling.id == 9
