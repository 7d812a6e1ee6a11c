"""What one event makes the brokers do, and the metadata everybody gets."""

from __future__ import annotations

import pytest

from regency.controller.channel.metadata import MetadataLog
from regency.controller.channel.request_batch import RowPool, encode_snapshot
from regency.model.facts import (
    Broker,
    Endpoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicAssignment,
)
from regency.model.ids import TopicPartition
from regency.protos import control_pb2 as pb

FOO0, FOO1, BAR0 = TopicPartition("foo", 0), TopicPartition("foo", 1), TopicPartition("bar", 0)


@pytest.fixture
def term(machines):
    """Brokers 1 to 3, foo and bar with two partitions on all of them."""
    for number in (1, 2, 3):
        broker = Broker(number, number, (Endpoint("CONTROL", f"h{number}", 1),))
        machines.term.context.add_broker(broker)
        machines.term.channels.add(broker)
    for topic in ("foo", "bar"):
        replicas = ReplicaAssignment((1, 2, 3))
        machines.term.context.put_topic(TopicAssignment(topic, {0: replicas, 1: replicas}))
        for partition in (0, 1):
            state = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 4, (1, 2)), 50)
            machines.term.context.set_leadership(TopicPartition(topic, partition), state)
    return machines.term


def hand_over(term) -> dict:
    """Partitions every broker was newly wanted to host, with whether they are new."""
    term.hand_over()
    wanted = {}
    for broker, sender in term.channels.senders.items():
        while sender.desired.has_hosts:
            for topic in sender.desired.take_hosts(1 << 20):
                wanted.setdefault(broker, []).extend(topic.partitions())
            sender.desired.settle([], [], 0)
    return wanted


def new(term) -> dict[int, list[TopicPartition]]:
    """Partitions every broker is told are new."""
    term.hand_over()
    taken = {broker: sender.desired.take_hosts(1 << 20) for broker, sender in term.channels.senders.items()}
    partitions = {
        broker: [TopicPartition(topic.topic, number) for topic in topics for number in topic.new]
        for broker, topics in taken.items()
    }
    return {broker: those for broker, those in partitions.items() if those}


def deltas(term) -> list[pb.MetadataDelta]:
    return [pb.MetadataDelta.FromString(delta) for delta in term.channels.metadata.read(1)]


def test_every_broker_gets_what_it_shall_host_and_all_get_the_metadata(term):
    term.batch.host((1, 2), FOO0)
    term.batch.host((2,), BAR0)

    assert hand_over(term) == {1: [FOO0], 2: [FOO0, BAR0]}

    (delta,) = deltas(term)
    assert [(topic.topic, list(topic.partition)) for topic in delta.topics] == [("foo", [0]), ("bar", [0])]
    assert not delta.brokers_present


def test_new_stays_new_when_the_same_is_wanted_again(term):
    term.batch.host((2,), FOO0, is_new=True)
    term.batch.host((2,), FOO0)

    assert new(term) == {2: [FOO0]}


def test_dead_brokers_are_told_nothing_and_those_shutting_down_are(term):
    term.context.begin_shutdown(2)
    term.context.remove_broker(3)
    term.batch.host((1, 2, 3), FOO0)

    assert sorted(hand_over(term)) == [1, 2]


def test_live_brokers_in_metadata_include_those_shutting_down(term):
    term.context.begin_shutdown(2)
    term.context.remove_broker(3)
    term.batch.brokers_changed()
    term.hand_over()

    (delta,) = deltas(term)
    assert [(each.broker_id, each.shutting_down) for each in delta.live_brokers] == [(1, False), (2, True)]


def test_partitions_without_leadership_are_left_out(term):
    term.context.put_topic(TopicAssignment("new", {0: ReplicaAssignment((1,))}))
    term.batch.host((1,), TopicPartition("new", 0))

    assert hand_over(term) == {}
    assert not deltas(term)[0].topics


def test_topics_being_deleted_are_advertised_with_leader_minus_2(term):
    term.context.topics_deletion_started.add("foo")
    term.batch.metadata([FOO0, BAR0])
    term.hand_over()

    foo, bar = deltas(term)[0].topics
    assert (list(foo.leader), list(foo.isr), list(bar.leader)) == ([-2], [1, 2], [1])


def test_deletion_in_one_batch_is_not_undone_by_a_stop(term):
    term.batch.stop(2, FOO0, delete=True)
    term.batch.stop(2, FOO0, delete=False)
    term.hand_over()

    (stop,) = term.channels.senders[2].desired.take_stops(1 << 20).values()
    assert (stop.delete, stop.leader_epoch) == (True, 4)


def stops(term) -> dict[int, dict[TopicPartition, bool]]:
    """What every broker was newly wanted to stop, with whether it is to be deleted."""
    term.hand_over()
    taken = {broker: sender.desired.take_stops(1 << 20) for broker, sender in term.channels.senders.items()}
    return {broker: {each: stop.delete for each, stop in those.items()} for broker, those in taken.items() if those}


def test_stops_are_grouped_by_broker_whether_they_delete_or_not(term):
    # ControllerChannelManagerTest.testStopReplicaGroupsByBroker, testMixedDeleteAndNotDeleteStopReplicaRequests
    for broker, partition, delete in ((2, FOO0, True), (2, BAR0, False), (3, FOO1, False)):
        term.batch.stop(broker, partition, delete=delete)

    assert stops(term) == {2: {FOO0: True, BAR0: False}, 3: {FOO1: False}}


def test_stops_go_to_live_brokers_and_those_shutting_down(term):
    # ControllerChannelManagerTest.testStopReplicaSentOnlyToLiveAndShuttingDownBrokers
    term.context.begin_shutdown(2)
    term.context.remove_broker(3)
    for broker in (2, 3):
        term.batch.stop(broker, FOO0, delete=True)

    assert stops(term) == {2: {FOO0: True}}


def test_topic_that_is_only_queued_for_deletion_is_told_of_as_ever(term):
    # ControllerChannelManagerTest.testStopReplicaRequestsWhileTopicQueuedForDeletion
    term.context.topics_to_delete.add("foo")
    term.batch.metadata([FOO0])

    assert stops(term) == {}
    assert list(deltas(term)[0].topics[0].leader) == [1]


@pytest.mark.parametrize(("deleting", "known", "epoch"), [(True, True, -2), (False, True, 4), (False, False, -1)])
def test_stop_carries_the_leader_epoch(term, deleting, known, epoch):
    partition = FOO0 if known else TopicPartition("foo", 7)
    term.context.topics_deletion_started.update({"foo"} if deleting else ())
    term.batch.stop(2, partition, delete=False)
    term.hand_over()

    (stop,) = term.channels.senders[2].desired.take_stops(1 << 20).values()
    assert stop.leader_epoch == epoch


def test_stop_then_host_in_one_batch_hosts(term):
    term.batch.stop(2, FOO0, delete=False)
    term.batch.host((2,), FOO0)

    assert hand_over(term) == {2: [FOO0]}


def test_batch_is_empty_after_it_was_handed_over(term):
    term.batch.host((1,), FOO0)
    hand_over(term)

    assert hand_over(term) == {}
    assert len(deltas(term)) == 1


def online(term, topic: str) -> None:
    term.context.begin_replicas(topic)
    term.batch.host_topic(topic)


def test_a_whole_topic_goes_to_all_whose_replicas_are_online(term):
    term.context.remove_broker(3)
    online(term, "foo")

    assert hand_over(term) == {1: [FOO0, FOO1], 2: [FOO0, FOO1]}

    (delta,) = deltas(term)
    assert [(topic.topic, list(topic.partition)) for topic in delta.topics] == [("foo", [0, 1])]


def test_a_broker_that_stops_a_partition_of_a_whole_topic_hosts_the_others(term):
    online(term, "foo")
    term.batch.stop(2, FOO0, delete=False)
    term.batch.host((1,), FOO0)

    assert hand_over(term) == {1: [FOO0, FOO1], 2: [FOO1], 3: [FOO0, FOO1]}
    assert list(term.channels.senders[2].desired.take_stops(1 << 20)) == [FOO0]


def test_what_joins_is_new_also_where_the_whole_topic_is_told(term):
    term.context.set_assignment(FOO1, ReplicaAssignment((1, 2, 3), (3,)))
    online(term, "foo")

    assert new(term) == {3: [FOO1]}


def test_nobody_hosts_a_whole_topic_that_is_being_deleted(term):
    online(term, "foo")
    term.context.topics_deletion_started.add("foo")

    assert hand_over(term) == {}

    (delta,) = deltas(term)
    assert [list(topic.leader) for topic in delta.topics] == [[-2, -2]]


def test_removed_topics_are_in_the_delta(term):
    topic_id = term.context.topic_id("foo")
    term.context.remove_topic("foo")
    term.batch.topic_removed("foo", topic_id)
    term.hand_over()

    (removed,) = deltas(term)[0].removed_topics
    assert (removed.topic, removed.topic_id) == ("foo", topic_id.bytes)


def test_snapshot_holds_brokers_and_every_partition(term):
    (piece,) = encode_snapshot(term.context, RowPool(term.context))

    snapshot = pb.MetadataDelta.FromString(piece)
    assert [each.broker_id for each in snapshot.live_brokers] == [1, 2, 3]
    assert [(topic.topic, list(topic.partition)) for topic in snapshot.topics] == [("foo", [0, 1]), ("bar", [0, 1])]


def test_first_snapshot_replaces_the_deltas_of_its_event(term):
    term.batch.metadata([FOO0])
    term.batch.snapshot()
    term.hand_over()

    assert term.channels.metadata.last == 0
    assert term.channels.metadata.snapshot().as_of == 0


def test_log_forgets_old_deltas_and_the_snapshot_they_follow():
    log = MetadataLog(retained_bytes=10)
    log.set_snapshot([b"s"])
    log.append([b"12345", b"12345"])
    assert log.snapshot() is not None

    log.append([b"1"])

    assert (log.last, log.read(1), log.read(2)) == (3, None, [b"12345", b"1"])
    assert log.snapshot() is None
    assert log.read(4) == []


def test_log_reads_in_pieces():
    log = MetadataLog()
    log.append([b"12345", b"12345", b"1"])

    assert log.read(1, 3) == [b"12345"]
    assert log.read(2, 6) == [b"12345", b"1"]
