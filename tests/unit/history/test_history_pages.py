"""Histories of one host in pages, and decisions about one partition in the order of its states."""

from __future__ import annotations

import os
import random

import pytest

from regency.history.files import HistoryWriter
from regency.history.pages import Wanted, read_page
from regency.history.records import Decision, decode_decision, in_order_of_states, merge_decisions

ALL = Wanted()


def decision(number: int, subject: str = "t-0", *, epoch: int = 1, time: int = 0, role: str = "controller", **more):
    return Decision(epoch, number, "event", subject, "a", "b", "because", time or number, 1, role, **more)


def pages(directory, wanted: Wanted = ALL, most: int = 1 << 20) -> tuple[list[tuple[str, int, int]], int]:
    """Role, epoch and number of what all pages hold, and how many pages there were."""
    found, after, count = [], None, 0
    while True:
        page = read_page(directory, wanted, after, most=most)
        count += 1
        for line in page.lines:
            read = decode_decision(line)
            found.append((read.role, read.controller_epoch, read.number))
        if page.next is None:
            return found, count
        after = page.next


def test_pages_hold_every_decision_once_in_order_of_process_epoch_and_number(tmp_path):
    controller, agent = HistoryWriter(tmp_path, "controller"), HistoryWriter(tmp_path, "agent")
    controller.write([decision(number) for number in range(1, 8)])
    agent.write([decision(number, epoch=9 - number, role="agent") for number in range(1, 5)])
    controller.write([decision(number, epoch=2) for number in range(1, 4)])

    expected = [("agent", 9 - number, number) for number in range(1, 5)]
    expected += [("controller", 1, number) for number in range(1, 8)]
    expected += [("controller", 2, number) for number in range(1, 4)]
    assert pages(tmp_path) == (expected, 1)
    assert pages(tmp_path, most=1)[0] == expected
    assert pages(tmp_path, most=300)[0] == expected


def test_a_rotation_between_pages_loses_and_repeats_nothing(tmp_path):
    writer = HistoryWriter(tmp_path, "controller", max_bytes=600, max_files=20)
    writer.write([decision(number) for number in range(1, 20)])
    first = read_page(tmp_path, ALL, most=500)
    writer.write([decision(number) for number in range(20, 40)])

    rest = read_page(tmp_path, ALL, first.next)
    numbers = [decode_decision(line).number for line in (*first.lines, *rest.lines)]
    assert numbers == list(range(1, 40))
    assert len(list(tmp_path.iterdir())) > 5


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Wanted(frozenset({"t-0"})), {"t-0"}),
        (Wanted(frozenset({"t", "topic t"}), "t"), {"t-0", "t-11", "topic t"}),
        (Wanted(frozenset({"broker 1"})), {"broker 1"}),
        (Wanted(since_ms=4), {"topic t", "broker 1", "controller"}),
        (Wanted(since_ms=2, until_ms=3), {"t-11", "t-0-x"}),
        (Wanted(), {"t-0", "t-11", "t-0-x", "topic t", "broker 1", "controller"}),
        (Wanted(frozenset({"nothing"})), set()),
    ],
)
def test_what_is_asked_for(tmp_path, wanted, found):
    subjects = ["t-0", "t-11", "t-0-x", "topic t", "broker 1", "controller"]
    writer = HistoryWriter(tmp_path, "controller")
    writer.write([decision(number, subject) for number, subject in enumerate(subjects, start=1)])
    read = read_page(tmp_path, wanted)
    assert {decode_decision(line).subject for line in read.lines} == found
    assert read.next is None


def test_files_that_were_last_written_before_are_not_read(tmp_path):
    writer = HistoryWriter(tmp_path, "controller", max_bytes=200)
    writer.write([decision(1, time=5_000)])
    writer.write([decision(2, time=9_000)])
    os.utime(tmp_path / "controller.1.jsonl", (6, 6))
    (tmp_path / "controller.1.jsonl").chmod(0o600)
    found, _ = pages(tmp_path, Wanted(since_ms=8_000))
    assert found == [("controller", 1, 2)]


def test_odd_lines_and_missing_folders_are_nothing(tmp_path):
    assert pages(tmp_path / "nowhere") == ([], 1)
    (tmp_path / "controller.jsonl").write_bytes(b'{"torn\n\xff\xfe\n[]\n')
    assert pages(tmp_path) == ([], 1)


def test_a_block_larger_than_a_file_is_spread_over_files(tmp_path):
    writer = HistoryWriter(tmp_path, "controller", max_bytes=1_000, max_files=4)
    writer.write([decision(number) for number in range(1, 200)])
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 4
    assert max(sizes) < 1_200
    found, _ = pages(tmp_path)
    assert [number for *_, number in found] == list(range(200 - len(found), 200))


def test_states_of_a_partition_stand_in_the_order_of_their_versions_whatever_the_clocks_say():
    created = decision(1, time=100, version=0, leader_epoch=0)
    elected = decision(2, time=200, version=2, leader_epoch=1)
    again = decision(3, time=400, version=4, leader_epoch=2)
    grown = decision(1, time=950, role="agent", version=1, leader_epoch=0)
    shrunk = decision(2, time=960, role="agent", version=3, leader_epoch=1)
    repaired = decision(4, time=500)
    merged = merge_decisions([[created, elected, again, repaired], [grown, shrunk]])
    assert merged != [created, grown, elected, shrunk, repaired, again]
    versions = [each.version for each in in_order_of_states(merged) if each.version is not None]
    assert versions == [0, 1, 2, 3, 4]


def test_a_partition_that_was_created_anew_begins_anew():
    rows = [decision(n, version=version) for n, version in enumerate((0, 2, 1, 0, 1), start=1)]
    assert [each.version for each in in_order_of_states(rows)] == [0, 1, 2, 0, 1]
    shuffled = rows[:3]
    random.Random(1).shuffle(shuffled)
    assert [each.version for each in in_order_of_states(shuffled)] == [0, 1, 2]
