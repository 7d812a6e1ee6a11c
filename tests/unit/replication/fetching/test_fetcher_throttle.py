"""A throttled fetcher: partitions that are behind are left out while the rate is exceeded, all others are not."""

from __future__ import annotations

import pytest

from regency.broker_agent.replication.fetcher.fetcher_logic import FetcherLogic
from regency.broker_agent.replication.fetcher.throttle import ByteRate, ReplicationThrottle
from regency.kafka.fetching.values import FetchedPartition, FetcherLimits, FetchPlan, FetchReply, Pause
from regency.model.clock import ManualClock
from regency.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.log_config import NEVER

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
EPOCH = LeaderEpoch(9)


class Throttled:
    """A fetcher of broker 4 whose rate and list of throttled replicas can be changed. A record is a byte."""

    def __init__(self) -> None:
        self.limit = 1
        self.listed: tuple[str, ...] = ("*",)
        throttle = ReplicationThrottle(BrokerId(4), ByteRate(11, 1_000), lambda: self.limit, lambda _: self.listed)
        limits = FetcherLimits(10_000, 1_000, 1, 500, 1_000)
        self.logic = FetcherLogic(
            "fetcher", limits, lambda: BrokerEpoch(77), ManualClock(), lambda _, then: then(), None, throttle
        )


@pytest.fixture
def throttled() -> Throttled:
    return Throttled()


def records(count: int, *, high_watermark: int) -> FetchedPartition:
    return FetchedPartition(ErrorCode.NONE, Offset(high_watermark), Offset(0), bytes([9] * count))


def nothing(high_watermark: int) -> FetchedPartition:
    return FetchedPartition(ErrorCode.NONE, Offset(high_watermark), Offset(0))


def test_a_partition_that_is_behind_is_asked_for_again_when_the_rate_allows(throttled, make_replica, answer, asked):
    logic = throttled.logic
    logic.add(make_replica(A), EPOCH)
    answer(logic, 0, a=records(5, high_watermark=100))
    assert logic.next(0) == Pause(5_000)  # 5 bytes at 1 byte/s
    assert logic.next(4_999) == Pause(1)
    assert asked(logic.next(5_000)) == {A: (5, 9, 9)}


def test_one_that_is_in_sync_is_never_left_out(throttled, make_replica, answer, asked):
    logic = throttled.logic
    logic.add(make_replica(A), EPOCH)
    logic.add(make_replica(B, 9), EPOCH)
    answer(logic, 0, a=records(50, high_watermark=100), b=records(3, high_watermark=4))
    plan = logic.next(0)
    assert asked(plan) == {B: (4, 9, 9)}
    assert [name for name, _ in plan.forgotten] == [A]


def test_what_in_sync_replicas_fetch_counts(throttled, make_replica, answer, asked):
    logic = throttled.logic
    logic.add(make_replica(A), EPOCH)
    logic.add(make_replica(B), EPOCH)
    answer(logic, 0, a=nothing(100), b=records(5, high_watermark=5))
    assert asked(logic.next(0)) == {B: (5, 9, 9)}


def test_nothing_is_left_out_before_it_is_known_to_be_behind(throttled, make_replica, answer, asked):
    logic = throttled.logic
    logic.add(make_replica(A), EPOCH)
    answer(logic, 0, a=records(50, high_watermark=100))
    logic.add(make_replica(B), EPOCH)
    assert asked(logic.next(0)) == {B: (0, 9, -1)}


def test_one_that_was_asked_for_in_vain_is_left_out_too(throttled, make_replica, answer, asked):
    """Else the leader sends it in the session, without having been asked again."""
    logic = throttled.logic
    logic.add(make_replica(A), EPOCH)
    logic.add(make_replica(B), EPOCH)
    answer(logic, 0, b=nothing(100))
    answer(logic, 0, a=records(5, high_watermark=5))
    plan = logic.next(0)
    assert asked(plan) == {A: (5, 9, 9)}
    assert [name for name, _ in plan.forgotten] == [B]


def test_only_replicas_on_the_list_are_left_out(throttled, make_replica, answer, asked):
    throttled.listed = ("0:4", "1:5")
    logic = throttled.logic
    logic.add(make_replica(A), EPOCH)
    logic.add(make_replica(B), EPOCH)
    answer(logic, 0, a=records(5, high_watermark=100), b=records(6, high_watermark=100))
    assert asked(logic.next(0)) == {B: (6, 9, 9)}


@pytest.mark.parametrize(("limit", "listed"), [(NEVER, ("*",)), (1, ()), (10, ("*",))])
def test_changed_settings_end_the_wait(throttled, make_replica, answer, asked, limit, listed):
    logic = throttled.logic
    logic.add(make_replica(A), EPOCH)
    answer(logic, 0, a=records(5, high_watermark=100))
    assert isinstance(logic.next(0), Pause)
    throttled.limit, throttled.listed = limit, listed
    logic.release_throttled()
    assert asked(logic.next(10)) == {A: (5, 9, 9)}


def test_settings_that_still_hold_it_back_do_not_end_the_wait(throttled, make_replica, answer):
    logic = throttled.logic
    logic.add(make_replica(A), EPOCH)
    answer(logic, 0, a=records(5, high_watermark=100))
    logic.next(0)
    throttled.limit = 2
    logic.release_throttled()
    assert logic.next(10) == Pause(2_490)


def test_a_clock_that_goes_back_does_not_keep_it_waiting(throttled, make_replica, answer, asked):
    logic = throttled.logic
    logic.add(make_replica(A), EPOCH)
    answer(logic, 10_000, a=records(500, high_watermark=1_000))
    assert asked(logic.next(9_000)) == {A: (500, 9, 9)}


def test_a_new_leader_epoch_and_removal_forget_that_it_waits(throttled, make_replica, answer, asked):
    logic = throttled.logic
    replica = make_replica(A)
    logic.add(replica, EPOCH)
    answer(logic, 0, a=records(5, high_watermark=100))
    logic.next(0)
    logic.add(replica, LeaderEpoch(10))
    assert asked(logic.next(0)) == {A: (5, 10, 9)}
    logic.remove(A)
    logic.release_throttled()
    assert isinstance(logic.next(0), Pause)


def test_the_rate_is_kept_over_a_minute(throttled, make_replica):
    """A leader that always fills a request of 1000 bytes, and a rate of 400 bytes per second."""
    throttled.limit = 400
    logic, replica = throttled.logic, make_replica(A)
    logic.add(replica, EPOCH)
    now = 0
    while now < 60_000:
        command = logic.next(now)
        if isinstance(command, FetchPlan):
            reply = FetchReply(ErrorCode.NONE, 5, [(A, records(1_000, high_watermark=10**6))])
            logic.on_reply(command, reply, now)
            now += 1
        else:
            assert command.milliseconds is not None
            now += command.milliseconds
    assert 0.8 <= replica.log_end_offset / (400 * 60) <= 1.2
