"""How far a broker's logs go, asked beside everything else: whoever does not answer keeps nobody waiting."""

from __future__ import annotations

import threading
from uuid import UUID

import pytest

from regency.controller.channel.channel_manager import ControllerChannelManager
from regency.controller.channel.log_questions import (
    ANSWER_WITHIN_MS,
    NO_LOG,
    PARTITIONS_PER_REQUEST,
    LogQuestion,
    log_ends,
)
from regency.controller.channel.messages import Origin
from regency.controller.state.election import LogEnd
from regency.model.clock import SystemClock
from regency.model.facts import Broker, Endpoint
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2 as pb
from regency.runtime.grpc.channels import RpcFailed

T_ID, U_ID = UUID(int=1), UUID(int=2)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
BROKER = Broker(2, 77, (Endpoint("CONTROL", "h", 2),))
ORIGIN = Origin(1, 9, "h:1")


class Port:
    """Answers with these logs, fails, or is stuck until it is closed."""

    def __init__(self, *, fails: Exception | None = None, stuck: bool = False) -> None:
        self.fails, self.stuck = fails, stuck
        self.asked: list[tuple[pb.DescribeReplicasRequest, int]] = []
        self.closed = threading.Event()

    def describe(self, request, timeout_ms):
        self.asked.append((request, timeout_ms))
        if self.stuck:
            assert self.closed.wait(10)
            raise ValueError("Cannot invoke RPC on closed channel!")
        if self.fails is not None:
            raise self.fails
        return pb.DescribeReplicasResponse(
            topics=[described(topic.topic, *topic.partition) for topic in request.topics]
        )

    def call(self, message):
        raise AssertionError(f"{message} has another way")

    def close(self):
        self.closed.set()


def described(topic, *partitions, code=0):
    count = len(partitions)
    return pb.ReplicaDescriptions(
        topic=topic,
        partition=partitions,
        error_code=[code] * count,
        leader_epoch=[5] * count,
        last_batch_epoch=[3] * count,
        log_start_offset=[7] * count,
        high_watermark=[9] * count,
        log_end_offset=[100 + partition for partition in partitions],
    )


class Told:
    """Where the answer arrives."""

    def __init__(self) -> None:
        self.answers: list[object] = []
        self.arrived = threading.Semaphore(0)

    def __call__(self, ends) -> None:
        self.answers.append(ends)
        self.arrived.release()

    def wait(self):
        assert self.arrived.acquire(timeout=10)
        (answer,) = self.answers
        return answer


def ask(port, partitions):
    told = Told()
    question = LogQuestion(ORIGIN, BROKER, partitions, port, told)
    question.start()
    return question, told


def test_one_request_tells_of_all_partitions_under_their_topics_ids():
    port = Port()
    _, told = ask(port, {T0: T_ID, U0: U_ID, T1: T_ID})

    answer = told.wait()

    assert answer.ends == {
        T0: LogEnd(3, 100, 5, 7, (), 9),
        T1: LogEnd(3, 101, 5, 7, (), 9),
        U0: LogEnd(3, 100, 5, 7, (), 9),
    }
    assert (answer.broker, answer.broker_epoch, answer.asked) == (2, 77, (T0, U0, T1))
    ((request, timeout_ms),) = port.asked
    assert timeout_ms == ANSWER_WITHIN_MS
    assert [(each.topic, each.topic_id, list(each.partition)) for each in request.topics] == [
        ("t", T_ID.bytes, [0, 1]),
        ("u", U_ID.bytes, [0]),
    ]
    header = request.header
    assert (header.controller_id, header.controller_epoch, header.broker_epoch) == (1, 9, 77)
    assert port.closed.is_set()


def test_very_many_partitions_go_in_pieces():
    port = Port()
    _, told = ask(port, {TopicPartition("t", number): T_ID for number in range(PARTITIONS_PER_REQUEST + 5)})

    assert len(told.wait().ends) == PARTITIONS_PER_REQUEST + 5
    assert [len(request.topics[0].partition) for request, _ in port.asked] == [PARTITIONS_PER_REQUEST, 5]


@pytest.mark.parametrize("failure", [RpcFailed("No answer."), ValueError("closed")])
def test_broker_that_does_not_answer_is_told_as_silent(failure):
    port = Port(fails=failure)
    _, told = ask(port, {T0: T_ID})

    assert told.wait().ends == {}
    assert port.closed.is_set()


def test_closing_ends_a_question_that_hangs():
    port = Port(stuck=True)
    question, told = ask(port, {T0: T_ID})

    question.close()

    assert told.wait().ends == {}
    assert question.answered


def test_what_an_answer_says_of_logs():
    """No log at all ranks before silence; a log that is out of reach is as silence."""
    answer = pb.DescribeReplicasResponse(
        topics=[
            described("t", 0),
            described("none", 0, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            described("other", 0, code=ErrorCode.INCONSISTENT_TOPIC_ID),
            described("lost", 0, code=ErrorCode.KAFKA_STORAGE_ERROR),
        ]
    )

    assert log_ends(answer) == {
        T0: LogEnd(3, 100, 5, 7, (), 9),
        TopicPartition("none", 0): NO_LOG,
        TopicPartition("other", 0): NO_LOG,
    }
    with_epochs = described("t", 0, 1, 2)
    with_epochs.epochs_len.extend([2, 0, 1])
    with_epochs.epoch.extend([1, 3, 2])
    with_epochs.epoch_start.extend([0, 40, 50])
    assert [end.epochs for end in log_ends(pb.DescribeReplicasResponse(topics=[with_epochs])).values()] == [
        ((1, 0), (3, 40)),
        (),
        ((2, 50),),
    ]
    assert log_ends(pb.DescribeReplicasResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)) == {}


def test_channels_ask_on_a_connection_of_their_own_and_close_it_with_the_term():
    told, ports = Told(), []

    def connect(_):
        ports.append(Port(stuck=len(ports) > 0))
        return ports[-1]

    manager = ControllerChannelManager(
        ORIGIN,
        control_listener="CONTROL",
        inter_broker_listener="PLAINTEXT",
        connect=connect,
        tell=told,
        clock=SystemClock(),
    )
    manager.ask_log_ends(BROKER, {T0: T_ID})
    assert told.wait().ends == {T0: LogEnd(3, 100, 5, 7, (), 9)}
    manager.ask_log_ends(BROKER, {T0: T_ID})

    manager.close()

    assert told.arrived.acquire(timeout=10)
    assert told.answers[1].ends == {}
    assert all(port.closed.is_set() for port in ports)
