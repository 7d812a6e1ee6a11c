"""Findings are readable and few, verdicts add up, histories and verdicts are JSON."""

from __future__ import annotations

import msgspec
import pytest

from regency.judge.findings import Verdict, add_verdicts
from regency.judge.operations import (
    Drained,
    EpochBumped,
    HistoryMalformed,
    LeaderChanged,
    LogStartMoved,
    LossyCrash,
    Outcome,
    Poll,
    Recreated,
    Run,
    UncleanElection,
    decode_operations,
    encode_operations,
)
from regency.judge.parts import Claims
from regency.judge.table import Anomaly
from regency.judge.verdict import judge, judge_piece


def test_finding_is_a_sentence_with_who_where_and_when(history):
    history.send(1, 0)
    history.send(2, client="q")
    history.poll((0, [2]))

    (finding,) = history.judge().findings

    assert finding.sentence == (
        "p (session 0, send 0, 10 to 15 ms)'s value 1 was acknowledged with acks=all at t-0 offset 0, where "
        "c (session 0, poll 0, 30 to 35 ms) has value 2."
    )
    assert finding.values == (1, 2)
    assert [type(operation).__name__ for operation in finding.operations] == ["Send", "Poll"]


def test_finding_shows_of_a_long_poll_only_the_neighbours(history):
    for value in range(100):
        history.send(value, value)
    history.poll((0, range(50)), (51, range(51, 100)))

    (finding,) = history.judge().findings

    assert finding.anomaly is Anomaly.SKIPPED_POLL
    assert isinstance(finding.operations[0], Poll)
    assert finding.operations[0].runs == (Run(49, (49,)), Run(51, (51, 52)))


def test_all_are_counted_and_the_first_are_kept(history):
    for value in range(30):
        history.send(value, value)
    history.final([])

    verdict = history.judge()

    assert verdict.counts == {Anomaly.LOST_WRITE: 30}
    assert [finding.offsets for finding in verdict.findings] == [(offset,) for offset in range(10)]
    assert not verdict.clean
    assert judge(history.operations, most=2).findings == verdict.findings[:2]


def test_what_is_allowed_is_told_and_does_not_count(history):
    history.send(1, 0)
    history.final([])

    verdict = history.judge(frozenset({Anomaly.LOST_WRITE}))

    assert verdict.clean
    assert verdict.tolerated == {Anomaly.LOST_WRITE: 1}
    assert verdict.findings[0].allowed
    assert verdict.summary() == "clean: 1 sends, 0 polls, 0 records read; allowed: 1 lost-write"


def test_summary_names_what_was_found(history):
    history.send(1, 0)
    history.final([])

    assert history.judge().summary() == (
        "not clean: 1 sends, 0 polls, 0 records read; found: 1 lost-write\n"
        "lost-write: p (session 0, send 0, 10 to 15 ms)'s value 1 was acknowledged with acks=all at t-0 offset 0, "
        "and the final read has nothing there."
    )


def test_verdicts_of_partitions_add_up_to_the_verdict_on_the_whole(history):
    for partition in range(3):
        for value in range(6):
            history.send(value, value, partition=partition)
        history.poll((0, [0]), (2, [2, 99]), partition=partition)
        history.final([0, 1, 2], partition=partition)

    parts = [judge(each for each in history.operations if each.partition == partition) for partition in (2, 0, 1)]

    assert add_verdicts(parts) == history.judge()


def test_a_piece_is_judged_by_what_the_whole_history_claims(history):
    """Partition 1 has no final read and its consumer goes on elsewhere only: each piece alone claims nothing."""
    history.send(1, 0, partition=1)
    history.send(2, 0)
    history.add(Drained(history.now_ms))
    history.poll((0, [2]))
    history.final([2])
    verdict = history.judge()
    pieces = [
        judge_piece(
            [each for each in history.operations if getattr(each, "partition", None) == partition],
            Claims(complete=True, drained=True, went_on=frozenset({("c", 0)})),
        )
        for partition in (0, 1)
    ]

    assert verdict.counts == {Anomaly.UNJUDGED: 1}
    assert add_verdicts(pieces) == verdict


def test_verdict_is_json(history):
    history.send(1, 0)
    history.poll((0, [1]), position=0)
    history.final([])
    verdict = history.judge()

    assert msgspec.json.decode(verdict.to_json(), type=Verdict) == verdict
    assert msgspec.json.decode(verdict.to_json())["counts"] == {"lost-write": 1}


def test_history_is_lines_of_json(history):
    history.send(1, 0, leader=2)
    history.send(2, outcome=Outcome.FAILED)
    history.poll((0, [1]), leader_epoch=4, topic_id="x")
    history.seek()
    history.listed(1)
    history.final([1])
    history.add(
        UncleanElection("t", 0, 1),
        LossyCrash("t", 0, 1, 2, 3),
        LeaderChanged("t", 0, 1),
        EpochBumped("t", 0, 1, "p"),
        LogStartMoved("t", 0, 1, 5),
        Recreated("t", 1, 2, "a", "b"),
        Drained(9),
    )

    lines = encode_operations(history.operations).splitlines(keepends=True)

    assert decode_operations([*lines, b"\n"]) == history.operations
    assert lines[0] == (
        b'{"op":"send","client":"p","session":0,"number":0,"topic":"t","partition":0,"value":1,"acks":-1,'
        b'"idempotent":true,"invoked_ms":10,"completed_ms":15,"outcome":"acknowledged","offset":0,"leader":2,"attempts":1}\n'
    )
    assert b'"runs":[[0,[1]]]' in lines[2]


@pytest.mark.parametrize("line", [b"{", b"\xff", b'{"op":"sing"}', '{"op":"drained"}'])
def test_line_that_is_no_operation_is_named(line):
    with pytest.raises(HistoryMalformed, match="line 2 of the history is no operation"):
        decode_operations(["", line])
