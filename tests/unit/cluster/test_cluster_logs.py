"""Logs of several processes as one: by time, whole entries, and from where the last reading ended."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from regency.cluster.logs import Entry, LogFile, Wanted, merged
from regency.model.ids import BrokerId

ONE = """\
2026-05-04T10:00:00.100Z INFO    agent-1 a: first
2026-05-04T10:00:02.000Z ERROR   agent-1 a: failed
Traceback (most recent call last):
  boom
2026-05-04T10:00:04.000Z INFO    controller-1 c: rules
"""
TWO = "2026-05-04T10:00:01.000Z INFO    agent-2 a: second\n2026-05-04T10:00:03.000Z INFO    agent-2 a: third\n"


def files(directory: Path) -> list[LogFile]:
    (directory / "1").write_text(ONE)
    (directory / "2").write_text(TWO)
    return [LogFile("broker 1", directory / "1"), LogFile("broker 2", directory / "2"), LogFile("x", directory / "no")]


def test_entries_come_by_time_and_keep_their_further_lines(tmp_path: Path) -> None:
    found = list(merged(files(tmp_path)))
    assert [entry.text.split(": ", 1)[1] for entry in found] == [
        "first",
        "second",
        "failed\nTraceback (most recent call last):\n  boom",
        "third",
        "rules",
    ]
    assert [entry.controller for entry in found] == [False] * 4 + [True]
    assert found[1].at_ms - found[0].at_ms == 900


def test_reading_goes_on_where_it_ended_and_leaves_half_a_line(tmp_path: Path) -> None:
    [one, *_] = files(tmp_path)
    assert len(list(one.read(finished=False))) == 3
    with one.path.open("a") as log:
        log.write("2026-05-04T10:00:05.000Z INFO    agent-1 a: ha")
        log.flush()
        assert list(one.read(finished=False)) == []
        log.write("lf\n")
    assert [entry.text[-4:] for entry in one.read(finished=False)] == ["half"]
    one.path.write_text("2026-05-04T10:00:06.000Z INFO    agent-1 a: anew\n")
    assert [entry.text[-4:] for entry in one.read(finished=False)] == ["anew"]


def test_times_without_a_zone_are_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Etc/GMT-2")
    time.tzset()
    try:
        (tmp_path / "zk").write_text("2026-05-04T12:00:00,100 WARN  Server: hello\n")
        [one, *_] = files(tmp_path)
        [hello] = LogFile("zookeeper", tmp_path / "zk").read(finished=True)
        assert hello.at_ms == next(one.read(finished=True)).at_ms
    finally:
        monkeypatch.undo()
        time.tzset()


def test_lines_without_any_time_have_that_of_their_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("Error: Could not create the Java Virtual Machine.\n")
    os.utime(tmp_path / "out", (100, 100))
    [entry] = LogFile("zookeeper", tmp_path / "out").read(finished=True)
    assert entry.at_ms == 100_000


@pytest.mark.parametrize("lines", [0, 1, 3, 10_000])
def test_the_last_lines_of_a_long_file_are_found_from_its_end(tmp_path: Path, lines: int) -> None:
    count = 5_000
    text = [f"2026-05-04T10:{n // 60 % 60:02}:{n % 60:02}.000Z INFO    agent-1 a: {n:060}" for n in range(count)]
    (tmp_path / "long").write_text("".join(f"{line}\n" for line in text))
    file = LogFile("broker 1", tmp_path / "long")
    file.skip_to_last(lines)
    found = [entry.text for entry in file.read(finished=True)]
    assert found[max(0, len(found) - lines) :] == text[max(0, count - lines) :]
    assert len(found) < lines + 1_500 or len(found) == count


def test_what_is_wanted() -> None:
    agent, ruler, zk = Entry(5, "broker 12", ""), Entry(6, "broker 12", "", True), Entry(7, "zookeeper", "")
    assert [Wanted(since_ms=6).has(each) for each in (agent, ruler, zk)] == [False, True, True]
    assert [Wanted(controllers=True).has(each) for each in (agent, ruler, zk)] == [False, True, False]
    assert [Wanted(brokers=frozenset({BrokerId(12)})).has(each) for each in (agent, ruler, zk)] == [True, True, False]
    assert [Wanted(brokers=frozenset({BrokerId(2)})).has(each) for each in (agent, ruler, zk)] == [False] * 3
    assert [Wanted(zookeeper=True).has(each) for each in (agent, ruler, zk)] == [False, False, True]
