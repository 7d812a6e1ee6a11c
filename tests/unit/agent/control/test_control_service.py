from __future__ import annotations

from uuid import UUID

import pytest

from regency.broker_agent.control.metadata_cache import RulingController
from regency.broker_agent.control.service import FEW, SLICE, SLICE_MS
from regency.broker_agent.process.data_loop import LoopClosed
from regency.broker_agent.replication.api import (
    LeaderAddress,
    PartitionState,
)
from regency.model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicId,
    TopicPartition,
    ZkVersion,
)
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2

T1 = UUID(int=1).bytes
FLIGHTS = TopicPartition("flights", 0)


def test_a_leader_and_isr_reaches_the_replicas_with_its_leaders(agent) -> None:
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


def test_only_partitions_that_failed_are_named_in_the_answer(agent) -> None:
    agent.hosted.refuse[TopicPartition("flights", 1)] = ErrorCode.FENCED_LEADER_EPOCH
    answer = agent.lead([0, 1, 2])
    (topic,) = answer.topics
    assert (topic.topic, topic.topic_id) == ("flights", T1)
    assert (list(topic.partition), list(topic.error_code), list(topic.leader_epoch)) == ([1], [74], [4])


@pytest.mark.parametrize(("takes_ms", "at_once"), [(0, SLICE), (1, FEW), (SLICE_MS / FEW / 4, 4 * FEW)])
def test_many_partitions_are_handled_in_slices_as_long_as_the_loop_may_be_held(agent, takes_ms, at_once) -> None:
    agent.hosted.takes_ms = takes_ms
    slices = []
    call = agent.loop.call

    def watched(work, **options):
        before = sum(agent.hosted.calls)
        try:
            return call(work, **options)
        finally:
            slices.append(sum(agent.hosted.calls) - before)

    agent.loop.call = watched
    agent.lead(range(2 * SLICE + 1))
    whole, rest = divmod(2 * SLICE + 1, at_once)
    assert [each for each in slices if each] == [at_once] * whole + [rest] * (rest > 0)
    assert max(agent.hosted.calls) <= FEW


def test_settings_of_new_logs_are_read_before_their_replicas_exist(agent) -> None:
    agent.lead()
    assert agent.settings.loaded == [["flights"]]
    agent.disk.held.add(FLIGHTS)
    agent.lead()
    assert agent.settings.loaded == [["flights"]]


def test_a_new_replica_waits_where_its_settings_cannot_be_read_and_the_others_do_not(agent) -> None:
    agent.settings.away = True
    agent.disk.held.add(FLIGHTS)
    answer = agent.lead([0, 1])
    assert [state.topic_partition for state in agent.hosted.states] == [FLIGHTS]
    assert list(answer.topics[0].partition) == [1]
    assert list(answer.topics[0].error_code) == [ErrorCode.NETWORK_EXCEPTION]


def test_strays_are_looked_for_among_what_all_pieces_of_a_full_request_left_out(agent) -> None:
    agent.lead(partitions=(0, 1), full=True)
    agent.lead(partitions=(2,))
    agent.lead(partitions=(3,), full=True, last=True)
    names = [TopicPartition("flights", partition) for partition in range(4)]
    assert agent.strays.told == ["begin", names[:2], names[3:], "all named"]
    assert agent.strays.looked_at == [names[:2], names[2:3], names[3:]]
    agent.ruling = 4
    agent.lead(controller_epoch=4)
    assert agent.strays.told[-1] == "begin"


def test_the_last_chunk_of_a_full_request_completes_it(agent) -> None:
    agent.lead(full=True)
    assert not agent.hosted.complete
    agent.lead(full=True, last=True)
    assert agent.hosted.complete


def test_a_repeated_request_is_answered_without_doing_it_again(agent) -> None:
    first = agent.lead(seq=7)
    again = agent.lead(seq=7)
    assert first == again
    assert len(agent.hosted.states) == 1


def test_a_deposed_controller_gets_the_newest_epoch_and_changes_nothing(agent) -> None:
    agent.lead()
    answer = agent.lead(controller_epoch=2)
    assert (answer.error_code, answer.controller_epoch) == (ErrorCode.STALE_CONTROLLER_EPOCH, 3)
    assert len(agent.hosted.states) == 1


def test_a_request_for_an_earlier_incarnation_gets_the_current_epoch(agent) -> None:
    answer = agent.lead(broker_epoch=49)
    assert (answer.error_code, answer.broker_epoch) == (ErrorCode.STALE_BROKER_EPOCH, 50)
    assert agent.hosted.states == []


def test_the_first_request_of_a_controller_tells_where_it_is(agent) -> None:
    agent.lead()
    assert agent.metadata.ruling == RulingController(BrokerId(9), ControllerEpoch(3), "nine:9093")


def test_columns_that_do_not_fit_are_refused(agent) -> None:
    broken = agent.states([0, 1])
    del broken.leader[1:]
    request = control_pb2.LeaderAndIsrRequest(header=agent.header(), topics=[broken])
    assert agent.service.leader_and_isr(request).error_code == ErrorCode.INVALID_REQUEST
    broken = agent.states([0, 1])
    broken.isr.append(3)
    request = control_pb2.LeaderAndIsrRequest(header=agent.header(), topics=[broken])
    assert agent.service.leader_and_isr(request).error_code == ErrorCode.INVALID_REQUEST
    assert agent.hosted.states == []


def test_a_stop_reaches_the_replicas(agent) -> None:
    stop = control_pb2.StopPartitions(
        topic="flights", topic_id=T1, partition=[0, 1], leader_epoch=[-2, 5], delete_partition=[True, False]
    )
    answer = agent.service.stop_replica(control_pb2.StopReplicaRequest(header=agent.header(), topics=[stop]))
    assert answer.error_code == 0
    assert [(s.topic_partition.partition, s.leader_epoch, s.delete) for s in agent.hosted.stops] == [
        (0, -2, True),
        (1, 5, False),
    ]


def test_a_controller_that_could_not_be_noted_is_noted_with_its_next_request(agent, monkeypatch) -> None:
    def stuck(*_: object, **__: object) -> None:
        raise LoopClosed("The data loop did not answer.")

    with monkeypatch.context() as patched:
        patched.setattr(agent.loop, "call", stuck)
        assert agent.lead(seq=1).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert agent.metadata.ruling is None

    assert agent.lead(seq=2).error_code == ErrorCode.NONE
    assert agent.metadata.ruling is not None and agent.metadata.ruling.id == 9
