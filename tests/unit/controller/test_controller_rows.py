"""What is wanted of many partitions of a topic as one value: in messages, in the slots of a broker, and where from."""

from __future__ import annotations

from uuid import UUID

import pytest

from regency.controller.channel import messages
from regency.controller.channel.messages import LeaderAndIsrRow, Rows, StopReplicaRow, TopicRows, rows_by_topic
from regency.controller.channel.request_batch import RowPool
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

OLD, NEW = TopicId(UUID(int=1)), TopicId(UUID(int=2))
T0, T1, T2 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)


def state(leader: int = 1, epoch: int = 0) -> LeaderIsrAndControllerEpoch:
    return LeaderIsrAndControllerEpoch(LeaderAndIsr(leader, epoch, (leader,), 3), 1)


# In messages


def test_rows_are_columns_once_encoded_for_all_topics_that_share_them():
    assignments = [ReplicaAssignment((1, 2, 3), (3,), (1,)), ReplicaAssignment((2,)), ReplicaAssignment((400, 2))]
    rows = Rows((0, 3, 900), [state(2, 5), state(-1, 70_000), state(400)], assignments, [(1,), (), (2, 400)])
    request = pb.LeaderAndIsrRequest()

    messages.add_rows(request, TopicRows("t", OLD, rows))
    messages.add_rows(request, TopicRows("u", NEW, rows, frozenset({3})))

    t, u = pb.LeaderAndIsrRequest.FromString(request.SerializeToString()).topics
    assert (t.topic, t.topic_id, list(t.is_new)) == ("t", OLD.bytes, [])
    assert (u.topic, u.topic_id, list(u.is_new)) == ("u", NEW.bytes, [False, True, False])
    for told in (t, u):
        assert (list(told.partition), list(told.leader), list(told.leader_epoch)) == (
            [0, 3, 900],
            [2, -1, 400],
            [5, 70_000, 0],
        )
        assert (list(told.zk_version), list(told.controller_epoch)) == ([3, 3, 3], [1, 1, 1])
        assert (list(told.isr_len), list(told.isr)) == ([1, 1, 1], [2, -1, 400])
        assert (list(told.replicas_len), list(told.replicas)) == ([3, 1, 2], [1, 2, 3, 2, 400, 2])
        assert (list(told.adding_len), list(told.adding)) == ([1, 0, 0], [3])
        assert (list(told.removing_len), list(told.removing)) == ([1, 0, 0], [1])
        assert (list(told.offline_len), list(told.offline)) == ([1, 0, 2], [1, 2, 400])


def test_what_is_wanted_of_a_deleted_topic_does_not_lend_its_id_to_the_successors_partitions():
    ids = {T0: OLD, T1: NEW, T2: OLD}

    told = rows_by_topic(
        {each: LeaderAndIsrRow(id_, state(), ReplicaAssignment((1,))) for each, id_ in ids.items()}, ()
    )

    assert [(topic.topic_id, topic.rows.numbers) for topic in told] == [(OLD, (0, 2)), (NEW, (1,))]


def test_a_deletion_goes_out_under_its_own_topic_id():
    stops = messages.stop_partitions(
        {T0: StopReplicaRow(OLD, 3, delete=False), T1: StopReplicaRow(NEW, -2, delete=True)}
    )

    told = {(stop.topic_id, tuple(stop.partition), tuple(stop.delete_partition)) for stop in stops}
    assert told == {(OLD.bytes, (0,), (False,)), (NEW.bytes, (1,), (True,))}


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

    assert pool.of_all(entry).offline == ((), (), (3,))
    assert pool.of_some(entry, [0, 1], offline=True).offline == ()
    assert pool.of_some(entry, [0, 1, 2]).offline == ()


def test_a_failed_directory_is_told_of_its_partitions_alone(context):
    context.mark_offline(2, [T0])
    pool = RowPool(context)

    assert pool.of_all(context.topics["t"]).offline == ((2,), (), (3,))
    assert pool.of_all(context.topics["u"]).offline == ((), (), (3,))


def test_partitions_that_there_are_no_more_are_left_out(context):
    assert RowPool(context).of_some(context.topics["t"], [1, 3, 50]).numbers == (1,)
