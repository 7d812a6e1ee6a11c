"""What is wanted of many partitions of a topic as one value: in messages, in the slots of a broker, and where from."""

from __future__ import annotations

from uuid import UUID

import pytest

from regency.controller.channel import messages
from regency.controller.channel.desired_state import DesiredState
from regency.controller.channel.row_pool import RowPool
from regency.controller.channel.wanted import Host, Rows, Stop, TopicRows
from regency.controller.state.context import ControllerContext
from regency.controller.state.states import ReplicaState
from regency.model.facts import (
    Broker,
    Endpoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicAssignment,
)
from regency.model.ids import TopicId, TopicPartition
from regency.protos import control_pb2 as pb

ID = TopicId(UUID(int=7))
T0, T1, T2, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2), TopicPartition("u", 0)
BIG = 1 << 20


def state(leader: int = 1, epoch: int = 0) -> LeaderIsrAndControllerEpoch:
    return LeaderIsrAndControllerEpoch(LeaderAndIsr(leader, epoch, (leader,)), 1)


def rows(topic: str, numbers: tuple[int, ...], epoch: int = 0) -> TopicRows:
    count = len(numbers)
    return TopicRows(topic, ID, Rows(numbers, [state(epoch=epoch)] * count, [ReplicaAssignment((1, 2))] * count))


def host(epoch: int = 0) -> Host:
    return Host(ID, state(epoch=epoch), ReplicaAssignment((1, 2)))


# In messages


@pytest.mark.parametrize("size", [0, 1, 127, 128, 300, 16_383, 16_384, 3_000_000])
def test_an_embedded_message_is_what_protobuf_writes(size):
    delta = pb.MetadataDelta(topics=[pb.PartitionStates(topic="x" * size)])

    encoded = delta.topics[0].SerializeToString()

    assert messages.embedded(pb.MetadataDelta.TOPICS_FIELD_NUMBER, encoded) == delta.SerializeToString()


def test_rows_are_encoded_like_the_same_partitions_one_by_one():
    assignments = [ReplicaAssignment((1, 2, 3), (3,), (1,)), ReplicaAssignment((2,)), ReplicaAssignment((400, 2))]
    told = TopicRows("t", ID, Rows((0, 3, 900), [state(2, 5), state(-1, 70_000), state(400)], assignments))

    (states,) = messages.partition_states(told.hosts())

    assert messages.encode_rows(told) == states.SerializeToString()
    assert messages.encode_rows(told) == states.SerializeToString()  # also from what was kept


def test_rows_tell_who_is_offline_where_that_is_told():
    assignments = [ReplicaAssignment((1, 2)), ReplicaAssignment((2, 3))]
    told = TopicRows("t", ID, Rows((0, 1), [state(2), state(2)], assignments, [(1,), ()]))

    (states,) = messages.partition_states(told.hosts(), offline=lambda partition: (1,) if partition == T0 else ())

    assert messages.encode_rows(told) == states.SerializeToString()


# Where from


@pytest.fixture
def context() -> ControllerContext:
    """Brokers 1 and 2 live, 3 dead; t and u with three partitions that are alike, all led by 1."""
    context = ControllerContext()
    for number in (1, 2):
        context.add_broker(Broker(number, number, (Endpoint("CONTROL", "h", 1),)))
    led = state()
    for topic in ("t", "u"):
        replicas = ReplicaAssignment((1, 2))
        context.put_topic(TopicAssignment(topic, {0: replicas, 1: replicas, 2: ReplicaAssignment((2, 3))}))
        context.set_leaderships({TopicPartition(topic, number): led for number in (0, 1, 2)})
        context.begin_replicas(topic)
    return context


def test_topics_that_are_alike_but_for_their_names_share_what_is_told(context):
    pool = RowPool(context)
    t, u = context.topics["t"], context.topics["u"]

    assert pool.of_all(t) is pool.of_all(u)
    assert pool.of_brokers(t)[1] is pool.of_brokers(u)[1]
    assert pool.of_some(t, [0, 1]) is pool.of_brokers(t)[1]


def test_a_broker_hosts_what_is_led_and_of_which_its_replica_is_online(context):
    context.set_replica_state(T0, 2, ReplicaState.OFFLINE)
    context.topics["t"].leadership[1] = None

    of_brokers = RowPool(context).of_brokers(context.topics["t"])

    assert {broker: own.numbers for broker, own in of_brokers.items()} == {1: (0,), 2: (2,)}


def test_who_is_offline_is_told_to_those_who_ask_for_it(context):
    pool, entry = RowPool(context), context.topics["t"]

    assert pool.of_all(entry).offline == [(), (), (3,)]
    assert pool.of_some(entry, [0, 1], offline=True).offline == []
    assert pool.of_some(entry, [0, 1, 2]).offline == []


def test_partitions_that_there_are_no_more_are_left_out(context):
    assert RowPool(context).of_some(context.topics["t"], [1, 3, 50]).numbers == (1,)


# In the slots of a broker


@pytest.fixture
def desired() -> DesiredState:
    return DesiredState()


def test_whole_topics_are_taken_in_chunks_and_acknowledged_together(desired):
    desired.want_topics([rows("t", (0, 1)), rows("u", (0,))])
    assert (desired.unacknowledged, desired.owed(), desired.has_hosts) == (3, {T0, T1, U0}, True)

    assert [topic.topic for topic in desired.take_topics(100)] == ["t"]
    assert desired.owed() == {T0, T1, U0}
    desired.settle([], [], 0)
    assert desired.owed() == {U0}

    assert [topic.topic for topic in desired.take_topics(BIG)] == ["u"]
    desired.settle([], [], 0)
    assert (desired.unacknowledged, desired.has_hosts) == (0, False)


def test_something_newer_about_one_partition_lets_the_others_of_the_topic_stand(desired):
    desired.want_topics([rows("t", (0, 1, 2)), rows("u", (0,))])

    desired.want(T0, host(5))
    desired.want(T1, Stop(ID, -1, delete=True))

    assert [topic.topic for topic in desired.take_topics(BIG)] == ["u"]
    desired.settle([], [], 0)
    assert desired.take_hosts(BIG) == {T0: host(5), T2: host()}
    desired.settle([], [], 0)
    assert desired.take_stops(BIG) == {T1: Stop(ID, -1, delete=True)}


def test_a_whole_topic_is_newer_than_what_was_wanted_of_its_partitions(desired):
    desired.want(T0, host(1), is_new=True)
    desired.want_topics([rows("t", (0, 1), epoch=2)])
    desired.want_topics([rows("t", (1, 2), epoch=3)])

    assert desired.take_topics(BIG) == []
    assert desired.take_hosts(BIG) == {T0: host(2), T1: host(3), T2: host(3)}
    assert desired.is_new(T0)


def test_a_deletion_comes_before_a_whole_topic_that_is_wanted_after_it(desired):
    desired.want(T0, Stop(ID, -2, delete=True))
    desired.want_topics([rows("t", (0,))])

    assert not desired.has_hosts
    desired.take_stops(BIG)
    desired.settle([], [], 0)
    assert desired.take_hosts(BIG) == {T0: host()}


def test_of_a_whole_topic_only_what_failed_is_sent_again(desired):
    desired.want_topics([rows("t", (0, 1, 2))])
    desired.take_topics(BIG)

    desired.settle([T1], [T2], 1_000)

    assert desired.owed() == {T1}
    assert desired.failing_since_ms() == 1_000
    desired.release_due(1_100)
    assert desired.take_hosts(BIG) == {T1: host()}


@pytest.mark.parametrize("whole", [True, False])
def test_what_failed_does_not_replace_what_is_wanted_since(desired, whole):
    desired.want_topics([rows("t", (0, 1))])
    desired.take_topics(BIG)
    if whole:
        desired.want_topics([rows("t", (0,), epoch=2)])
    else:
        desired.want(T0, host(2))

    desired.settle([T0, T1], [], 0)
    desired.release_due(100)

    told = {each: host for topic in desired.take_topics(BIG) for each, host in topic.hosts().items()}
    desired.settle([], [], 200)
    assert {**told, **desired.take_hosts(BIG)} == {T0: host(2), T1: host()}


def test_whole_topics_that_are_gone_are_not_hosted(desired):
    desired.want_topics([rows("t", (0,)), rows("u", (0,))])

    desired.forget({"t": ID})

    assert [topic.topic for topic in desired.take_topics(BIG)] == ["u"]
