"""A fetcher's decisions, reply by reply, over a follower in memory."""

from __future__ import annotations

from uuid import UUID

import pytest

from regency.broker_agent.log.errors import LogBusy, LogStorageError, RecordsRejected
from regency.broker_agent.replication.fetcher.follow_state import truncation_point
from regency.kafka.fetching.values import EpochEndOffset, FetchedPartition, FetchReply, Pause
from regency.model.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ID = TopicId(UUID(int=3))
BACKOFF_MS = 1_000


def ok(*epochs: int, high_watermark: int = 0, log_start: int = 0) -> FetchedPartition:
    return FetchedPartition(ErrorCode.NONE, Offset(high_watermark), Offset(log_start), bytes(epochs))


def diverging(epoch: int, end: int) -> FetchedPartition:
    return FetchedPartition(
        ErrorCode.NONE, Offset(99), Offset(50), diverging=EpochEndOffset(LeaderEpoch(epoch), Offset(end))
    )


def failed(error: ErrorCode) -> FetchedPartition:
    return FetchedPartition(error)


def test_the_first_fetch_begins_at_the_end_with_the_last_epoch_and_our_broker_epoch(logic, make_replica, asked) -> None:
    logic.add(make_replica(A, 1, 1, 3), LeaderEpoch(4))
    plan = logic.next(0)
    assert (plan.replica_epoch, plan.session_id, plan.session_epoch) == (77, 0, 0)
    assert asked(plan) == {A: (3, 4, 3)}
    assert plan.names == {(ID, 0): A}


def test_records_are_appended_and_the_next_fetch_goes_on_behind_them(logic, make_replica, answer, asked) -> None:
    replica = make_replica(A)
    logic.add(replica, LeaderEpoch(0))
    answer(logic, 0, a=ok(0, 0, high_watermark=9))
    assert (replica.epochs, replica.high_watermark) == ([0, 0], 2)
    plan = logic.next(0)
    assert (plan.session_id, plan.session_epoch, asked(plan)) == (5, 1, {A: (2, 0, 0)})


def test_an_unchanged_partition_is_not_named_again_and_its_news_are_still_taken(logic, make_replica, answer) -> None:
    replica = make_replica(A, 0)
    logic.add(replica, LeaderEpoch(0))
    answer(logic, 0, a=ok())
    plan = answer(logic, 0)
    assert plan.partitions == []
    answer(logic, 0, a=ok(high_watermark=1))
    assert replica.high_watermark == 1


def test_the_last_fetched_epoch_outlives_empty_answers(logic, make_replica, answer, asked) -> None:
    logic.add(make_replica(A, 2), LeaderEpoch(3))
    answer(logic, 0, session=0, a=ok())
    assert asked(logic.next(0)) == {A: (1, 3, 2)}


def test_nothing_to_follow_is_a_pause_without_end(logic, make_replica) -> None:
    assert logic.next(0) == Pause(None)
    logic.add(make_replica(A), LeaderEpoch(0))
    logic.remove(A)
    assert logic.next(0) == Pause(None)


@pytest.mark.parametrize(
    ("leader", "own", "expected"),
    [
        pytest.param((1, 2), (1, 1, 1, 1), 2, id="C: the follower has more of the same epoch"),
        pytest.param((1, 2), (1, 1, 2, 2), 2, id="D: the follower has an epoch the leader never had"),
        pytest.param((1, 2), (1, 1, 2), 2, id="E: both went on differently"),
        pytest.param((1, 2), (1, 2), 1, id="F: the follower's part of the common epoch is shorter"),
        pytest.param((5, 156), (4, 4, 5), 3, id="the leader's end is beyond ours"),
        pytest.param((4, 2), (3, 3, 3, 5), 3, id="the leader's epoch is unknown here: end of the one below it"),
        pytest.param((0, 1), (2, 2), 0, id="older than anything known here"),
        pytest.param((7, 1), (2, 2), 1, id="newer than anything known here"),
        pytest.param((-1, 1), (2, 2), 1, id="an end without epoch"),
        pytest.param((-1, -1), (2, 2), None, id="the leader cannot say"),
        pytest.param((3, 5), (), 0, id="an empty log"),
    ],
)
def test_where_a_replica_cuts_its_log(make_replica, leader, own, expected) -> None:
    assert (
        truncation_point(make_replica(A, *own), EpochEndOffset(LeaderEpoch(leader[0]), Offset(leader[1]))) == expected
    )


def test_a_diverging_answer_only_truncates(logic, make_replica, answer, asked) -> None:
    replica = make_replica(A, 1, 1, 2, 2)
    replica.high_watermark = 1
    logic.add(replica, LeaderEpoch(3))
    answer(logic, 0, a=diverging(1, 2))
    assert (replica.epochs, replica.high_watermark, replica.log_start_offset) == ([1, 1], 1, 0)
    assert asked(logic.next(0)) == {A: (2, 3, 1)}


def test_a_diverging_answer_that_changes_nothing_is_not_asked_for_again_at_once(logic, make_replica, answer) -> None:
    logic.add(make_replica(A, 1, 1), LeaderEpoch(3))
    answer(logic, 0, a=diverging(1, 2))
    assert logic.next(0) == Pause(BACKOFF_MS)


@pytest.mark.parametrize(
    "error", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID]
)
def test_a_leader_that_is_not_ready_is_asked_again_soon_and_then_less_often(logic, make_replica, answer, error) -> None:
    logic.add(make_replica(A), LeaderEpoch(1))
    now, pauses = 0, []
    for _ in range(7):
        answer(logic, now, a=failed(error))
        pause = logic.next(now)
        assert isinstance(pause, Pause)
        pauses.append(pause.milliseconds)
        now += pause.milliseconds
    assert pauses == [50, 100, 200, 400, 800, 1_000, 1_000]
    answer(logic, now, a=ok(1))
    answer(logic, now, a=failed(error))
    assert logic.next(now) == Pause(50)


def test_any_other_error_waits_for_the_backoff_and_is_complained_about_once(
    logic, make_replica, answer, caplog
) -> None:
    logic.add(make_replica(A), LeaderEpoch(1))
    for now in (0, 1_000, 2_000):
        answer(logic, now, a=failed(ErrorCode.KAFKA_STORAGE_ERROR))
        assert logic.next(now) == Pause(BACKOFF_MS)
    assert caplog.text.count("KAFKA_STORAGE_ERROR") == 1


def test_a_fenced_partition_is_given_up_until_it_is_added_again(logic, make_replica, answer, asked) -> None:
    replica = make_replica(A)
    logic.add(replica, LeaderEpoch(0))
    logic.add(make_replica(B), LeaderEpoch(0))
    answer(logic, 0, a=failed(ErrorCode.FENCED_LEADER_EPOCH), b=ok(0))
    assert list(logic.failed) == [A]
    assert A not in logic
    plan = logic.next(0)
    assert (list(asked(plan)), [name for name, _ in plan.forgotten]) == ([B], [A])
    logic.on_reply(plan, FetchReply(ErrorCode.NONE, 5, []), 0)
    logic.add(replica, LeaderEpoch(1))
    assert logic.failed == {}
    assert asked(logic.next(0)) == {A: (0, 1, -1)}


def test_corrupt_records_are_asked_for_again_after_the_backoff(logic, make_replica, answer) -> None:
    replica = make_replica(A)
    replica.fails = RecordsRejected(ErrorCode.CORRUPT_MESSAGE, "the checksum does not fit")
    logic.add(replica, LeaderEpoch(0))
    answer(logic, 0, a=ok(0))
    assert logic.next(0) == Pause(BACKOFF_MS)
    replica.fails = None
    answer(logic, BACKOFF_MS, a=ok(0))
    assert replica.epochs == [0]


@pytest.mark.parametrize("failure", [LogStorageError(None, "gone"), ZeroDivisionError("a defect")])
@pytest.mark.parametrize("result", [ok(0), diverging(1, 1)])
def test_a_partition_that_fails_here_does_not_stop_the_others(
    logic, make_replica, answer, asked, failure, result
) -> None:
    bad, good = make_replica(A, 1, 2), make_replica(B)
    bad.fails = failure
    logic.add(bad, LeaderEpoch(2))
    logic.add(good, LeaderEpoch(0))
    answer(logic, 0, a=result, b=ok(0))
    assert good.epochs == [0]
    assert list(logic.failed) == [A]
    assert list(asked(logic.next(0))) == [B]


@pytest.mark.parametrize("result", [ok(0), diverging(1, 1)])
def test_what_lacks_a_descriptor_here_is_asked_for_again_from_where_the_log_ends_by_then(
    logic, make_replica, answer, asked, result, caplog
) -> None:
    replica = make_replica(A, 1, 2)
    replica.fails = LogBusy(None, "too many open files")
    logic.add(replica, LeaderEpoch(2))
    for now in (0, BACKOFF_MS):
        answer(logic, now, a=result)
        assert logic.next(now) == Pause(BACKOFF_MS)
        replica.epochs.append(2)  # a part was done
    assert (caplog.text.count("too many open files"), logic.failed) == (1, {})
    replica.epochs.pop()
    assert asked(logic.next(2 * BACKOFF_MS)) == {A: (3, 2, 2)}


def test_what_arrives_for_a_partition_that_was_removed_or_added_anew_is_ignored(logic, make_replica, asked) -> None:
    gone, renewed = make_replica(A), make_replica(B)
    logic.add(gone, LeaderEpoch(0))
    logic.add(renewed, LeaderEpoch(0))
    plan = logic.next(0)
    logic.remove(A)
    logic.remove(B)
    logic.add(renewed, LeaderEpoch(1))
    logic.on_reply(plan, FetchReply(ErrorCode.NONE, 5, [(A, ok(0)), (B, diverging(0, 0))]), 0)
    assert (gone.epochs, renewed.epochs) == ([], [])
    following = logic.next(0)
    assert (asked(following), [name for name, _ in following.forgotten]) == ({B: (0, 1, -1)}, [A])


def test_adding_with_the_same_epoch_changes_nothing(logic, make_replica) -> None:
    replica = make_replica(A)
    logic.add(replica, LeaderEpoch(0))
    plan = logic.next(0)
    logic.add(replica, LeaderEpoch(0))
    logic.on_reply(plan, FetchReply(ErrorCode.NONE, 5, [(A, ok(0))]), 0)
    assert replica.epochs == [0]


def test_a_partition_that_brought_records_is_asked_for_after_the_others(logic, make_replica, answer, asked) -> None:
    logic.add(make_replica(A), LeaderEpoch(0))
    logic.add(make_replica(B), LeaderEpoch(0))
    answer(logic, 0, session=0, a=ok(0), b=ok())
    assert list(asked(logic.next(0))) == [B, A]


def test_a_failed_exchange_is_tried_again_after_one_backoff_with_everything_named(
    logic, make_replica, answer, asked, caplog
) -> None:
    replica = make_replica(A)
    logic.add(replica, LeaderEpoch(0))
    answer(logic, 0, a=ok(0))
    for now in (0, 1_000):
        logic.next(now)
        logic.on_failure(now, "Connection refused.")
        assert logic.next(now) == Pause(BACKOFF_MS)
    plan = logic.next(2_000)
    assert (plan.session_id, plan.session_epoch, asked(plan)) == (5, 0, {A: (1, 0, 0)})
    logic.on_reply(plan, FetchReply(ErrorCode.NONE, 6, [(A, ok())]), 2_000)
    assert caplog.text.count("Connection refused") == 1
    assert logic.connection_failures == 0


def test_a_leader_reached_anew_is_asked_at_once(logic, make_replica, asked) -> None:
    logic.add(make_replica(A), LeaderEpoch(0))
    logic.next(0)
    logic.on_failure(0, "Connection refused.")
    logic.restart()
    plan = logic.next(0)
    assert (plan.session_id, plan.session_epoch, list(asked(plan))) == (0, 0, [A])


@pytest.mark.parametrize(
    ("error", "session"), [(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 5)]
)
def test_a_lost_session_is_begun_anew_at_once(logic, make_replica, answer, asked, error, session) -> None:
    logic.add(make_replica(A), LeaderEpoch(0))
    answer(logic, 0, a=ok())
    answer(logic, 0, error=error)
    plan = logic.next(0)
    assert (plan.session_id, plan.session_epoch, list(asked(plan))) == (session, 0, [A])


def test_a_leader_that_refuses_even_a_new_session_is_not_asked_again_at_once(logic, make_replica, answer) -> None:
    logic.add(make_replica(A), LeaderEpoch(0))
    answer(logic, 0, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert logic.next(0) == Pause(BACKOFF_MS)


def test_a_refused_request_waits_for_the_backoff(logic, make_replica, answer) -> None:
    logic.add(make_replica(A), LeaderEpoch(0))
    answer(logic, 0, error=ErrorCode.UNKNOWN_SERVER_ERROR)
    assert logic.next(0) == Pause(BACKOFF_MS)


def test_a_delayed_partition_leaves_the_session_until_it_is_due(logic, make_replica, answer, asked) -> None:
    logic.add(make_replica(A), LeaderEpoch(0))
    logic.add(make_replica(B), LeaderEpoch(0))
    answer(logic, 0, a=failed(ErrorCode.KAFKA_STORAGE_ERROR), b=ok())
    plan = answer(logic, 0)
    assert [name for name, _ in plan.forgotten] == [A]
    plan = answer(logic, BACKOFF_MS)
    assert (list(asked(plan)), plan.forgotten) == ([A], [])
