"""Channels with their threads: a slow broker delays nobody, a dead one is tried again, closing ends what runs."""

from __future__ import annotations

import threading

import pytest

from regency.controller.channel.channel_manager import ControllerChannelManager, NoSnapshot
from regency.controller.channel.messages import LeaderAndIsrRow, Origin, rows_by_topic
from regency.controller.channel.metadata import MetadataLog
from regency.controller.channel.sender import Trouble
from regency.controller.channel.slots import BrokerRequests
from regency.model.clock import Clock, ManualClock, SystemClock
from regency.model.facts import Broker, Endpoint, LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from regency.model.ids import ZERO_TOPIC_ID, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2 as pb
from regency.runtime.grpc.channels import RpcFailed

T0 = TopicPartition("t", 0)


class Port:
    """An agent: fails as often as told, can be stuck until it is closed."""

    def __init__(self) -> None:
        self.received: list[object] = []
        self.failures = 0
        self.stuck = False
        self.answer = pb.ControlResponse()
        self.closed = threading.Event()
        self.arrived = threading.Semaphore(0)

    def call(self, message):
        self.received.append(message)
        self.arrived.release()
        if self.stuck:
            assert self.closed.wait(10)
            raise ValueError("Cannot invoke RPC on closed channel!")
        if self.failures:
            self.failures -= 1
            raise RpcFailed("No answer from h:1: unavailable.")
        return self.answer

    def close(self):
        self.closed.set()


class Listener:
    def __init__(self) -> None:
        self.troubles: list[object] = []
        self.heard = threading.Semaphore(0)
        self.snapshots = threading.Semaphore(0)

    def __call__(self, told):
        if isinstance(told, Trouble):
            self.troubles.append(told)
            self.heard.release()
        elif isinstance(told, NoSnapshot):
            self.snapshots.release()


class Fixture:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.ports = {1: Port(), 2: Port()}
        self.listener = Listener()
        self.requested: list[tuple[int, int]] = []
        self.manager = ControllerChannelManager(
            Origin(1, 1, "h:1"),
            control_listener="CONTROL",
            inter_broker_listener="PLAINTEXT",
            connect=lambda endpoint: self.ports[endpoint.port],
            tell=self.listener,
            clock=self.clock,
            requested=lambda broker, waited_ms: self.requested.append((broker, waited_ms)),
        )
        self.metadata = self.manager.metadata
        for number in (1, 2):
            self.manager.add(Broker(number, number, (Endpoint("CONTROL", "h", number),)))

    def want(self, *brokers: int) -> None:
        state = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 0, (1,)), 1)
        host = LeaderAndIsrRow(ZERO_TOPIC_ID, state, ReplicaAssignment((1, 2)))
        self.manager.send({broker: BrokerRequests(rows_by_topic({T0: host}, ())) for broker in brokers})


@pytest.fixture
def channels():
    fixture = Fixture(SystemClock())
    yield fixture
    fixture.manager.close()


@pytest.fixture
def timed():
    """Channels whose time is moved by hand."""
    fixture = Fixture(ManualClock())
    yield fixture
    fixture.manager.close()


def test_slow_broker_delays_nobody_else(channels):
    channels.metadata.set_snapshot([b""])
    channels.ports[1].stuck = True
    channels.want(1, 2)
    channels.manager.start(1)
    channels.manager.start(2)

    for _ in range(2):
        assert channels.ports[2].arrived.acquire(timeout=10)
    assert [type(message).__name__ for message in channels.ports[2].received] == [
        "LeaderAndIsrRequest",
        "UpdateMetadataRequest",
    ]
    assert channels.ports[1].arrived.acquire(timeout=10)
    assert len(channels.ports[1].received) == 1


def test_request_is_repeated_until_it_is_answered(channels, caplog):
    channels.metadata.set_snapshot([b""])
    channels.ports[1].failures = 2
    channels.want(1)

    channels.manager.start(1)
    for _ in range(4):
        assert channels.ports[1].arrived.acquire(timeout=10)

    seqs = [message.header.seq for message in channels.ports[1].received]
    assert seqs == [1, 1, 1, 2]
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if "is not acknowledged" in line]) == 1


def test_troubles_and_wanted_snapshots_are_heard(channels):
    channels.ports[1].answer = pb.ControlResponse(
        topics=[pb.PartitionErrors(topic="t", partition=[0], error_code=[ErrorCode.KAFKA_STORAGE_ERROR])]
    )
    channels.want(1)
    channels.manager.start(1)

    assert channels.listener.heard.acquire(timeout=10)
    assert channels.listener.troubles[0].failed_storage == (T0,)
    assert channels.listener.snapshots.acquire(timeout=10)


def test_snapshot_that_was_outdated_before_it_was_read_is_asked_for_again(channels):
    channels.metadata = channels.manager.metadata = MetadataLog(retained_bytes=1)
    channels.manager.add(Broker(1, 1, (Endpoint("CONTROL", "h", 1),)))
    channels.manager.start(1)
    assert channels.listener.snapshots.acquire(timeout=10)

    channels.metadata.set_snapshot([b""])
    channels.metadata.append([b"more", b"than is kept"])
    channels.manager.send({})

    assert channels.listener.snapshots.acquire(timeout=10)


def test_closing_ends_calls_that_run(channels):
    channels.ports[1].stuck = True
    channels.manager.start(1)
    assert channels.ports[1].arrived.acquire(timeout=10)

    channels.manager.close()

    assert channels.ports[1].closed.is_set()
    assert channels.manager.unacknowledged == 0
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("sender to broker 1 (epoch 1)")]


def test_broker_reached_elsewhere_gets_numbers_that_go_on(channels):
    channels.metadata.set_snapshot([b""])
    channels.manager.start(1)
    for _ in range(2):
        assert channels.ports[1].arrived.acquire(timeout=10)
    channels.ports[5] = Port()

    channels.manager.add(Broker(1, 1, (Endpoint("CONTROL", "h", 5),)))
    channels.manager.start(1)

    assert channels.ports[5].arrived.acquire(timeout=10)
    assert channels.ports[5].received[0].header.seq == 3


def test_broker_added_again_gets_a_new_conversation(channels):
    channels.metadata.set_snapshot([b""])
    channels.manager.start(1)
    assert channels.ports[1].arrived.acquire(timeout=10)
    old, channels.ports[1] = channels.ports[1], Port()

    channels.manager.add(Broker(1, 9, (Endpoint("CONTROL", "h", 1),)))
    channels.manager.start(1)

    assert channels.ports[1].arrived.acquire(timeout=10)
    header = channels.ports[1].received[0].header
    assert (header.broker_epoch, header.seq, channels.ports[1].received[0].full) == (9, 1, True)
    assert old.closed.is_set()


def test_broker_that_was_left_out_for_a_while_gets_numbers_that_go_on(channels):
    channels.metadata.set_snapshot([b""])
    channels.manager.start(1)
    for _ in range(2):
        assert channels.ports[1].arrived.acquire(timeout=10)
    channels.manager.remove(1)
    channels.ports[1] = Port()

    channels.manager.add(Broker(1, 1, (Endpoint("CONTROL", "h", 1),)))
    channels.manager.start(1)

    assert channels.ports[1].arrived.acquire(timeout=10)
    assert channels.ports[1].received[0].header.seq == 3


def test_what_waits_for_a_broker_that_does_not_answer_grows_old_and_is_counted(timed):
    timed.metadata.set_snapshot([b""])
    timed.ports[1].stuck = True
    timed.want(1)
    timed.manager.start(1)
    assert timed.ports[1].arrived.acquire(timeout=10)
    timed.clock.advance(700)
    timed.want(1)
    timed.clock.advance(300)

    stuck, fresh = timed.manager.backlogs()

    assert (stuck.unacknowledged, stuck.waiting, stuck.oldest_ms) == (1, 1, 1000)
    assert (fresh.unacknowledged, fresh.waiting, fresh.oldest_ms) == (0, 0, 0)
    assert timed.requested == [(1, 0)]


def test_a_request_tells_how_long_the_oldest_of_it_was_wanted_and_counts_once(timed):
    timed.ports[1].failures = 1
    timed.want(1)
    timed.clock.advance(40)
    timed.want(1)
    timed.clock.advance(2)
    timed.manager.start(1)

    for _ in range(2):
        assert timed.ports[1].arrived.acquire(timeout=10)
        timed.clock.advance(100)
        timed.manager.send({})

    assert timed.ports[1].received[0] == timed.ports[1].received[1]
    assert timed.requested == [(1, 42)]
