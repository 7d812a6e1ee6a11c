"""Slots: what replaces what, what survives until acknowledged, what comes back after a failure."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

from regency.controller.channel.desired_state import DesiredState, merge, retry_delay_ms
from regency.controller.channel.wanted import Host, Stop
from regency.model.facts import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from regency.model.ids import ZERO_TOPIC_ID, TopicId, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BIG = 1 << 20


def host(epoch: int) -> Host:
    state = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, epoch, (1,)), 1)
    return Host(ZERO_TOPIC_ID, state, ReplicaAssignment((1,)))


def stop(epoch: int = 1, *, delete: bool = False) -> Stop:
    return Stop(ZERO_TOPIC_ID, epoch, delete)


@pytest.fixture
def desired() -> DesiredState:
    return DesiredState()


@pytest.mark.parametrize(
    ("current", "newer", "result"),
    [
        (None, host(1), host(1)),
        (host(1), host(2), host(2)),
        (host(1), stop(2), stop(2)),
        (stop(1), host(2), host(2)),
        (stop(1), stop(2, delete=True), stop(2, delete=True)),
        (stop(1, delete=True), stop(2), stop(1, delete=True)),
        (stop(1, delete=True), stop(2, delete=True), stop(2, delete=True)),
    ],
)
def test_newer_content_replaces_unsent_content_but_never_undoes_a_deletion(current, newer, result):
    assert merge(current, newer) == result


def test_newer_state_replaces_an_unsent_one(desired):
    desired.want(T0, host(1))
    desired.want(T0, host(2))

    assert desired.take_hosts(BIG) == {T0: host(2)}
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
    assert desired.is_new(T0)
    desired.release_due(100)
    desired.take_hosts(BIG)

    desired.settle([], [], 100)

    assert not desired.is_new(T0)
    assert desired.unacknowledged == 0


def test_what_was_acknowledged_is_not_new_to_newer_content_that_waits(desired):
    desired.want(T0, host(0), is_new=True)
    desired.take_hosts(BIG)
    desired.want(T0, host(1))

    desired.settle([], [], 0)

    assert desired.take_hosts(BIG) == {T0: host(1)}
    assert not desired.is_new(T0)


@pytest.mark.parametrize("busy", [False, True])
def test_many_states_are_wanted_like_each_alone(desired, busy):
    if busy:
        desired.want(T0, stop(delete=True))
        desired.take_stops(BIG)

    desired.want_hosts({T0: host(1), T1: host(2)}, frozenset({T1}))

    assert desired.is_new(T1) and not desired.is_new(T0)
    assert desired.unacknowledged == 2
    if busy:
        assert desired.take_hosts(BIG) == {T1: host(2)}
    else:
        assert desired.take_hosts(BIG) == {T0: host(1), T1: host(2)}


def test_state_behind_a_deletion_waits_for_its_acknowledgement(desired):
    desired.want(T0, stop(delete=True))
    desired.want(T0, host(5), is_new=True)
    assert not desired.has_hosts
    assert desired.take_stops(BIG) == {T0: stop(delete=True)}
    assert not desired.has_hosts

    desired.settle([], [], 0)

    assert desired.take_hosts(BIG) == {T0: host(5)}
    assert desired.is_new(T0)


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
    assert desired.take_hosts(BIG) == {T0: host(2)}


def test_newer_content_need_not_wait_for_the_delay_of_an_older_one(desired):
    desired.want(T0, host(1))
    desired.take_hosts(BIG)
    desired.settle([T0], [], 0)

    desired.want(T0, host(2))

    assert desired.take_hosts(BIG) == {T0: host(2)}
    desired.settle([], [], 0)
    assert desired.unacknowledged == 0


def test_dropped_state_does_not_come_back_and_is_not_acknowledged(desired):
    desired.want(T0, host(1), is_new=True)
    desired.take_hosts(BIG)

    desired.settle([], [T0], 0)

    assert desired.unacknowledged == 0
    assert desired.is_new(T0)


def test_requests_are_cut_by_size_with_at_least_one_entry(desired):
    for number in range(10):
        desired.want(TopicPartition("t", number), host(1))

    assert list(desired.take_hosts(1)) == [T0]
    desired.settle([], [], 0)
    taken = desired.take_hosts(200)

    assert 1 < len(taken) < 9
    assert desired.unacknowledged == 9


@pytest.mark.parametrize(("attempts", "delay"), [(1, 100), (2, 200), (7, 6400), (8, 10_000), (1000, 10_000)])
def test_delays_double_from_100_ms_to_10_s(attempts, delay):
    assert retry_delay_ms(attempts) == delay


def test_topics_that_come_and_go_leave_nothing_behind(desired):
    for number in range(1_000):
        partition, topic_id = TopicPartition(f"t-{number}", 0), TopicId(UUID(int=number + 1))
        desired.want(partition, msgspec.structs.replace(host(1), topic_id=topic_id), is_new=True)
        desired.take_hosts(BIG)
        desired.forget({partition.topic: topic_id})
        desired.settle([partition], [], 0)
    sizes = {name: len(held) for name, held in vars(desired).items()}
    assert sizes == dict.fromkeys(sizes, 0)
