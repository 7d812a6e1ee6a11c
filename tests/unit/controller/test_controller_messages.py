"""Messages about topics that share a name: a topic that was deleted, and its successor."""

from __future__ import annotations

from uuid import UUID

from regency.controller.channel import messages
from regency.controller.channel.desired_state import DesiredState
from regency.controller.channel.wanted import Host, Stop
from regency.model.facts import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from regency.model.ids import TopicId, TopicPartition

OLD, NEW = TopicId(UUID(int=1)), TopicId(UUID(int=2))
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
BIG = 1 << 20


def host(topic_id: TopicId, epoch: int = 0) -> Host:
    state = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, epoch, (1,)), 1)
    return Host(topic_id, state, ReplicaAssignment((1,)))


def test_what_is_wanted_of_a_deleted_topic_does_not_lend_its_id_to_the_successors_partitions():
    states = messages.partition_states({T0: host(OLD, 5), T1: host(NEW), T2: host(OLD, 7)})

    told = {(state.topic_id, tuple(state.partition), tuple(state.leader_epoch)) for state in states}
    assert told == {(OLD.bytes, (0, 2), (5, 7)), (NEW.bytes, (1,), (0,))}


def test_a_deletion_goes_out_under_its_own_topic_id():
    stops = messages.stop_partitions({T0: Stop(OLD, 3, delete=False), T1: Stop(NEW, -2, delete=True)})

    told = {(stop.topic_id, tuple(stop.partition), tuple(stop.delete_partition)) for stop in stops}
    assert told == {(OLD.bytes, (0,), (False,)), (NEW.bytes, (1,), (True,))}


def test_nothing_is_to_be_hosted_any_more_of_a_topic_that_is_gone():
    desired = DesiredState()
    desired.want(T0, host(OLD))
    desired.want(T1, host(NEW), is_new=True)

    desired.forget({"t": OLD})

    assert desired.take_hosts(BIG) == {T1: host(NEW)}
    assert desired.is_new(T1)


def test_what_is_in_flight_or_waits_for_its_retry_is_not_sent_again_once_the_topic_is_gone():
    desired = DesiredState()
    desired.want(T0, host(OLD))
    desired.want(T1, host(OLD))
    desired.take_hosts(BIG)
    desired.settle([T0], [], 0)
    desired.release_due(100)
    desired.take_hosts(BIG)

    desired.forget({"t": OLD})
    desired.settle([T0], [], 100)
    desired.release_due(100_000)

    assert not desired.has_hosts
    assert desired.unacknowledged == 0


def test_a_deletion_of_a_topic_that_is_gone_is_still_to_be_done():
    desired = DesiredState()
    desired.want(T0, Stop(OLD, -2, delete=True))

    desired.forget({"t": OLD})

    assert desired.take_stops(BIG) == {T0: Stop(OLD, -2, delete=True)}
