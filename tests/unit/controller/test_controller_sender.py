"""One sender: what goes first, what is repeated, and what answers mean."""

from __future__ import annotations

from uuid import uuid4

import pytest

from regency.controller.channel import sender as sender_module
from regency.controller.channel.messages import LeaderAndIsrRow, Origin, StopReplicaRow
from regency.controller.channel.metadata import MetadataLog
from regency.controller.channel.sender import Outgoing, Rpc, Sender
from regency.model.facts import Broker, Endpoint, LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from regency.model.ids import ZERO_TOPIC_ID, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2 as pb

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OK = pb.ControlResponse()


def host(epoch: int = 0, leader: int = 1) -> LeaderAndIsrRow:
    state = LeaderIsrAndControllerEpoch(LeaderAndIsr(leader, epoch, (1, 2), 3), 7)
    return LeaderAndIsrRow(ZERO_TOPIC_ID, state, ReplicaAssignment((1, 2)))


def hosts(outgoing: Outgoing) -> dict[TopicPartition, LeaderAndIsrRow]:
    return dict(each for topic in outgoing.topics for each in topic.each())


def refused(code: ErrorCode, *partitions: TopicPartition) -> pb.ControlResponse:
    numbers = [partition.partition for partition in partitions]
    topic = pb.PartitionErrors(topic="t", partition=numbers, error_code=[code] * len(numbers))
    return pb.ControlResponse(topics=[topic])


@pytest.fixture
def metadata() -> MetadataLog:
    log = MetadataLog()
    log.set_snapshot([b"one", b"two"])
    return log


@pytest.fixture
def sender(metadata) -> Sender:
    sender = Sender(Origin(1, 7, "h:1"), 2, 55, metadata)
    sender.start()
    return sender


def drain(sender: Sender, now: int = 0) -> list:
    """Answer everything with NONE until there is nothing more."""
    sent = []
    while (outgoing := sender.next(now)) is not None:
        sent.append(outgoing)
        assert sender.on_answer(OK, now) is None
    return sent


def test_nothing_is_sent_before_everything_the_broker_hosts_is_known(metadata):
    sender = Sender(Origin(1, 7, "h:1"), 2, 55, metadata)
    sender.desired.want(T0, host())
    assert sender.next(0) is None

    sender.start()

    assert sender.next(0).full


def test_first_leader_and_isr_is_full_in_chunks_before_metadata_and_stops(sender, monkeypatch):
    monkeypatch.setattr(sender_module, "CHUNK_BYTES", 1)
    sender.desired.want(T0, host())
    sender.desired.want(T1, host())
    sender.desired.want(TopicPartition("u", 0), StopReplicaRow(ZERO_TOPIC_ID, 1, delete=True))

    sent = drain(sender)

    assert [(each.rpc, each.full, each.last_chunk) for each in sent] == [
        (Rpc.LEADER_AND_ISR, True, False),
        (Rpc.LEADER_AND_ISR, True, True),
        (Rpc.UPDATE_METADATA, False, False),
        (Rpc.UPDATE_METADATA, False, False),
        (Rpc.STOP_REPLICA, False, False),
    ]
    assert [each.seq for each in sent] == [1, 2, 3, 4, 5]
    assert sender.settled


def test_one_request_is_in_flight_at_a_time(sender):
    assert sender.next(0) is not None

    assert sender.next(0) is None
    assert sender.wake_at(0) is None


def test_request_without_an_answer_is_repeated_under_the_same_number_after_growing_delays(sender):
    sender.desired.want(T0, host())
    first = sender.next(0)
    sender.on_no_answer("away", 0)
    sender.desired.want(T1, host())
    assert sender.next(99) is None
    assert sender.wake_at(0) == 100

    assert sender.next(100) is first
    sender.on_no_answer("away", 100)

    assert sender.wake_at(100) == 300
    assert sender.next(300) is first
    sender.on_answer(OK, 300)
    assert sender.failures == 0
    assert sender.next(300).rpc is Rpc.UPDATE_METADATA


def test_full_request_refused_as_a_whole_is_repeated_under_a_new_number(sender):
    sender.desired.want(T0, host())
    first = sender.next(0)

    assert sender.on_answer(pb.ControlResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR), 0) is None

    again = sender.next(100)
    assert (again.topics, again.full, again.last_chunk, again.seq) == (first.topics, True, True, 2)


def test_incremental_request_refused_as_a_whole_gives_way_to_newer_content(sender):
    drain(sender)
    sender.desired.want(T0, host(1))
    sender.desired.want(T1, host(1))
    sender.next(0)
    sender.desired.want(T0, host(2))

    sender.on_answer(pb.ControlResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR), 0)

    assert sender.next(99) is None
    assert hosts(sender.next(100)) == {T0: host(2), T1: host(1)}


@pytest.mark.parametrize(
    ("code", "stale_controller", "stale_broker"),
    [(ErrorCode.STALE_CONTROLLER_EPOCH, True, False), (ErrorCode.STALE_BROKER_EPOCH, False, True)],
)
def test_stale_epochs_are_the_controllers_business(sender, code, stale_controller, stale_broker):
    sender.next(0)

    trouble = sender.on_answer(pb.ControlResponse(error_code=code), 0)

    assert (trouble.broker, trouble.broker_epoch) == (2, 55)
    assert (trouble.stale_controller, trouble.stale_broker) == (stale_controller, stale_broker)


def test_partitions_that_failed_are_retried_alone(sender):
    sender.desired.want(T0, host())
    sender.desired.want(T1, host())
    sender.next(0)

    assert sender.on_answer(refused(ErrorCode.UNKNOWN_SERVER_ERROR, T1), 0) is None
    assert [each.rpc for each in drain(sender)] == [Rpc.UPDATE_METADATA] * 2

    assert sender.wake_at(0) == 100
    assert hosts(drain(sender, 100)[0]) == {T1: host()}


@pytest.mark.parametrize(
    ("code", "field"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, "fenced"),
        (ErrorCode.KAFKA_STORAGE_ERROR, "failed_storage"),
        (ErrorCode.INCONSISTENT_TOPIC_ID, "unknown"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "unknown"),
    ],
)
def test_answers_about_partitions_that_the_controller_must_look_at(sender, code, field):
    sender.desired.want(T0, host())
    sender.next(0)

    trouble = sender.on_answer(refused(code, T0), 0)

    assert tuple(getattr(trouble, field)) == (T0,)
    retried = sender.desired.next_retry_ms() is not None
    assert retried == (code is not ErrorCode.KAFKA_STORAGE_ERROR)


def test_stopping_what_is_not_there_is_done(sender):
    drain(sender)
    sender.desired.want(T0, StopReplicaRow(ZERO_TOPIC_ID, 1, delete=True))
    sender.next(0)

    assert sender.on_answer(refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, T0), 0) is None

    assert sender.settled


@pytest.mark.parametrize(
    ("code", "deleted", "retried"),
    [
        (ErrorCode.NONE, True, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True, False),
        (ErrorCode.INCONSISTENT_TOPIC_ID, True, False),
        (ErrorCode.KAFKA_STORAGE_ERROR, False, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False, True),
    ],
)
def test_only_confirmed_deletions_are_told(sender, code, deleted, retried):
    # KAFKA-9946: a StopReplica that deletes nothing confirms no deletion.
    drain(sender)
    topic_id = uuid4()
    sender.desired.want(T0, StopReplicaRow(topic_id, -2, delete=True))
    sender.desired.want(T1, StopReplicaRow(topic_id, 1, delete=False))
    sender.next(0)

    sender.on_answer(refused(code, T0), 0)

    told = sender.take_deleted()
    assert (None if told is None else told.partitions) == ({T0: topic_id} if deleted else None)
    assert sender.take_deleted() is None
    assert (sender.desired.next_retry_ms() is not None) == retried


def test_stop_is_sent_although_there_is_always_news(sender, metadata):
    drain(sender)
    sender.desired.want(T0, StopReplicaRow(ZERO_TOPIC_ID, 1, delete=False))
    sent = []
    for number in range(2 * sender_module.STOPS_WAIT):
        metadata.append([b"delta"])
        sender.desired.want(TopicPartition("u", number), host())
        sent.append(sender.next(0).rpc)
        sender.on_answer(OK, 0)

    assert sent.index(Rpc.STOP_REPLICA) == sender_module.STOPS_WAIT
    assert sent.count(Rpc.UPDATE_METADATA) >= sender_module.STOPS_WAIT - 1


def test_metadata_follows_every_leader_and_isr(sender, metadata):
    drain(sender)
    for number in range(3):
        sender.desired.want(TopicPartition("t", number), host())
        metadata.append([b"delta"])
        if number == 0:
            first = sender.next(0)
    sender.on_answer(OK, 0)

    rpcs = [first.rpc, *(each.rpc for each in drain(sender))]

    assert rpcs == [Rpc.LEADER_AND_ISR, Rpc.UPDATE_METADATA, Rpc.LEADER_AND_ISR]


def test_a_snapshot_and_what_has_changed_since_count_only_together(sender, metadata):
    """A broker that is told of the cluster as it was once, of no topics say, would tell its clients."""
    metadata.append([b"delta 1", b"delta 2"])
    parts = []
    for _ in range(2):
        parts.append(sender.next(0))
        sender.on_answer(OK, 0)
    metadata.append([b"delta 3"])
    parts += drain(sender)
    first, second, since, later = (each.metadata for each in parts[1:])

    assert [each.snapshot for each in (first, second, since, later)] == [True, True, True, False]
    assert [each.first_chunk for each in (first, second, since)] == [True, False, False]
    assert [each.last_chunk for each in (first, second, since)] == [False, False, True]
    assert [each.deltas for each in (first, second)] == [(b"one",), (b"two",)]
    assert (since.deltas, later.deltas) == ((b"delta 1", b"delta 2"), (b"delta 3",))
    assert later.first_delta == since.first_delta == 3


def test_a_snapshot_alone_is_whole_where_nothing_has_changed_since(sender):
    _, first, second = (each.metadata for each in drain(sender))
    assert (first.last_chunk, second.last_chunk, second.first_delta) == (False, True, 1)


def test_what_is_forgotten_before_it_was_sent_makes_it_begin_anew(monkeypatch):
    metadata = MetadataLog(retained_bytes=20)
    metadata.set_snapshot([b"old"])
    metadata.append([b"0123456789"])
    sender = Sender(Origin(1, 7, "h:1"), 2, 55, metadata)
    sender.start()
    for _ in range(2):
        sender.next(0)
        sender.on_answer(OK, 0)
    metadata.append([b"0123456789"] * 2)
    assert sender.next(0) is None
    assert sender.snapshot_wanted
    metadata.set_snapshot([b"new"])
    part = sender.next(0).metadata
    assert (part.deltas, part.first_chunk, part.last_chunk, part.first_delta) == ((b"new",), True, True, 4)


def test_broker_that_misses_a_delta_gets_the_snapshot_again(sender, metadata):
    drain(sender)
    metadata.append([b"delta"])
    assert not sender.next(0).metadata.snapshot

    sender.on_answer(pb.ControlResponse(error_code=ErrorCode.INVALID_REQUEST), 0)

    assert sender.next(100).metadata.snapshot


def test_broker_far_behind_asks_for_a_snapshot_when_there_is_none():
    metadata = MetadataLog(retained_bytes=8)
    sender = Sender(Origin(1, 7, "h:1"), 2, 55, metadata)
    sender.start()
    metadata.append([b"12345678", b"12345678"])
    drain(sender)
    assert sender.snapshot_wanted

    metadata.set_snapshot([b"all"])

    assert sender.next(0).metadata.first_delta == 3
    assert not sender.snapshot_wanted


def test_no_snapshot_is_asked_for_while_nothing_may_be_sent():
    metadata = MetadataLog(retained_bytes=8)
    sender = Sender(Origin(1, 7, "h:1"), 2, 55, metadata)
    sender.start()
    metadata.append([b"12345678", b"12345678"])
    drain(sender)
    assert sender.snapshot_wanted

    sender.desired.want(T0, host(5))
    assert sender.next(0) is not None
    sender.on_no_answer("gone", 0)

    assert sender.next(1) is None
    assert not sender.snapshot_wanted


def test_leader_and_isr_message_holds_columns_header_and_leaders(sender):
    brokers = {1: Broker(1, 44, (Endpoint("PLAINTEXT", "h1", 9001),))}
    sender.desired.want(T0, host(5), is_new=True)
    sender.desired.want(T1, host(6, leader=-1))

    message = sender.encode(sender.next(0), brokers, "PLAINTEXT")

    (topic,) = message.topics
    assert (list(topic.partition), list(topic.leader), list(topic.leader_epoch)) == ([0, 1], [1, -1], [5, 6])
    assert (list(topic.isr_len), list(topic.isr), list(topic.replicas)) == ([2, 2], [1, 2, 1, 2], [1, 2, 1, 2])
    assert (list(topic.zk_version), list(topic.controller_epoch), list(topic.is_new)) == ([3, 3], [7, 7], [True, False])
    assert not topic.adding_len and not topic.offline_len
    header = message.header
    assert (header.controller_id, header.controller_epoch, header.broker_epoch, header.seq) == (1, 7, 55, 1)
    assert [(each.broker_id, each.broker_epoch, each.port) for each in message.leaders] == [(1, 44, 9001)]


def test_stop_replica_message_holds_columns(sender):
    drain(sender)
    sender.desired.want(T0, StopReplicaRow(ZERO_TOPIC_ID, -2, delete=True))
    sender.desired.want(T1, StopReplicaRow(ZERO_TOPIC_ID, 4, delete=False))

    message = sender.encode(sender.next(0), {}, "PLAINTEXT")

    (topic,) = message.topics
    assert (list(topic.partition), list(topic.leader_epoch)) == ([0, 1], [-2, 4])
    assert list(topic.delete_partition) == [True, False]
