"""A fetcher that was told its offset is out of range: how it finds where to go on."""

from __future__ import annotations

import pytest

from regency.broker_agent.log.errors import RecordsRejected
from regency.kafka.fetching.values import FetchedPartition, ListedOffset, OffsetsPlan, OffsetsReply, Pause
from regency.model.ids import LeaderEpoch, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
BACKOFF_MS = 1_000


def ok(*epochs: int) -> FetchedPartition:
    return FetchedPartition(ErrorCode.NONE, Offset(0), Offset(0), bytes(epochs))


def failed(error: ErrorCode) -> FetchedPartition:
    return FetchedPartition(error)


def list_offsets(logic, now, **results) -> OffsetsPlan:
    plan = logic.next(now)
    assert isinstance(plan, OffsetsPlan), plan
    names = {"a": A, "b": B}
    logic.on_reply(plan, OffsetsReply([(names[key], value) for key, value in results.items()]), now)
    return plan


def listed(offset: int) -> ListedOffset:
    return ListedOffset(ErrorCode.NONE, -1, Offset(offset))


def test_out_of_range_above_the_leaders_end_truncates_to_it(logic, make_replica, answer, asked) -> None:
    replica = make_replica(A, 0, 0, 0)
    logic.add(replica, LeaderEpoch(1))
    answer(logic, 0, a=failed(ErrorCode.OFFSET_OUT_OF_RANGE))
    plan = list_offsets(logic, 0, a=listed(1))
    assert (plan.timestamp, list(plan.partitions)) == (-1, [(A, 1)])
    assert replica.epochs == [0]
    assert asked(logic.next(0)) == {A: (1, 1, 0)}


def test_out_of_range_below_the_leaders_start_begins_anew_there(logic, make_replica, answer, asked) -> None:
    replica = make_replica(A, 0)
    logic.add(replica, LeaderEpoch(1))
    answer(logic, 0, a=failed(ErrorCode.OFFSET_OUT_OF_RANGE))
    assert list_offsets(logic, 0, a=listed(9)).timestamp == -1
    assert list_offsets(logic, 0, a=listed(6)).timestamp == -2
    assert (replica.epochs, replica.log_start_offset) == ([], 6)
    assert asked(logic.next(0)) == {A: (6, 1, -1)}


def test_a_start_with_producers_that_cannot_be_read_is_asked_for_again_later(logic, make_replica, answer) -> None:
    replica = make_replica(A, 0)

    def refuse(offset: Offset, producers: bytes) -> None:
        raise RecordsRejected(ErrorCode.CORRUPT_MESSAGE, f"{producers!r} at {offset}")

    replica.truncate_fully_and_start_at = refuse
    logic.add(replica, LeaderEpoch(1))
    answer(logic, 0, a=failed(ErrorCode.OFFSET_OUT_OF_RANGE))
    list_offsets(logic, 0, a=listed(9))
    list_offsets(logic, 0, a=listed(6))
    assert logic.next(0) == Pause(BACKOFF_MS)
    answer(logic, BACKOFF_MS, a=failed(ErrorCode.OFFSET_OUT_OF_RANGE))
    assert list_offsets(logic, BACKOFF_MS, a=listed(9)).timestamp == -1


def test_out_of_range_that_is_in_range_after_all_waits_before_it_asks_again(logic, make_replica, answer, asked) -> None:
    replica = make_replica(A, 0, 0)
    logic.add(replica, LeaderEpoch(1))
    answer(logic, 0, a=failed(ErrorCode.OFFSET_OUT_OF_RANGE))
    list_offsets(logic, 0, a=listed(5))
    list_offsets(logic, 0, a=listed(1))
    assert replica.epochs == [0, 0]
    assert logic.next(0) == Pause(BACKOFF_MS)
    assert asked(logic.next(BACKOFF_MS)) == {A: (2, 1, 0)}


@pytest.mark.parametrize("start", [0, 2, 4])
def test_a_leader_that_ends_below_our_start_is_copied_from_its_own(logic, make_replica, answer, asked, start) -> None:
    """Begun at the leader's end, a replica would be in sync without one record of the leader's."""
    replica = make_replica(A, 0)
    replica.log_start_offset = 10
    logic.add(replica, LeaderEpoch(1))
    answer(logic, 0, a=failed(ErrorCode.OFFSET_OUT_OF_RANGE))
    list_offsets(logic, 0, a=listed(4))
    list_offsets(logic, 0, a=listed(start))
    assert (replica.epochs, replica.log_start_offset) == ([], start)
    assert asked(logic.next(0)) == {A: (start, 1, -1)}


def test_fencing_while_asking_for_offsets_gives_up_and_other_errors_wait(logic, make_replica, answer, asked) -> None:
    logic.add(make_replica(A, 0), LeaderEpoch(1))
    logic.add(make_replica(B, 0), LeaderEpoch(1))
    out = failed(ErrorCode.OFFSET_OUT_OF_RANGE)
    answer(logic, 0, a=out, b=out)
    list_offsets(
        logic,
        0,
        a=ListedOffset(ErrorCode.FENCED_LEADER_EPOCH),
        b=ListedOffset(ErrorCode.UNKNOWN_LEADER_EPOCH),
    )
    assert list(logic.failed) == [A]
    assert logic.next(0) == Pause(50)
    assert list(asked(logic.next(50))) == [B]


@pytest.mark.parametrize("answered", [{}, {"a": listed(-1)}])
def test_an_offset_that_is_not_told_is_not_asked_for_again_at_once(logic, make_replica, answer, answered) -> None:
    replica = make_replica(A, 0)
    logic.add(replica, LeaderEpoch(1))
    answer(logic, 0, a=failed(ErrorCode.OFFSET_OUT_OF_RANGE))
    list_offsets(logic, 0, **answered)
    assert logic.next(0) == Pause(BACKOFF_MS)
    assert (replica.epochs, replica.log_start_offset) == ([0], 0)


def test_the_others_are_fetched_when_one_has_been_asked_for_offsets(logic, make_replica, answer) -> None:
    logic.add(make_replica(A, 0, 0), LeaderEpoch(1))
    good = make_replica(B)
    logic.add(good, LeaderEpoch(1))
    answer(logic, 0, a=failed(ErrorCode.OFFSET_OUT_OF_RANGE), b=ok(0))
    list_offsets(logic, 0, a=ListedOffset(ErrorCode.UNKNOWN_SERVER_ERROR))
    answer(logic, 0, b=ok(0))
    assert good.epochs == [0, 0]


def test_offsets_of_what_was_not_asked_for_are_not_taken(logic, make_replica, answer) -> None:
    good = make_replica(B, 0, 0)
    logic.add(make_replica(A, 0, 0), LeaderEpoch(1))
    logic.add(good, LeaderEpoch(1))
    answer(logic, 0, a=failed(ErrorCode.OFFSET_OUT_OF_RANGE), b=ok())
    list_offsets(logic, 0, a=listed(1), b=listed(0))
    assert good.epochs == [0, 0]


def test_an_offset_asked_for_in_an_older_epoch_is_not_taken(logic, make_replica, answer, asked) -> None:
    replica = make_replica(A, 0, 0)
    logic.add(replica, LeaderEpoch(1))
    answer(logic, 0, a=failed(ErrorCode.OFFSET_OUT_OF_RANGE))
    plan = logic.next(0)
    assert isinstance(plan, OffsetsPlan)
    logic.remove(A)
    logic.add(replica, LeaderEpoch(2))
    logic.on_reply(plan, OffsetsReply([(A, listed(0))]), 0)
    assert replica.epochs == [0, 0]
    assert asked(logic.next(0)) == {A: (2, 2, 0)}
