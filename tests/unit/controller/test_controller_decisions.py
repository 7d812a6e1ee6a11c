"""Decisions as they are logged and written."""

from __future__ import annotations

import logging
import threading

import pytest

from regency.controller.state.decisions import LINES_PER_EVENT, REMEMBERED, DecisionLog, Outcome
from regency.history.files import HistoryWriter, read_history
from regency.model.clock import ManualClock
from regency.model.facts import LeaderAndIsr
from regency.model.ids import TopicPartition


@pytest.fixture
def log(tmp_path) -> DecisionLog:
    return DecisionLog(HistoryWriter(tmp_path, "controller"), 4, 2, ManualClock())


def test_a_leadership_is_written_with_its_state(log, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    log.begin("broker_change")
    before, after = LeaderAndIsr(1, 5, (1, 2), 7), LeaderAndIsr(2, 6, (2,), 8)
    log.leadership(TopicPartition("t", 3), Outcome.ELECTED, before, after, "first live replica")
    log.commit()

    (record,) = read_history([tmp_path])
    assert (record.controller_epoch, record.number, record.event, record.subject) == (4, 1, "broker_change", "t-3")
    assert (record.leader, record.isr, record.leader_epoch, record.version) == (2, (2,), 6, 8)
    assert record.from_ == "leader 1, isr [1, 2], leader epoch 5"
    assert record.to == "leader 2, isr [2], leader epoch 6"
    assert "elected 2 for t-3 (was 1): first live replica" in caplog.text


def test_decisions_of_other_kinds_are_numbered_on_and_many_are_one_line(log, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    log.begin("reconcile")
    log.note("broker 1", "absent", "live", "it registered")
    log.note_each([])
    log.note_each((f"t-{number}", "on broker 1", "told again", "it has no fetcher") for number in range(3))
    caplog.clear()
    log.note_each((f"u-{number}", "on broker 1", "told again", "why") for number in range(LINES_PER_EVENT + 1))

    records = read_history([tmp_path])
    assert [each.number for each in records] == list(range(1, LINES_PER_EVENT + 6))
    assert (records[1].subject, records[1].leader, records[1].version) == ("t-0", None, None)
    assert [each.getMessage() for each in caplog.records] == [
        f"reconcile decided about {LINES_PER_EVENT + 1}, such as u-0: {LINES_PER_EVENT + 1} told again"
    ]


def test_the_last_are_read_while_others_are_decided(log):
    """Whatever another thread sees meanwhile are the last ones of some moment, in order and without a gap."""
    done = threading.Event()

    def decide() -> None:
        for number in range(300):
            log.note_each((f"t-{number}", "on broker 1", "told again", "why") for _ in range(3))
        done.set()

    thread = threading.Thread(target=decide)
    thread.start()
    seen = []
    while not done.is_set():
        seen.append([each.number for each in log.last(REMEMBERED)])
    thread.join()

    assert [each.number for each in log.last(2)] == [899, 900]
    for numbers in filter(None, seen):
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert len(numbers) == min(numbers[-1], REMEMBERED)
