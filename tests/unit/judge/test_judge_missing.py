"""Records that are missing where a history claims to be complete: what cannot be judged is a finding, never clean."""

from __future__ import annotations

import pytest

from regency.judge.operations import UNKNOWN, Drained, LogStartMoved, Outcome, Recreated
from regency.judge.table import Anomaly
from regency.judge.verdict import judge


def complete(history) -> None:
    """Another partition, of which everything is known."""
    history.send(100, 0, partition=1)
    history.final([100], partition=1)


def drained(history) -> None:
    history.add(Drained(history.now_ms))


def only(history, partition=0):
    verdict = history.judge()
    assert sum(verdict.counts.values()) == 1, verdict.summary()
    (finding,) = verdict.findings
    assert finding.partition == partition
    return finding


# No final read


@pytest.mark.parametrize("claim", [complete, drained])
def test_acknowledged_writes_without_a_final_read_are_not_judged(history, claim):
    history.send(1, 0)
    history.send(2, 1)
    claim(history)
    finding = only(history)
    assert finding.anomaly is Anomaly.UNJUDGED
    assert finding.sentence == (
        "t-0 has no final read, though the history claims to be complete: whether its 2 acknowledged writes are lost "
        "is not known; the first is p (session 0, send 0, 10 to 15 ms)'s value 1."
    )
    assert finding.values == (1,)


@pytest.mark.parametrize("acks", [1, -1])
def test_write_acknowledged_without_an_offset_needs_a_final_read_too(history, acks):
    history.send(1, outcome=Outcome.ACKNOWLEDGED, acks=acks)
    drained(history)
    assert only(history).anomaly is Anomaly.UNJUDGED


def test_nothing_promised_needs_no_final_read(history):
    history.send(1)
    history.send(2, outcome=Outcome.FAILED)
    history.send(3, UNKNOWN, acks=0, idempotent=False, outcome=Outcome.ACKNOWLEDGED)
    complete(history)
    assert history.judge().clean


def test_history_that_does_not_claim_to_be_complete_needs_no_final_read(history):
    history.send(1, 0)
    history.poll((0, [1]))
    assert history.judge().clean


def test_deleted_life_of_a_topic_needs_no_final_read(history):
    history.send(1, 0)
    history.add(Recreated("t", 20, 30, "a", "b"))
    history.now_ms = 40
    history.send(2, 0)
    history.final([2], topic_id="b")
    assert history.judge().clean


def test_final_read_of_the_deleted_life_is_none_of_the_new_one(history):
    history.send(1, 0)
    history.add(Recreated("t", 20, 30, "a", "b"))
    history.now_ms = 40
    history.send(2, 0)
    history.final([1], topic_id="a")
    assert only(history).topic_id == "b"


# No polls


def test_partition_that_nobody_polled_in_the_end_is_not_judged(history):
    history.send(1, 0)
    drained(history)
    history.final([1])
    finding = only(history)
    assert finding.anomaly is Anomaly.UNJUDGED
    assert finding.sentence == (
        "t-0 has records at offsets 0 to 0, and no consumer session that went on after Drained has polled it: whether "
        "consumers saw them is not known."
    )


def test_consumers_that_ended_before_do_not_count_as_drained(history):
    history.send(1, 0)
    history.poll((0, [1]))
    history.now_ms += 10
    drained(history)
    history.final([1])
    assert only(history).anomaly is Anomaly.UNJUDGED


def test_partition_without_records_needs_no_polls(history):
    history.send(1, 0)
    history.add(LogStartMoved("t", 0, history.now_ms, 1))
    drained(history)
    history.final([], start=1)
    assert history.judge().clean


def test_drained_consumer_that_polls_only_its_other_partition_stopped_short(history):
    history.send(1, 0)
    history.poll(position=0)
    history.now_ms += 10
    drained(history)
    history.poll(partition=1, position=0)
    history.poll((0, [1]), client="other")
    history.final([1])
    assert only(history).anomaly is Anomaly.UNREAD_TAIL


def test_drained_consumer_that_had_read_to_the_end_may_be_silent(history):
    history.send(1, 0)
    history.poll((0, [1]))
    history.now_ms += 10
    drained(history)
    history.poll(partition=1, position=0)
    history.final([1])
    assert history.judge().clean


def test_drained_consumer_sought_its_place_and_never_polled(history):
    history.send(1, 0)
    history.seek(0)
    drained(history)
    history.poll(partition=1, position=0)
    history.poll((0, [1]), client="other")
    history.final([1])
    finding = only(history)
    assert finding.anomaly is Anomaly.UNJUDGED
    assert finding.sentence == (
        "t-0 has records at offsets 0 to 0; c (session 0) was assigned it and went on after Drained, but never polled "
        "it."
    )


def test_new_session_with_another_assignment_owes_nothing(history):
    history.send(1, 0)
    history.poll(position=0)
    history.now_ms += 10
    drained(history)
    history.poll(partition=1, session=1, position=0)
    history.poll((0, [1]), client="other")
    history.final([1])
    assert history.judge().clean


# Never allowed


def test_what_is_not_judged_is_never_allowed(history):
    history.send(1, 0)
    drained(history)
    verdict = judge(history.operations, frozenset(Anomaly))
    assert verdict.counts == {Anomaly.UNJUDGED: 1}
