"""A fetcher's decisions, reply by reply, over a follower in memory."""

from __future__ import annotations

from uuid import UUID

import pytest

from regency.broker_agent.log.errors import LogStorageError, RecordsRejected
from regency.broker_agent.replication.api import EpochEndOffset, FetchedPartition, ListedOffset
from regency.broker_agent.replication.fetch_plans import (
    FetcherLimits,
    FetchPlan,
    FetchReply,
    OffsetsPlan,
    OffsetsReply,
    Pause,
)
from regency.broker_agent.replication.fetcher_logic import FetcherLogic
from regency.broker_agent.replication.follower import truncation_point
from regency.model.ids import BrokerEpoch, LeaderEpoch, Offset, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ID = TopicId(UUID(int=3))
BACKOFF_MS = 1_000


class Replica:
    """A follower whose log is a list of epochs, one record each."""

    def __init__(self, name: TopicPartition, *epochs: int) -> None:
        self.topic_partition = name
        self.topic_id = ID
        self.epochs = list(epochs)
        self.log_start_offset = 0
        self.high_watermark = 0
        self.fails: Exception | None = None

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.epochs)

    @property
    def latest_epoch(self) -> int:
        return self.epochs[-1] if self.epochs else -1

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        if not self.epochs or epoch > self.epochs[-1]:
            return EpochEndOffset()
        if epoch < self.epochs[0]:
            return EpochEndOffset(LeaderEpoch(epoch), Offset(self.log_start_offset))
        below = [known for known in self.epochs if known <= epoch]
        return EpochEndOffset(LeaderEpoch(below[-1]), Offset(self.log_start_offset + len(below)))

    def append_fetched(self, fetched: FetchedPartition) -> None:
        if self.fails is not None:
            raise self.fails
        self.epochs.extend(fetched.records)
        self.high_watermark = min(fetched.high_watermark, self.log_end_offset)
        self.log_start_offset = max(self.log_start_offset, fetched.log_start_offset)

    def truncate_to(self, offset: int) -> None:
        if self.fails is not None:
            raise self.fails
        del self.epochs[offset - self.log_start_offset :]

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.epochs = []
        self.log_start_offset = offset


@pytest.fixture
def logic() -> FetcherLogic:
    return FetcherLogic("fetcher", FetcherLimits(10_000, 1_000, 1, 500, BACKOFF_MS), lambda: BrokerEpoch(77))


def ok(*epochs: int, high_watermark: int = 0, log_start: int = 0) -> FetchedPartition:
    return FetchedPartition(ErrorCode.NONE, Offset(high_watermark), Offset(log_start), bytes(epochs))


def diverging(epoch: int, end: int) -> FetchedPartition:
    return FetchedPartition(
        ErrorCode.NONE, Offset(99), Offset(50), diverging=EpochEndOffset(LeaderEpoch(epoch), Offset(end))
    )


def failed(error: ErrorCode) -> FetchedPartition:
    return FetchedPartition(error)


def answer(logic, now, error=ErrorCode.NONE, session=5, **results) -> FetchPlan:
    """Have the next fetch answered; keys are `a` and `b`."""
    plan = logic.next(now)
    assert isinstance(plan, FetchPlan), plan
    names = {"a": A, "b": B}
    logic.on_reply(plan, FetchReply(error, session, [(names[key], value) for key, value in results.items()]), now)
    return plan


def asked(plan) -> dict[TopicPartition, tuple[int, int, int]]:
    return {
        entry.topic_partition: (entry.fetch_offset, entry.current_leader_epoch, entry.last_fetched_epoch)
        for entry in plan.partitions
    }


def test_the_first_fetch_begins_at_the_end_with_the_last_epoch_and_our_broker_epoch(logic) -> None:
    logic.add(Replica(A, 1, 1, 3), LeaderEpoch(4))
    plan = logic.next(0)
    assert (plan.replica_epoch, plan.session_id, plan.session_epoch) == (77, 0, 0)
    assert asked(plan) == {A: (3, 4, 3)}
    assert plan.names == {(ID, 0): A}


def test_records_are_appended_and_the_next_fetch_goes_on_behind_them(logic) -> None:
    replica = Replica(A)
    logic.add(replica, LeaderEpoch(0))
    answer(logic, 0, a=ok(0, 0, high_watermark=9))
    assert (replica.epochs, replica.high_watermark) == ([0, 0], 2)
    plan = logic.next(0)
    assert (plan.session_id, plan.session_epoch, asked(plan)) == (5, 1, {A: (2, 0, 0)})


def test_an_unchanged_partition_is_not_named_again_and_its_news_are_still_taken(logic) -> None:
    replica = Replica(A, 0)
    logic.add(replica, LeaderEpoch(0))
    answer(logic, 0, a=ok())
    plan = answer(logic, 0)
    assert plan.partitions == []
    answer(logic, 0, a=ok(high_watermark=1))
    assert replica.high_watermark == 1


def test_the_last_fetched_epoch_outlives_empty_answers(logic) -> None:
    logic.add(Replica(A, 2), LeaderEpoch(3))
    answer(logic, 0, session=0, a=ok())
    assert asked(logic.next(0)) == {A: (1, 3, 2)}


def test_nothing_to_follow_is_a_pause_without_end(logic) -> None:
    assert logic.next(0) == Pause(None)
    logic.add(Replica(A), LeaderEpoch(0))
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
def test_where_a_replica_cuts_its_log(leader, own, expected) -> None:
    assert truncation_point(Replica(A, *own), EpochEndOffset(LeaderEpoch(leader[0]), Offset(leader[1]))) == expected


def test_a_diverging_answer_only_truncates(logic) -> None:
    replica = Replica(A, 1, 1, 2, 2)
    replica.high_watermark = 1
    logic.add(replica, LeaderEpoch(3))
    answer(logic, 0, a=diverging(1, 2))
    assert (replica.epochs, replica.high_watermark, replica.log_start_offset) == ([1, 1], 1, 0)
    assert asked(logic.next(0)) == {A: (2, 3, 1)}


def test_a_diverging_answer_that_changes_nothing_is_not_asked_for_again_at_once(logic) -> None:
    logic.add(Replica(A, 1, 1), LeaderEpoch(3))
    answer(logic, 0, a=diverging(1, 2))
    assert logic.next(0) == Pause(BACKOFF_MS)


@pytest.mark.parametrize(
    "error", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID]
)
def test_a_leader_that_is_not_ready_is_asked_again_soon_and_then_less_often(logic, error) -> None:
    logic.add(Replica(A), LeaderEpoch(1))
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


def test_any_other_error_waits_for_the_backoff_and_is_complained_about_once(logic, caplog) -> None:
    logic.add(Replica(A), LeaderEpoch(1))
    for now in (0, 1_000, 2_000):
        answer(logic, now, a=failed(ErrorCode.KAFKA_STORAGE_ERROR))
        assert logic.next(now) == Pause(BACKOFF_MS)
    assert caplog.text.count("KAFKA_STORAGE_ERROR") == 1


def test_a_fenced_partition_is_given_up_until_it_is_added_again(logic) -> None:
    replica = Replica(A)
    logic.add(replica, LeaderEpoch(0))
    logic.add(Replica(B), LeaderEpoch(0))
    answer(logic, 0, a=failed(ErrorCode.FENCED_LEADER_EPOCH), b=ok(0))
    assert list(logic.failed) == [A]
    assert A not in logic
    plan = logic.next(0)
    assert (list(asked(plan)), [name for name, _ in plan.forgotten]) == ([B], [A])
    logic.on_reply(plan, FetchReply(ErrorCode.NONE, 5, []), 0)
    logic.add(replica, LeaderEpoch(1))
    assert logic.failed == {}
    assert asked(logic.next(0)) == {A: (0, 1, -1)}


def test_corrupt_records_are_asked_for_again_after_the_backoff(logic) -> None:
    replica = Replica(A)
    replica.fails = RecordsRejected(ErrorCode.CORRUPT_MESSAGE, "the checksum does not fit")
    logic.add(replica, LeaderEpoch(0))
    answer(logic, 0, a=ok(0))
    assert logic.next(0) == Pause(BACKOFF_MS)
    replica.fails = None
    answer(logic, BACKOFF_MS, a=ok(0))
    assert replica.epochs == [0]


@pytest.mark.parametrize("failure", [LogStorageError(None, "gone"), ZeroDivisionError("a defect")])
@pytest.mark.parametrize("result", [ok(0), diverging(1, 1)])
def test_a_partition_that_fails_here_does_not_stop_the_others(logic, failure, result) -> None:
    bad, good = Replica(A, 1, 2), Replica(B)
    bad.fails = failure
    logic.add(bad, LeaderEpoch(2))
    logic.add(good, LeaderEpoch(0))
    answer(logic, 0, a=result, b=ok(0))
    assert good.epochs == [0]
    assert list(logic.failed) == [A]
    assert list(asked(logic.next(0))) == [B]


def test_what_arrives_for_a_partition_that_was_removed_or_added_anew_is_ignored(logic) -> None:
    gone, renewed = Replica(A), Replica(B)
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


def test_adding_with_the_same_epoch_changes_nothing(logic) -> None:
    replica = Replica(A)
    logic.add(replica, LeaderEpoch(0))
    plan = logic.next(0)
    logic.add(replica, LeaderEpoch(0))
    logic.on_reply(plan, FetchReply(ErrorCode.NONE, 5, [(A, ok(0))]), 0)
    assert replica.epochs == [0]


def test_a_partition_that_brought_records_is_asked_for_after_the_others(logic) -> None:
    logic.add(Replica(A), LeaderEpoch(0))
    logic.add(Replica(B), LeaderEpoch(0))
    answer(logic, 0, session=0, a=ok(0), b=ok())
    assert list(asked(logic.next(0))) == [B, A]


def list_offsets(logic, now, **results) -> OffsetsPlan:
    plan = logic.next(now)
    assert isinstance(plan, OffsetsPlan), plan
    names = {"a": A, "b": B}
    logic.on_reply(plan, OffsetsReply([(names[key], value) for key, value in results.items()]), now)
    return plan


def listed(offset: int) -> ListedOffset:
    return ListedOffset(ErrorCode.NONE, -1, Offset(offset))


def test_out_of_range_above_the_leaders_end_truncates_to_it(logic) -> None:
    replica = Replica(A, 0, 0, 0)
    logic.add(replica, LeaderEpoch(1))
    answer(logic, 0, a=failed(ErrorCode.OFFSET_OUT_OF_RANGE))
    plan = list_offsets(logic, 0, a=listed(1))
    assert (plan.timestamp, list(plan.partitions)) == (-1, [(A, 1)])
    assert replica.epochs == [0]
    assert asked(logic.next(0)) == {A: (1, 1, 0)}


def test_out_of_range_below_the_leaders_start_begins_anew_there(logic) -> None:
    replica = Replica(A, 0)
    logic.add(replica, LeaderEpoch(1))
    answer(logic, 0, a=failed(ErrorCode.OFFSET_OUT_OF_RANGE))
    assert list_offsets(logic, 0, a=listed(9)).timestamp == -1
    assert list_offsets(logic, 0, a=listed(6)).timestamp == -2
    assert (replica.epochs, replica.log_start_offset) == ([], 6)
    assert asked(logic.next(0)) == {A: (6, 1, -1)}


def test_out_of_range_that_is_in_range_after_all_waits_before_it_asks_again(logic) -> None:
    replica = Replica(A, 0, 0)
    logic.add(replica, LeaderEpoch(1))
    answer(logic, 0, a=failed(ErrorCode.OFFSET_OUT_OF_RANGE))
    list_offsets(logic, 0, a=listed(5))
    list_offsets(logic, 0, a=listed(1))
    assert replica.epochs == [0, 0]
    assert logic.next(0) == Pause(BACKOFF_MS)
    assert asked(logic.next(BACKOFF_MS)) == {A: (2, 1, 0)}


def test_a_leader_that_ends_below_our_start_empties_the_log(logic) -> None:
    replica = Replica(A, 0)
    replica.log_start_offset = 10
    logic.add(replica, LeaderEpoch(1))
    answer(logic, 0, a=failed(ErrorCode.OFFSET_OUT_OF_RANGE))
    list_offsets(logic, 0, a=listed(4))
    assert (replica.epochs, replica.log_start_offset) == ([], 4)


def test_fencing_while_asking_for_offsets_gives_up_and_other_errors_wait(logic) -> None:
    logic.add(Replica(A, 0), LeaderEpoch(1))
    logic.add(Replica(B, 0), LeaderEpoch(1))
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
def test_an_offset_that_is_not_told_is_not_asked_for_again_at_once(logic, answered) -> None:
    replica = Replica(A, 0)
    logic.add(replica, LeaderEpoch(1))
    answer(logic, 0, a=failed(ErrorCode.OFFSET_OUT_OF_RANGE))
    list_offsets(logic, 0, **answered)
    assert logic.next(0) == Pause(BACKOFF_MS)
    assert (replica.epochs, replica.log_start_offset) == ([0], 0)


def test_the_others_are_fetched_when_one_has_been_asked_for_offsets(logic) -> None:
    logic.add(Replica(A, 0, 0), LeaderEpoch(1))
    good = Replica(B)
    logic.add(good, LeaderEpoch(1))
    answer(logic, 0, a=failed(ErrorCode.OFFSET_OUT_OF_RANGE), b=ok(0))
    list_offsets(logic, 0, a=ListedOffset(ErrorCode.UNKNOWN_SERVER_ERROR))
    answer(logic, 0, b=ok(0))
    assert good.epochs == [0, 0]


def test_a_failed_exchange_is_tried_again_after_one_backoff_with_everything_named(logic, caplog) -> None:
    replica = Replica(A)
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


def test_a_leader_reached_anew_is_asked_at_once(logic) -> None:
    logic.add(Replica(A), LeaderEpoch(0))
    logic.next(0)
    logic.on_failure(0, "Connection refused.")
    logic.restart()
    plan = logic.next(0)
    assert (plan.session_id, plan.session_epoch, list(asked(plan))) == (0, 0, [A])


@pytest.mark.parametrize(
    ("error", "session"), [(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 5)]
)
def test_a_lost_session_is_begun_anew_at_once(logic, error, session) -> None:
    logic.add(Replica(A), LeaderEpoch(0))
    answer(logic, 0, a=ok())
    answer(logic, 0, error=error)
    plan = logic.next(0)
    assert (plan.session_id, plan.session_epoch, list(asked(plan))) == (session, 0, [A])


def test_a_leader_that_refuses_even_a_new_session_is_not_asked_again_at_once(logic) -> None:
    logic.add(Replica(A), LeaderEpoch(0))
    answer(logic, 0, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert logic.next(0) == Pause(BACKOFF_MS)


def test_a_refused_request_waits_for_the_backoff(logic) -> None:
    logic.add(Replica(A), LeaderEpoch(0))
    answer(logic, 0, error=ErrorCode.UNKNOWN_SERVER_ERROR)
    assert logic.next(0) == Pause(BACKOFF_MS)


def test_a_delayed_partition_leaves_the_session_until_it_is_due(logic) -> None:
    logic.add(Replica(A), LeaderEpoch(0))
    logic.add(Replica(B), LeaderEpoch(0))
    answer(logic, 0, a=failed(ErrorCode.KAFKA_STORAGE_ERROR), b=ok())
    plan = answer(logic, 0)
    assert [name for name, _ in plan.forgotten] == [A]
    plan = answer(logic, BACKOFF_MS)
    assert (list(asked(plan)), plan.forgotten) == ([A], [])
