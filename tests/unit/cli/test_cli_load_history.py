"""What a load writes down is what became of its records."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from click.testing import Result

from regency.cli.data import load_history
from regency.cli.data.load_history import LoadHistory, content_of, value_of
from regency.cli.exits import CommandFailed
from regency.judge.operations import Outcome, Poll, Run, Send, decode_operations
from regency.judge.table import Anomaly
from regency.judge.verdict import judge

Command = Callable[..., Result]


@dataclass
class Record:
    """What librdkafka hands out."""

    at_partition: int
    at_offset: int
    content: bytes = b""
    failed: bool = False

    def partition(self) -> int:
        return self.at_partition

    def offset(self) -> int:
        return self.at_offset

    def value(self) -> bytes:
        return self.content

    def error(self) -> str | None:
        return "broken" if self.failed else None


@dataclass
class Log:
    """Two partitions, and a consumer that reads them in order."""

    records: list[Record] = field(default_factory=list)
    batches: list[list[Record]] = field(default_factory=list)

    def append(self, partition: int, value: int) -> Record:
        offset = sum(each.at_partition == partition for each in self.records)
        self.records.append(Record(partition, offset, content_of(value, bytes(20))))
        return self.records[-1]

    def get_watermark_offsets(self, place: object, timeout: float) -> tuple[int, int]:
        return 0, sum(each.at_partition == place.partition for each in self.records)

    def assign(self, places: list[object]) -> None:
        self.batches = [list(self.records)]

    def consume(self, most: int, timeout: float) -> list[Record]:
        return self.batches.pop(0) if self.batches else []

    def close(self) -> None:
        pass


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log()
    monkeypatch.setattr(load_history.confluent_kafka, "Consumer", lambda _: made)
    return made


def test_sends_polls_and_the_end_make_a_sound_history(log: Log) -> None:
    file = io.BytesIO()
    history = LoadHistory(file, "t", [1, 0])
    for value in range(1, 5):
        history.sent(value, history.now_ms())
        if value < 4:
            record = log.append(history.partition_of(value), value)
            history.completed(value, record.offset())
    history.polled([Record(0, 0, failed=True), *log.records[:2]], 0)
    log.batches = [[log.records[2]]]
    history.close(log, {})
    operations = decode_operations(file.getvalue().splitlines())
    assert judge(operations).clean
    sends = {
        each.value: (each.partition, each.number, each.outcome, each.offset)
        for each in operations
        if isinstance(each, Send)
    }
    assert sends == {
        1: (1, 0, Outcome.ACKNOWLEDGED, 0),
        2: (0, 0, Outcome.ACKNOWLEDGED, 0),
        3: (1, 1, Outcome.ACKNOWLEDGED, 1),
        4: (0, 1, Outcome.INDETERMINATE, -1),
    }
    polls = [
        (each.partition, each.position, each.next_position, each.runs) for each in operations if isinstance(each, Poll)
    ]
    assert polls == [
        (1, 0, 1, (Run(0, (1,)),)),
        (0, 0, 1, (Run(0, (2,)),)),
        (1, 1, 2, (Run(1, (3,)),)),
        (0, 1, 1, ()),
        (1, 2, 2, ()),
    ]
    log.records.pop(2)
    lost = [each for each in operations if not isinstance(each, Poll)][:-2]
    log.batches = []
    file.truncate(0)
    history.close(log, {})
    again = decode_operations(file.getvalue().lstrip(b"\0").splitlines())
    assert judge([*lost, *again]).counts.keys() >= {Anomaly.LOST_WRITE}


def test_an_end_that_does_not_come_is_told(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_history, "PATIENCE_S", 0.0)
    log.append(0, 1)
    with pytest.raises(CommandFailed, match=r"Nothing came from t for 0 s; not read to the end: partitions \[0\]"):
        LoadHistory(io.BytesIO(), "t", [0]).close(log, {})


def test_a_topic_with_records_is_refused(log: Log) -> None:
    history = LoadHistory(io.BytesIO(), "t", [0, 1])
    history.refuse_if_used(log)
    log.append(1, 1)
    with pytest.raises(CommandFailed, match=r"has, or had, records already, in partitions \[1\]"):
        history.refuse_if_used(log)


@pytest.mark.parametrize("value", [0, 1, 2**40])
def test_a_record_carries_its_number(value: int) -> None:
    assert value_of(content_of(value, b"x" * 20)) == value
    assert len(content_of(value, b"x" * 20)) == 20


def test_what_no_load_wrote_has_no_number() -> None:
    assert (value_of(None), value_of(b"short")) == (-1, -1)


@pytest.mark.parametrize("words", [("--no-read",), ("--size", "7")])
def test_what_a_history_needs_is_said(run: Command, words: tuple[str, ...]) -> None:
    result = run("load", "t", "--history", "h.jsonl", *words, "--bootstrap-server", "nobody:1")
    assert (result.exit_code, "histor" in result.stderr) == (2, True)
