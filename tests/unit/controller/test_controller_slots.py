"""Slots: what replaces what, what survives until acknowledged, what comes back after a failure."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

import pytest

from regency.controller.channel.messages import LeaderAndIsrRow, Rows, StopReplicaRow, TopicRows
from regency.controller.channel.slots import DesiredState, retry_delay_ms
from regency.model.facts import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from regency.model.ids import ZERO_TOPIC_ID, TopicId, TopicPartition

T0, T1, T2, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2), TopicPartition("u", 0)
OLD, NEW = TopicId(UUID(int=1)), TopicId(UUID(int=2))
BIG = 1 << 20


def state(epoch: int = 0) -> LeaderIsrAndControllerEpoch:
    return LeaderIsrAndControllerEpoch(LeaderAndIsr(1, epoch, (1,)), 1)


def host(epoch: int = 0, topic_id: TopicId = ZERO_TOPIC_ID) -> LeaderAndIsrRow:
    return LeaderAndIsrRow(topic_id, state(epoch), ReplicaAssignment((1,)))


def stop(epoch: int = 1, *, delete: bool = False, topic_id: TopicId = ZERO_TOPIC_ID) -> StopReplicaRow:
    return StopReplicaRow(topic_id, epoch, delete)


def rows(topic: str, numbers: tuple[int, ...], epoch: int = 0, new: Collection[int] = ()) -> TopicRows:
    count = len(numbers)
    told = Rows(numbers, [state(epoch)] * count, [ReplicaAssignment((1,))] * count)
    return TopicRows(topic, ZERO_TOPIC_ID, told, frozenset(new))


def hosts(topics: list[TopicRows]) -> dict[TopicPartition, LeaderAndIsrRow]:
    return dict(each for topic in topics for each in topic.each())


def new(topics: list[TopicRows]) -> set[TopicPartition]:
    return {TopicPartition(topic.topic, number) for topic in topics for number in topic.new}


@pytest.fixture
def desired() -> DesiredState:
    return DesiredState()


def test_newer_state_replaces_an_unsent_one(desired):
    desired.want(T0, host(1))
    desired.want(T0, host(2))

    assert hosts(desired.take_hosts(BIG)) == {T0: host(2)}
    assert not desired.has_hosts


def test_stop_replaces_an_unsent_state_and_the_other_way_round(desired):
    desired.want(T0, host(1))
    desired.want(T0, stop(1))
    assert (desired.has_hosts, desired.has_stops) == (False, True)

    desired.want(T0, host(2))

    assert (desired.has_hosts, desired.has_stops) == (True, False)


def test_is_new_survives_replacement_until_it_is_acknowledged(desired):
    desired.want(T0, host(0), is_new=True)
    desired.want(T0, host(1))
    desired.take_hosts(BIG)
    desired.settle([T0], [], 0)
    desired.release_due(100)
    assert new(desired.take_hosts(BIG)) == {T0}

    desired.settle([], [], 100)

    assert desired.unacknowledged == 0
    desired.want(T0, host(2))
    assert new(desired.take_hosts(BIG)) == set()


def test_what_was_acknowledged_is_not_new_to_newer_content_that_waits(desired):
    desired.want(T0, host(0), is_new=True)
    desired.take_hosts(BIG)
    desired.want(T0, host(1))

    desired.settle([], [], 0)

    taken = desired.take_hosts(BIG)
    assert (hosts(taken), new(taken)) == ({T0: host(1)}, set())


def test_newer_stop_never_undoes_a_deletion(desired):
    desired.want(T0, stop(1, delete=True))
    desired.want(T0, stop(2))
    assert desired.take_stops(BIG) == {T0: stop(1, delete=True)}
    desired.settle([T0], [], 0)

    desired.want(T0, stop(3))
    assert desired.take_stops(BIG) == {T0: stop(1, delete=True)}
    desired.want(T0, stop(4, delete=True))
    desired.settle([], [], 0)

    assert desired.take_stops(BIG) == {T0: stop(4, delete=True)}


def test_what_is_new_behind_a_deletion_is_still_new_after_an_older_request_was_acknowledged(desired):
    desired.want(T0, host(1), is_new=True)
    desired.take_hosts(BIG)
    desired.want(T0, stop(delete=True))
    desired.want(T0, host(2), is_new=True)
    desired.settle([], [], 0)

    desired.take_stops(BIG)
    desired.settle([], [], 0)

    assert new(desired.take_hosts(BIG)) == {T0}


def test_state_behind_a_deletion_waits_for_its_acknowledgement(desired):
    desired.want(T0, stop(delete=True))
    desired.want(T0, host(5), is_new=True)
    assert not desired.has_hosts
    assert desired.take_stops(BIG) == {T0: stop(delete=True)}
    assert not desired.has_hosts

    desired.settle([], [], 0)

    taken = desired.take_hosts(BIG)
    assert (hosts(taken), new(taken)) == ({T0: host(5)}, {T0})


def test_state_behind_a_deletion_waits_also_while_the_deletion_fails(desired):
    desired.want(T0, stop(delete=True))
    desired.take_stops(BIG)
    desired.want(T0, host(5))
    desired.settle([T0], [], 0)
    assert not desired.has_hosts

    desired.release_due(100)

    assert desired.take_stops(BIG) == {T0: stop(delete=True)}
    desired.settle([], [], 100)
    assert desired.has_hosts


def test_stop_behind_a_deletion_in_flight_is_not_needed(desired):
    desired.want(T0, stop(delete=True))
    desired.take_stops(BIG)
    desired.want(T0, host(5))
    desired.want(T0, stop(6))

    desired.settle([], [], 0)

    assert desired.unacknowledged == 0


def test_what_failed_comes_back_after_growing_delays(desired):
    desired.want(T0, host(1))
    times = []
    now = 0
    for _ in range(3):
        desired.take_hosts(BIG)
        desired.settle([T0], [], now)
        now = desired.next_retry_ms()
        times.append(now)
        desired.release_due(now - 1)
        assert not desired.has_hosts
        desired.release_due(now)
        assert desired.has_hosts
    assert times == [100, 300, 700]


def test_what_failed_does_not_come_back_over_something_newer(desired):
    desired.want(T0, host(1))
    desired.take_hosts(BIG)
    desired.want(T0, host(2))

    desired.settle([T0], [], 0)

    assert desired.next_retry_ms() is None
    assert hosts(desired.take_hosts(BIG)) == {T0: host(2)}


def test_newer_content_need_not_wait_for_the_delay_of_an_older_one(desired):
    desired.want(T0, host(1))
    desired.take_hosts(BIG)
    desired.settle([T0], [], 0)

    desired.want(T0, host(2))

    assert hosts(desired.take_hosts(BIG)) == {T0: host(2)}
    desired.settle([], [], 0)
    assert desired.unacknowledged == 0


def test_dropped_state_does_not_come_back_and_is_not_acknowledged(desired):
    desired.want(T0, host(1), is_new=True)
    desired.take_hosts(BIG)

    desired.settle([], [T0], 0)

    assert desired.unacknowledged == 0
    desired.want(T0, host(2))
    assert new(desired.take_hosts(BIG)) == {T0}


def test_requests_are_cut_by_size_with_at_least_one_entry(desired):
    for number in range(10):
        desired.want(TopicPartition("t", number), host(1))

    assert list(hosts(desired.take_hosts(1))) == [T0]
    desired.settle([], [], 0)
    taken = hosts(desired.take_hosts(200))

    assert 1 < len(taken) < 9
    assert desired.unacknowledged == 9


@pytest.mark.parametrize(("attempts", "delay"), [(1, 100), (2, 200), (7, 6400), (8, 10_000), (1000, 10_000)])
def test_delays_double_from_100_ms_to_10_s(attempts, delay):
    assert retry_delay_ms(attempts) == delay


def test_topics_that_come_and_go_leave_nothing_behind(desired):
    for number in range(1_000):
        partition, topic_id = TopicPartition(f"t-{number}", 0), TopicId(UUID(int=number + 1))
        desired.want(partition, host(1, topic_id), is_new=True)
        desired.take_hosts(BIG)
        desired.forget({partition.topic: topic_id})
        desired.settle([partition], [], 0)
    assert not any(vars(desired).pop("_by_state"))
    assert not any(vars(desired).values())


# Topics as a whole


def test_whole_topics_are_taken_in_chunks_and_acknowledged_together(desired):
    desired.want_topics([rows("t", (0, 1)), rows("u", (0,))])
    assert (desired.unacknowledged, desired.owed(), desired.has_hosts) == (3, {T0, T1, U0}, True)

    assert [topic.topic for topic in desired.take_hosts(100)] == ["t"]
    assert desired.owed() == {T0, T1, U0}
    desired.settle([], [], 0)
    assert desired.owed() == {U0}

    assert [topic.topic for topic in desired.take_hosts(BIG)] == ["u"]
    desired.settle([], [], 0)
    assert (desired.unacknowledged, desired.has_hosts) == (0, False)


def test_something_newer_about_one_partition_lets_the_others_of_the_topic_stand(desired):
    desired.want_topics([rows("t", (0, 1, 2)), rows("u", (0,))])

    desired.want(T0, host(5))
    desired.want(T1, stop(-1, delete=True))

    assert [topic.topic for topic in desired.take_hosts(BIG)] == ["u"]
    desired.settle([], [], 0)
    assert hosts(desired.take_hosts(BIG)) == {T0: host(5), T2: host()}
    desired.settle([], [], 0)
    assert desired.take_stops(BIG) == {T1: stop(-1, delete=True)}


def test_a_whole_topic_is_newer_than_what_was_wanted_of_its_partitions(desired):
    desired.want(T0, host(1), is_new=True)
    desired.want_topics([rows("t", (0, 1), epoch=2)])
    desired.want_topics([rows("t", (1, 2), epoch=3)])

    taken = desired.take_hosts(BIG)
    assert (hosts(taken), new(taken)) == ({T0: host(2), T1: host(3), T2: host(3)}, {T0})


def test_a_deletion_comes_before_a_whole_topic_that_is_wanted_after_it(desired):
    desired.want(T0, stop(-2, delete=True))
    desired.want_topics([rows("t", (0,))])

    assert not desired.has_hosts
    desired.take_stops(BIG)
    desired.settle([], [], 0)
    assert hosts(desired.take_hosts(BIG)) == {T0: host()}


def test_of_a_whole_topic_only_what_failed_is_sent_again(desired):
    desired.want_topics([rows("t", (0, 1, 2))])
    desired.take_hosts(BIG)

    desired.settle([T1], [T2], 1_000)

    assert desired.owed() == {T1}
    assert desired.failing_since_ms() == 1_000
    desired.release_due(1_100)
    assert hosts(desired.take_hosts(BIG)) == {T1: host()}


@pytest.mark.parametrize("whole", [True, False])
def test_what_failed_does_not_replace_what_is_wanted_since(desired, whole):
    desired.want_topics([rows("t", (0, 1))])
    desired.take_hosts(BIG)
    if whole:
        desired.want_topics([rows("t", (0,), epoch=2)])
    else:
        desired.want(T0, host(2))

    desired.settle([T0, T1], [], 0)
    desired.release_due(100)

    told = hosts(desired.take_hosts(BIG))
    desired.settle([], [], 200)
    assert {**told, **hosts(desired.take_hosts(BIG))} == {T0: host(2), T1: host()}


def test_whole_topics_that_are_gone_are_not_hosted(desired):
    desired.want_topics([rows("t", (0,)), rows("u", (0,))])

    desired.forget({"t": ZERO_TOPIC_ID})

    assert [topic.topic for topic in desired.take_hosts(BIG)] == ["u"]


# Topics that share a name


def test_nothing_is_to_be_hosted_any_more_of_a_topic_that_is_gone():
    desired = DesiredState()
    desired.want(T0, host(topic_id=OLD))
    desired.want(T1, host(topic_id=NEW), is_new=True)

    desired.forget({"t": OLD})

    taken = desired.take_hosts(BIG)
    assert (hosts(taken), new(taken)) == ({T1: host(topic_id=NEW)}, {T1})


def test_what_is_in_flight_or_waits_for_its_retry_is_not_sent_again_once_the_topic_is_gone():
    desired = DesiredState()
    desired.want(T0, host(topic_id=OLD))
    desired.want(T1, host(topic_id=OLD))
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
    desired.want(T0, stop(-2, delete=True, topic_id=OLD))

    desired.forget({"t": OLD})

    assert desired.take_stops(BIG) == {T0: stop(-2, delete=True, topic_id=OLD)}
