"""What looks odd and is right: the judge has nothing to say about these histories, or only what is written here."""

from __future__ import annotations

import pytest

from regency.judge.operations import (
    ALL,
    UNKNOWN,
    Drained,
    FinalRead,
    HistoryMalformed,
    LogStartMoved,
    Outcome,
    Poll,
    Recreated,
    Run,
    Seek,
    Send,
)
from regency.judge.table import Anomaly


def clean(history) -> bool:
    verdict = history.judge()
    assert verdict.clean, verdict.summary()
    assert not verdict.findings
    return True


def test_empty_history(history):
    assert clean(history)


def test_timed_out_write_appears_late(history):
    history.send(1)
    history.poll((0, []), client="d")
    history.send(2, client="q")
    history.poll((0, [2]), client="q")
    history.final([2, 1])
    assert clean(history)


def test_timed_out_write_never_appears(history):
    history.send(1, 0)
    history.send(2)
    history.final([1])
    assert clean(history)


def test_unanswered_plain_write_appears_after_what_was_sent_later(history):
    history.send(1, idempotent=False)
    history.send(2, 0, idempotent=False)
    history.final([2, 1])
    assert clean(history)


def test_late_session_of_a_producer_is_free_of_the_earlier_one(history):
    history.send(1, session=0)
    history.send(2, 0, session=1)
    history.final([2, 1])
    assert clean(history)


def test_write_without_acks_may_be_lost(history):
    history.send(1, UNKNOWN, acks=0, idempotent=False, outcome=Outcome.ACKNOWLEDGED)
    history.final([])
    assert clean(history)


def test_write_acknowledged_without_an_offset_may_be_below_the_log_start(history):
    history.send(1, outcome=Outcome.ACKNOWLEDGED)
    history.final([], start=1)
    assert clean(history)


def test_write_acknowledged_without_an_offset_is_anywhere(history):
    history.send(1, 0)
    history.send(2, outcome=Outcome.ACKNOWLEDGED)
    history.final([1, 2])
    assert clean(history)


def test_send_that_failed_leaves_no_gap_in_its_session(history):
    history.send(1, 0)
    history.send(2, outcome=Outcome.FAILED)
    history.send(3, 1)
    history.final([1, 3])
    assert clean(history)


def test_first_send_of_a_session_may_have_expired(history):
    history.send(1)
    history.send(2, 1)
    history.final([2], start=1)
    assert clean(history)


def test_missing_send_may_be_below_the_log_start(history):
    history.send(1, 0)
    history.send(2)
    history.send(3, 2)
    history.final([3], start=2)
    assert clean(history)


def test_acknowledged_writes_above_what_was_read_are_not_lost_without_a_final_read(history):
    history.send(1, 0)
    history.send(2, 1)
    history.poll((0, [1]))
    assert clean(history)


def test_acknowledged_write_below_the_final_log_start_is_not_lost(history):
    history.send(1, 0)
    history.send(2, 1)
    history.final([2], start=1)
    assert clean(history)


def test_acknowledged_write_below_the_log_start_is_lost_where_another_stood(history):
    history.send(1, 0)
    history.send(2, client="q")
    history.poll((0, [2]))
    history.final([], start=1)
    assert history.judge().counts == {Anomaly.LOST_WRITE: 1}


def test_earlier_copy_of_a_plain_write_is_read_before_the_acknowledged_one(history):
    history.send(1, 4, idempotent=False)
    history.poll((0, [1]))
    assert clean(history)


def test_consumer_seeks_back_and_on(history):
    for value in range(4):
        history.send(value, value)
    history.poll((0, [0, 1]))
    history.seek(0)
    history.poll((0, [0]))
    history.seek()
    history.poll((3, [3]))
    assert clean(history)


def test_consumer_does_not_start_where_it_sought(history):
    history.seek(3)
    history.poll(position=2)
    assert history.judge().counts == {Anomaly.NONMONOTONIC_POLL: 1}


def test_new_assignment_begins_anywhere(history):
    for value in range(4):
        history.send(value, value)
    history.poll((0, [0, 1]), session=0)
    history.poll((3, [3]), session=1)
    history.poll((1, [1]), session=2)
    assert clean(history)


def test_polls_may_give_nothing(history):
    history.send(1, 0)
    history.poll(position=0)
    history.poll((0, [1]))
    history.poll(position=1)
    assert clean(history)


def test_poll_jumps_to_the_log_start_that_retention_moved(history):
    for value in range(5):
        history.send(value, value)
    history.poll((0, [0]))
    history.add(LogStartMoved("t", 0, history.now_ms, 3), LogStartMoved("t", 0, history.now_ms, 2))
    history.poll((3, [3, 4]), position=1)
    history.final([4], start=4)
    assert clean(history)


def test_hole_of_the_log_is_not_each_consumers_fault(history):
    history.send(1, 0)
    history.send(2, 2, client="q")
    history.poll((0, [1]), (2, [2]))
    history.add(FinalRead("t", 0, 0, 3, (Run(0, (1,)), Run(2, (2,))), history.now_ms + 10))
    assert history.judge().counts == {Anomaly.HOLE_IN_LOG: 1}


def test_consumer_that_stopped_before_the_end_of_faults_owes_nothing(history):
    history.send(1, 0)
    history.poll(position=0)
    history.add(Drained(history.now_ms + 1))
    history.poll((0, [1]), client="other")
    history.final([1])
    assert clean(history)


def test_ends_of_unknown_or_overlapping_origin_are_not_compared(history):
    history.listed(5)
    history.listed(4)
    history.listed(9, leader_epoch=4)
    history.listed(8, leader_epoch=3)
    assert clean(history)


def test_deposed_leader_lists_less_than_the_new_one(history):
    history.send(1, 8, leader=2)
    history.listed(9, leader_epoch=4, leader=2)
    history.listed(5, leader_epoch=3, leader=1)
    assert clean(history)


def test_end_asked_for_before_the_acknowledgement_came_may_be_older(history):
    history.send(1, 6, leader=2, takes_ms=40)
    history.now_ms -= 20
    history.listed(6, leader=2)
    assert clean(history)


def in_two_lives(history, *, topic_id: str = "") -> None:
    """Value 1 at offset 0 of the first life, read there; the topic made again at 100 to 200 ms."""
    history.send(1, 0)
    history.poll((0, [1]))
    history.add(Recreated("t", 100, 200, "old", "new"))
    history.now_ms = 300


def test_offsets_begin_anew_when_the_topic_is_made_again(history):
    in_two_lives(history)
    history.send(2, 0)
    history.poll((0, [2]), session=1)
    history.final([2])
    assert clean(history)


def test_late_reader_of_the_old_topic_names_its_id(history):
    in_two_lives(history)
    history.send(2, 0)
    history.poll((0, [1]), client="late", topic_id="old")
    history.final([2], topic_id="new")
    assert clean(history)


def test_write_is_lost_in_the_new_life_only(history):
    in_two_lives(history)
    history.send(2, 0)
    history.final([])
    verdict = history.judge()
    assert verdict.counts == {Anomaly.LOST_WRITE: 1}
    assert verdict.findings[0].topic_id == "new"


def test_timed_out_write_to_the_old_topic_appears_in_the_new_one(history):
    history.send(5)
    in_two_lives(history)
    history.final([5])
    assert clean(history)


@pytest.mark.parametrize(
    ("attempts", "acks", "found"), [(2, ALL, {}), (UNKNOWN, ALL, {}), (1, 0, {}), (1, ALL, {Anomaly.PHANTOM: 1})]
)
def test_write_that_may_have_been_sent_again_may_arrive_when_the_topic_is_made_again(history, attempts, acks, found):
    history.send(5, 0, attempts=attempts, acks=acks)
    history.add(Recreated("t", 100, 200, "old", "new"))
    history.now_ms = 300
    history.final([5])
    assert history.judge().counts == found


def test_what_overlaps_the_re_creation_is_not_judged_but_may_appear(history):
    in_two_lives(history)
    history.now_ms = 80
    history.send(2, 1, takes_ms=30)
    history.now_ms = 140
    history.poll((7, [1]), client="d")
    history.now_ms = 300
    history.final([2])
    assert history.judge().unplaced == 2
    assert clean(history)


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (Send("q", 0, 0, "t", 0, 1, -1, True, 0, 1, Outcome.INDETERMINATE), "value 1 was sent twice to t-0"),
        (Send("p", 0, 0, "t", 0, 2, -1, True, 0, 1, Outcome.INDETERMINATE), "p, session 0, t-0"),
        (Seek("c", 0, 0, "t", 0, 0), "c, session 0, t-0"),
        (Send("q", 0, 0, "t", 0, 2, -1, True, 0, 1, Outcome.FAILED, 7), "value 2 sent to t-0 is failed at an offset"),
        (FinalRead("t", 0, 0, 0, (), 0), "two final reads"),
        (FinalRead("t", 1, 0, 2, (Run(1, (1,)), Run(0, (1,))), 0), "overlap or go back"),
        (Poll("c", 0, 1, "u", 0, 0, 0, (), 0, 1, topic_id="elsewhere"), "topic id elsewhere"),
    ],
)
def test_contradictory_history_is_refused(history, second, says):
    history.send(1, 0)
    history.poll((0, [1]))
    history.final([1])
    history.add(Recreated("u", 5, 6, "old", "new"), second)
    with pytest.raises(HistoryMalformed, match=says):
        history.judge()
