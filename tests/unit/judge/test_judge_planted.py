"""Anomalies planted in written histories: each is found, and nothing else."""

from __future__ import annotations

import pytest

from regency.judge.operations import Drained, FinalRead, LogStartMoved, Outcome, Run
from regency.judge.table import DESCRIPTIONS, Anomaly


def only(history, *, offsets=None):
    """The one anomaly that is found, once."""
    verdict = history.judge()
    assert sum(verdict.counts.values()) == 1, verdict.summary()
    (finding,) = verdict.findings
    if offsets is not None:
        assert finding.offsets == offsets
    return finding.anomaly


def test_acknowledged_write_is_not_in_the_final_read(history):
    history.send(1, 0)
    history.send(2, 1)
    history.final([1])
    assert only(history, offsets=(1,)) is Anomaly.LOST_WRITE


def test_acknowledged_write_that_was_read_is_gone_in_the_end(history):
    history.send(1, 0)
    history.send(2, 1)
    history.poll((0, [1, 2]))
    history.final([1])
    assert only(history, offsets=(1,)) is Anomaly.LOST_WRITE


def test_acknowledged_write_is_replaced_by_another(history):
    history.send(1, 0)
    history.send(2, client="q")
    history.final([2])
    assert only(history, offsets=(0,)) is Anomaly.LOST_WRITE


def test_acknowledged_write_is_passed_by_a_poll(history):
    history.send(1, 0)
    history.send(2, client="q")
    history.send(3, 1)
    history.poll((0, [2, 3]))
    assert only(history, offsets=(0,)) is Anomaly.LOST_WRITE


def test_write_acknowledged_without_an_offset_is_lost(history):
    history.send(1, 0)
    history.send(2, outcome=Outcome.ACKNOWLEDGED)
    history.final([1])
    assert only(history, offsets=()) is Anomaly.LOST_WRITE


def test_lost_write_leaves_a_hole(history):
    for value in range(3):
        history.send(value, value)
    history.add(FinalRead("t", 0, 0, 3, (Run(0, (0,)), Run(2, (2,))), history.now_ms + 10))
    assert only(history, offsets=(1,)) is Anomaly.LOST_WRITE


def test_write_that_only_the_leader_acknowledged_is_lost(history):
    history.send(1, 0, acks=1)
    history.final([])
    assert only(history, offsets=(0,)) is Anomaly.LOST_LEADER_WRITE


def test_two_consumers_read_two_values_at_one_offset(history):
    history.send(1)
    history.send(2, client="q")
    history.poll((0, [1]), client="c")
    history.poll((0, [2]), client="d")
    assert only(history, offsets=(0,)) is Anomaly.INCONSISTENT_OFFSET


def test_final_read_has_another_value_than_a_poll(history):
    history.send(1)
    history.send(2, client="q")
    history.send(3, 1, client="q")
    history.poll((0, [1, 3]))
    history.final([2, 3])
    assert only(history, offsets=(0,)) is Anomaly.INCONSISTENT_OFFSET


def test_one_offset_is_acknowledged_for_two_writes(history):
    history.send(1, 7)
    history.send(2, 7, client="q")
    assert only(history, offsets=(7,)) is Anomaly.INCONSISTENT_OFFSET


def test_write_is_read_at_another_offset_than_acknowledged(history):
    history.send(1, 0)
    history.send(2)
    history.final([2, 1])
    assert only(history, offsets=(0, 1)) is Anomaly.MISPLACED_WRITE


def test_value_is_read_that_nobody_sent(history):
    history.send(1, 0)
    history.poll((0, [1, 99]))
    assert only(history, offsets=(1,)) is Anomaly.PHANTOM


def test_value_is_read_from_another_partition_than_sent_to(history):
    history.send(1, 0, partition=0)
    history.poll((0, [1]), partition=0)
    history.poll((0, [1]), partition=1)
    assert only(history, offsets=(0,)) is Anomaly.PHANTOM


def test_value_is_read_whose_send_failed_for_sure(history):
    history.send(1, outcome=Outcome.FAILED)
    history.poll((0, [1]))
    assert only(history, offsets=(0,)) is Anomaly.FAILED_WRITE_READ


def test_idempotent_write_stands_twice(history):
    history.send(1, 0)
    history.send(2, 1)
    history.final([1, 2, 1])
    assert only(history, offsets=(0, 2)) is Anomaly.DUPLICATE


def test_idempotent_write_without_an_answer_stands_twice(history):
    history.send(1)
    history.final([1, 1])
    assert only(history, offsets=(0, 1)) is Anomaly.DUPLICATE


def test_plain_write_stands_twice(history):
    history.send(1, 1, idempotent=False)
    history.poll((0, [1, 1]))
    assert only(history, offsets=(0, 1)) is Anomaly.RETRY_DUPLICATE


def test_idempotent_writes_stand_in_another_order_than_sent(history):
    history.send(1)
    history.send(2)
    history.poll((0, [2, 1]))
    assert only(history, offsets=(1, 0)) is Anomaly.REORDERED


def test_unanswered_plain_write_stands_before_one_that_was_acknowledged_earlier(history):
    history.send(1, 1, idempotent=False)
    history.send(2, idempotent=False)
    history.poll((0, [2, 1]))
    assert only(history, offsets=(1, 0)) is Anomaly.RETRY_REORDERED


def test_later_send_is_acknowledged_at_a_lower_offset(history):
    history.send(1, 5)
    history.send(2, 4)
    assert only(history, offsets=(5, 4)) is Anomaly.NONMONOTONIC_SEND


def test_later_send_of_a_plain_producer_is_acknowledged_at_a_lower_offset(history):
    history.send(1, 1, idempotent=False)
    history.send(2, 0, idempotent=False)
    history.final([2, 1])
    assert only(history, offsets=(1, 0)) is Anomaly.RETRY_NONMONOTONIC_SEND


def test_idempotent_session_begins_with_its_second_send(history):
    history.send(1)
    history.send(2, 0)
    history.final([2])
    assert only(history, offsets=(0,)) is Anomaly.SKIPPED_SEND


def test_idempotent_session_goes_on_over_a_send_that_never_came(history):
    history.send(1, 0)
    history.send(2)
    history.send(3, 1)
    history.final([1, 3])
    assert only(history, offsets=(0, 1)) is Anomaly.SKIPPED_SEND


@pytest.mark.parametrize(
    ("second", "offsets"),
    [
        pytest.param({"position": 1}, (2, 1), id="the next poll starts lower"),
        pytest.param({"position": 2, "next_position": 1}, (2, 1), id="the poll ends lower"),
    ],
)
def test_position_goes_back(history, second, offsets):
    history.send(1, 0)
    history.send(2, 1)
    history.poll((0, [1, 2]))
    history.poll(**second)
    assert only(history, offsets=offsets) is Anomaly.NONMONOTONIC_POLL


def test_poll_gives_records_below_its_position(history):
    for value in range(3):
        history.send(value, value)
    history.poll((0, [0, 1]))
    history.poll((1, [1, 2]), position=2)
    assert only(history, offsets=(2, 1)) is Anomaly.NONMONOTONIC_POLL


def test_runs_of_one_poll_go_back(history):
    for value in range(4):
        history.send(value, value)
    history.poll((0, [0, 1, 2, 3]), client="d")
    history.poll((2, [2, 3]), (0, [0, 1]), position=2, next_position=4)
    assert only(history, offsets=(4, 0)) is Anomaly.NONMONOTONIC_POLL


def test_poll_starts_above_where_the_last_one_ended(history):
    for value in range(3):
        history.send(value, value)
    history.poll((0, [0]))
    history.poll((2, [2]))
    assert only(history, offsets=(1, 2)) is Anomaly.SKIPPED_POLL


def test_one_poll_jumps_over_a_record(history):
    for value in range(3):
        history.send(value, value)
    history.poll((0, [0]), (2, [2]))
    assert only(history, offsets=(1, 2)) is Anomaly.SKIPPED_POLL


def test_poll_ends_above_its_last_record(history):
    history.send(0, 0)
    history.send(1, 1)
    history.poll((0, [0]), next_position=2)
    assert only(history, offsets=(1, 2)) is Anomaly.SKIPPED_POLL


def test_poll_jumps_further_than_the_log_start_moved(history):
    for value in range(4):
        history.send(value, value)
    history.add(LogStartMoved("t", 0, 0, 2))
    history.poll((0, [0]), (3, [3]))
    assert only(history, offsets=(1, 3)) is Anomaly.SKIPPED_POLL


def test_poll_jumps_before_the_log_start_moved(history):
    for value in range(3):
        history.send(value, value)
    history.poll((0, [0]), (2, [2]))
    history.add(LogStartMoved("t", 0, history.now_ms + 100, 2))
    assert only(history, offsets=(1, 2)) is Anomaly.SKIPPED_POLL


def test_final_read_lacks_an_offset(history):
    history.send(1, 0)
    history.send(2, 2, client="q")
    history.add(FinalRead("t", 0, 0, 3, (Run(0, (1,)), Run(2, (2,))), history.now_ms + 10))
    assert only(history, offsets=(1, 1)) is Anomaly.HOLE_IN_LOG


def test_final_read_ends_below_the_high_watermark(history):
    history.send(1, 0)
    history.final([1], high_watermark=4)
    assert only(history, offsets=(1, 3)) is Anomaly.HOLE_IN_LOG


def test_consumer_never_reads_to_the_end(history):
    for value in range(3):
        history.send(value, value)
    history.add(Drained(history.now_ms))
    history.poll((0, [0, 1, 2]), client="other")
    history.poll((0, [0]))
    history.poll(position=1)
    history.final([0, 1, 2])
    assert only(history, offsets=(1, 2)) is Anomaly.UNREAD_TAIL


def test_listed_end_goes_back_within_a_leader_epoch(history):
    history.listed(5, leader_epoch=3)
    history.listed(4, leader_epoch=3)
    assert only(history, offsets=(4, 5)) is Anomaly.END_WENT_BACK


def test_listed_end_of_a_newer_leader_is_lower(history):
    history.listed(4, leader_epoch=4)
    history.listed(5, leader_epoch=3)
    assert only(history, offsets=(4, 5)) is Anomaly.END_WENT_BACK


def test_listed_end_is_lower_than_what_was_read(history):
    history.send(1, 0)
    history.poll((0, [1]), leader_epoch=3)
    history.listed(0, leader_epoch=3)
    assert only(history, offsets=(0, 1)) is Anomaly.END_WENT_BACK


def test_broker_lists_an_end_below_what_it_acknowledged(history):
    history.send(1, 6, leader=2)
    history.listed(6, leader=2)
    assert only(history, offsets=(6, 7)) is Anomaly.END_WENT_BACK


def test_every_anomaly_is_described():
    assert set(DESCRIPTIONS) == set(Anomaly)
