"""Metadata, descriptions and the order to leave: what else a controller asks of an agent."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from regency.model.ids import (
    BrokerId,
    TopicPartition,
)
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2

T1 = UUID(int=1).bytes
FLIGHTS = TopicPartition("flights", 0)


def test_metadata_is_published_whole(agent) -> None:
    assert agent.publish(1, snapshot=True).error_code == 0
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


def test_a_gap_in_the_metadata_asks_for_a_snapshot(agent) -> None:
    agent.publish(1, snapshot=True)
    before = agent.metadata.current
    assert agent.publish(5).error_code == ErrorCode.INVALID_REQUEST
    assert agent.metadata.current is before


def test_replicas_are_described_without_a_place_in_the_sequence(agent) -> None:
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
    assert (list(first.epochs_len), list(first.epoch), list(first.epoch_start)) == ([2, 0, 0], [1, 3], [2, 5])
    assert list(other.error_code) == [ErrorCode.INCONSISTENT_TOPIC_ID]


def test_a_deposed_controller_is_told_nothing_about_replicas(agent) -> None:
    agent.lead()
    answer = agent.service.describe_replicas(
        control_pb2.DescribeReplicasRequest(header=agent.header(controller_epoch=2))
    )
    assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH


def test_replicas_are_described_while_another_request_holds_the_turn(agent) -> None:
    holds, go_on = threading.Event(), threading.Event()

    def wait(topics: Iterable[str]) -> None:
        holds.set()
        assert go_on.wait(60), "the question waits for the turn"

    agent.settings.load = wait
    refs = [control_pb2.PartitionRefs(topic="flights", topic_id=T1, partition=[0])]
    with ThreadPoolExecutor() as pool:
        under_way = pool.submit(agent.lead)
        assert holds.wait(60)
        asked, deposed = (
            agent.service.describe_replicas(
                control_pb2.DescribeReplicasRequest(header=agent.header(controller_epoch=epoch), topics=refs)
            )
            for epoch in (3, 2)
        )
        assert not under_way.done()
        go_on.set()
        assert under_way.result(60).error_code == ErrorCode.NONE
    assert [list(topic.log_end_offset) for topic in asked.topics] == [[9]]
    assert deposed.error_code == ErrorCode.STALE_CONTROLLER_EPOCH


def test_a_broker_leaves_when_the_newest_controller_says_so_to_this_incarnation(agent) -> None:
    agent.lead(seq=7)

    answer = agent.service.shut_down(control_pb2.ShutDownRequest(header=agent.header(seq=0)))

    assert (answer.error_code, answer.broker_epoch, agent.left) == (0, 50, 1)


def test_a_broker_does_not_leave_for_a_deposed_controller_or_when_an_earlier_life_is_meant(agent) -> None:
    agent.lead()

    deposed = agent.service.shut_down(control_pb2.ShutDownRequest(header=agent.header(controller_epoch=2)))
    earlier = agent.service.shut_down(control_pb2.ShutDownRequest(header=agent.header(broker_epoch=49)))

    assert deposed.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert earlier.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert agent.left == 0
