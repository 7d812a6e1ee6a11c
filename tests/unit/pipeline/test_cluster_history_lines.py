"""Which lines are decisions, and what of them stands in a row."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from regency.history.records import decode_decision
from regency.pipeline.jobs.cluster_history.reading import LATEST_MS, decision_of, parsed_batch

STATE = {
    "controller_epoch": 1,
    "number": 900,
    "event": "broker_change",
    "subject": "t-0",
    "from": "leader 1, isr [1, 2], leader epoch 2",
    "to": "leader 2, isr [2], leader epoch 3",
    "why": "first live replica",
    "time_ms": 1_777_939_190_000,
    "source": 1,
    "leader": 2,
    "isr": [2],
    "leader_epoch": 3,
    "version": 3,
}


def line(**changes: Any) -> bytes:
    return msgspec.json.encode({**STATE, **changes})


LINES = [line(phases=[["a", 5]]), b" \r", b"hello \xff", None]
GIVEN = pa.RecordBatch.from_pydict(
    {
        "origin": pa.array(["file:/a"] * 4, pa.string()),
        "line": pa.array(LINES, pa.binary()),
        "problem": pa.array([None, None, None, "gone"], pa.string()),
    }
)
"""Made here: the first array imports pandas, which takes a while."""


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"time_ms": 0},
        {"time_ms": LATEST_MS - 1},
        {"number": 2**63 - 1, "controller_epoch": 2**31 - 1, "version": 2**31 - 1},
        {"leader": -1, "isr": []},
        {"subject": f"t-{2**31 - 1}"},
        {"subject": "t-99999999999", "version": None},
        {"subject": "broker 99999999999999999999", "leader": None, "to": "dead"},
        {"from": "leader 1, isr [x], leader epoch 2"},
        {"from": "leader 99999999999999999999, isr [99999999999999999999], leader epoch 99999999999999999999"},
        {"phases": []},
        {"phases": [["a", 5], ["b", 0]]},
        {"new": {"a": [1]}},
    ],
)
def test_a_decision_is_one_however_odd_its_words(changes: dict[str, Any]) -> None:
    text = line(**changes)
    assert decision_of(text) == decode_decision(text) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"time_ms": 1_777_939_190_000_000},
        {"time_ms": 9_000_000_000_000_000_000},
        {"time_ms": LATEST_MS},
        {"time_ms": -1},
        {"number": 2**63},
        {"controller_epoch": 2**31},
        {"source": -(2**31) - 1},
        {"leader": 2**31},
        {"isr": [1, 2**31]},
        {"isr": [None]},
        {"isr": ["x"]},
        {"leader_epoch": 2**31},
        {"version": 2**31},
        {"phases": [["a", "x"]]},
        {"phases": [["a"]]},
        {"phases": [[]]},
        {"phases": [[5, 7]]},
        {"phases": [["a", -1]]},
        {"phases": [["a", LATEST_MS]]},
        {"subject": f"t-{2**31}"},
        {"subject": "t-" + "9" * 5000},
        {"event": 5},
        {"why": None},
    ],
)
def test_a_number_that_is_none_of_its_field_makes_it_no_decision(changes: dict[str, Any]) -> None:
    assert decision_of(line(**changes)) is None


def test_brackets_without_end_are_no_decision() -> None:
    deep = b'{"new":' + b"[" * 100_000 + b"]" * 100_000 + b"," + line()[1:]
    assert decode_decision(deep) is decision_of(deep) is None


def test_decisions_are_packed_and_lines_counted_by_origin() -> None:
    *origins, decisions = parsed_batch(GIVEN).to_pylist()
    numbers = {"lines": 2, "decisions": 1, "malformed": 1}
    told = {"origin": "file:/a", **numbers, "a_malformed_line": "hello \ufffd", "problem": "gone", "records": None}
    assert origins == [told]
    [state] = pa.ipc.open_stream(decisions.pop("records")).read_all().to_pylist()
    assert state == {**STATE, "role": "controller", "phases": [["a", "5"]], "topic": "t", "partition": 0}
    assert set(decisions.values()) == {None}
