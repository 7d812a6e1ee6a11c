"""A fetcher whose leader has forgotten its epochs: what lies below the leader's log start cannot be compared."""

from __future__ import annotations

import pytest

from regency.broker_agent.replication.fetcher.fetcher_logic import FetcherLogic
from regency.kafka.fetching.values import (
    EpochEndOffset,
    FetchedPartition,
    ListedOffset,
    OffsetsPlan,
    OffsetsReply,
    Pause,
)
from regency.model.ids import LeaderEpoch, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

A = TopicPartition("t", 0)
NOW = LeaderEpoch(9)
BACKOFF_MS = 1_000


def diverging(epoch: int, end: int, *, log_start: int) -> FetchedPartition:
    return FetchedPartition(
        ErrorCode.NONE, Offset(99), Offset(log_start), diverging=EpochEndOffset(LeaderEpoch(epoch), Offset(end))
    )


def tell_start(logic: FetcherLogic, start: int, producers: bytes = b"") -> None:
    plan = logic.next(0)
    assert plan == OffsetsPlan(-2, [(A, NOW)])
    logic.on_reply(plan, OffsetsReply([(A, ListedOffset(ErrorCode.NONE, -1, Offset(start), producers=producers))]), 0)


@pytest.mark.parametrize("epochs", [(1, 1, 2, 2), (1, 1, 2)], ids=["longer", "no longer than to there"])
def test_it_starts_over_where_the_leader_answers_with_its_log_start(logic, make_replica, answer, asked, epochs) -> None:
    replica = make_replica(A, *epochs)
    logic.add(replica, NOW)
    answer(logic, 0, a=diverging(2, 3, log_start=3))
    tell_start(logic, 4, b"who was before")
    assert (replica.epochs, replica.log_start_offset, replica.producers) == ([], 4, b"who was before")
    assert asked(logic.next(0)) == {A: (4, 9, -1)}


def test_it_keeps_what_lies_below_an_end_that_the_leader_knows(logic, make_replica, answer, asked) -> None:
    replica = make_replica(A, 1, 1, 2, 2, 2)
    logic.add(replica, NOW)
    answer(logic, 0, a=diverging(2, 3, log_start=1))
    assert (replica.epochs, replica.log_start_offset) == ([1, 1, 2], 0)
    assert asked(logic.next(0)) == {A: (3, 9, 2)}


def test_it_asks_again_where_only_its_own_epoch_ends_at_the_leaders_log_start(
    logic, make_replica, answer, asked
) -> None:
    """The leader knows epoch 1, up to 40, and can say of the next fetch whether all of it is the same."""
    replica = make_replica(A, 1, 1, 5, 5)
    logic.add(replica, NOW)
    answer(logic, 0, a=diverging(1, 40, log_start=2))
    assert (replica.epochs, replica.log_start_offset) == ([1, 1], 0)
    assert asked(logic.next(0)) == {A: (2, 9, 1)}


@pytest.mark.parametrize("leader_start", [0, 3])
def test_a_log_that_is_cut_at_its_own_start_stays_there(logic, make_replica, answer, leader_start) -> None:
    """It may be in the ISR, and what is committed end there."""
    cuts = []
    replica = make_replica(A, 2, 2)
    replica.log_start_offset = 3
    replica.truncate_to = cuts.append
    logic.add(replica, NOW)
    answer(logic, 0, a=diverging(2, 3, log_start=leader_start))
    assert cuts == [3]
    assert logic.next(0) == Pause(BACKOFF_MS)


def test_a_raised_log_start_without_divergence_drops_nothing(logic, make_replica, answer) -> None:
    replica = make_replica(A, 2, 2, 2)
    replica.append_fetched = lambda *_: None
    logic.add(replica, NOW)
    answer(logic, 0, a=FetchedPartition(ErrorCode.NONE, Offset(3), Offset(3)))
    assert (replica.epochs, replica.log_start_offset) == ([2, 2, 2], 0)


@pytest.mark.parametrize("start", [0, 2, 4])
def test_a_replica_of_which_nothing_remains_copies_all_that_its_leader_has(
    logic, make_replica, answer, asked, start
) -> None:
    """Retention was faster here, and a shorter log was elected: begun at its end, we would be in sync without it."""
    replica = make_replica(A, 2, 2)
    replica.log_start_offset = 10
    logic.add(replica, NOW)
    answer(logic, 0, a=diverging(2, 4, log_start=start))
    tell_start(logic, start)
    assert (replica.epochs, replica.log_start_offset) == ([], start)
    assert asked(logic.next(0)) == {A: (start, 9, -1)}
