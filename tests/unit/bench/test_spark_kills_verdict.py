"""What the judge of jobs under kills makes of records: lost, doubled by a bug, doubled by an attempt heard of late."""

from __future__ import annotations

from uuid import UUID

import pytest
from spark_kills.notes import Attempt, TaskName
from spark_kills.verdict import Found, Signature, judge, signature

from regency.pipeline.sink.identity import WriteId, row_header

QUERY = UUID(int=9)
TASK = TaskName(QUERY, 2, 0)
ROWS = [b"a", b"b", b"c"]
ATTEMPTS = {TASK: {0: Attempt(1, 0, None, False), 1: Attempt(2, 50, 1_000, True)}}


def found(value: bytes, offset: int, *, attempt: int = 0, at_ms: int = 0, task: TaskName = TASK) -> Found:
    position = ROWS.index(value) if value in ROWS else 99
    return Found(0, offset, value, at_ms, Signature(task, position, attempt))


def test_every_row_once_and_in_order_is_right():
    verdict = judge(ROWS, [found(b"a", 0), found(b"b", 1), found(b"c", 5, attempt=1)], ATTEMPTS)
    assert (verdict.records, verdict.rows, verdict.late, verdict.bugs) == (3, 3, 0, [])


def test_lost_and_stray_rows_are_bugs():
    verdict = judge(ROWS, [found(b"a", 0), found(b"x", 1)], ATTEMPTS)
    assert verdict.bugs == ["2 rows are lost, such as b'b'", "1 records are no row, such as b'x'"]
    assert judge(ROWS, [found(b"a", 0)], ATTEMPTS, whole=False).bugs == []


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (found(b"a", 0, at_ms=999), found(b"a", 9, attempt=1, at_ms=2_000), "did not find what had been appended"),
        (found(b"a", 0), found(b"a", 9), "one attempt wrote them"),
        (found(b"a", 0), found(b"a", 9, task=TaskName(QUERY, 2, 1)), "two tasks wrote them"),
        (found(b"a", 0, attempt=1), found(b"a", 9, attempt=1), "one attempt wrote them"),
    ],
)
def test_rows_that_are_there_twice_are_bugs(first: Found, second: Found, words: str):
    rest = [found(b"b", 1), found(b"c", 2)]
    verdict = judge(ROWS, [first, *rest, second], ATTEMPTS)
    (bug,) = verdict.bugs
    assert bug.startswith("1 rows are there twice: ")
    assert words in bug
    assert verdict.late == 0


def test_who_did_not_read_back_is_a_bug():
    attempts = {TASK: {0: Attempt(1, 0, None, False), 1: Attempt(2, 50, None, True)}}
    (bug,) = judge([b"a"], [found(b"a", 0), found(b"a", 1, attempt=1)], attempts).bugs
    assert "an attempt that was not the first did not read back" in bug


@pytest.mark.parametrize("late_offset", [1, 9])
def test_what_was_appended_after_the_successor_had_asked_is_late_and_no_bug(late_offset: int):
    records = [found(b"a", late_offset, at_ms=1_000), found(b"a", 5, attempt=1, at_ms=1_500)]
    verdict = judge([b"a"], records, ATTEMPTS)
    assert (verdict.late, verdict.bugs) == (1, [])


def test_rows_of_a_task_that_turned_around_are_a_bug():
    records = [found(b"b", 0), found(b"a", 1, attempt=1), found(b"c", 2, attempt=1)]
    (bug,) = judge(ROWS, records, ATTEMPTS).bugs
    assert "not in their order, such as b'a' at partition 0, offset 1, after b'b'" in bug
    assert judge(ROWS, records, ATTEMPTS, in_order=False).bugs == []


def test_a_signature_is_read_from_the_header():
    value = row_header(WriteId(QUERY, 2).task_prefix(7), 300, explicit_partition=True)
    signed = value[:-1] + bytes([value[-1] | 5 << 1])
    assert signature(signed) == Signature(TaskName(QUERY, 2, 7), 300, 5)
    with pytest.raises(ValueError, match="a header of 36 bytes"):
        signature(value[:-1])
