"""Syncing in the background, and what a stop leaves of it."""

from __future__ import annotations

import errno
import functools
import os
from pathlib import Path

import pytest

from regency.broker_agent.log.background import BackgroundSync
from regency.broker_agent.process.data_loop import RETRY_MS, LoopClosed, PatientWorker
from regency.runtime.disk import OsDisk


class Later:
    """A worker that runs what it is given when it is told."""

    def __init__(self) -> None:
        self.jobs = []

    def submit(self, work, done):
        self.jobs.append((work, done))

    def run(self) -> None:
        jobs, self.jobs = self.jobs, []
        for work, done in jobs:
            try:
                outcome = work()
            except Exception as error:  # noqa: BLE001 (carried, as LoopWorker does)
                outcome = error
            done(outcome)


def fail(error: OSError) -> None:
    raise AssertionError(error)


def test_a_file_asked_for_while_others_are_synced_is_synced_after_them(tmp_path, monkeypatch):
    synced: list[Path] = []
    monkeypatch.setattr(OsDisk, "sync_path", lambda _, path: synced.append(path))
    worker, done = Later(), []
    syncs = BackgroundSync(OsDisk(), worker)
    syncs.later(tmp_path / "a", fail)
    syncs.later(tmp_path / "b", fail)
    syncs.when_done(lambda: done.append(True))
    worker.run()
    assert (synced, done) == ([tmp_path / "a"], [])
    worker.run()
    assert (synced, done) == ([tmp_path / "a", tmp_path / "b"], [True])


def test_who_asked_hears_of_a_failure_but_not_that_a_file_is_gone(tmp_path, monkeypatch):
    def sync(_, path: Path) -> None:
        if path.name == "bad":
            raise OSError(errno.EIO, "no", str(path))
        raise FileNotFoundError(errno.ENOENT, "no", str(path))

    monkeypatch.setattr(OsDisk, "sync_path", sync)
    worker, heard = Later(), []
    syncs = BackgroundSync(OsDisk(), worker)
    for name in ("gone", "bad", "gone too"):
        syncs.later(tmp_path / name, lambda error, name=name: heard.append((name, error.errno)))
    worker.run()
    worker.run()
    assert heard == [("bad", errno.EIO)]


@pytest.mark.parametrize("outcome", [RuntimeError("can't start new thread"), MemoryError(), LoopClosed("bye")])
def test_what_was_not_certainly_synced_goes_on_waiting(tmp_path, monkeypatch, outcome):
    worker, done = Later(), []
    syncs = BackgroundSync(OsDisk(), worker)
    syncs.later(tmp_path / "a", fail)
    syncs.when_done(lambda: done.append(True))
    [(_, tell)] = worker.jobs
    worker.jobs.clear()
    tell(outcome)
    assert (done, syncs.give_up()) == ([], [tmp_path / "a"])

    synced: list[Path] = []
    monkeypatch.setattr(OsDisk, "sync_path", lambda _, path: synced.append(path))
    syncs.later(tmp_path / "a", fail)
    worker.jobs.pop()[1](outcome)
    syncs.when_done(lambda: done.append(True))
    worker.run()
    assert (synced, done) == ([tmp_path / "a"], [True])


def test_a_file_that_met_a_shortage_beside_an_error_of_the_disk_waits_and_the_error_is_told(tmp_path, monkeypatch):
    troubles = {"bad": errno.EIO, "short": errno.EMFILE}

    def sync(_, path: Path) -> None:
        if number := troubles.pop(path.name, 0):
            raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(OsDisk, "sync_path", sync)
    worker, heard, done = Later(), [], []
    syncs = BackgroundSync(OsDisk(), worker)
    for name in ("first", "bad", "short"):
        syncs.later(tmp_path / name, lambda error: heard.append(error.errno))
    syncs.when_done(lambda: done.append(True))
    worker.run()
    worker.run()
    assert (heard, done, syncs.give_up()) == ([errno.EIO], [], [tmp_path / "short"])


def test_a_job_that_met_a_shortage_is_repeated_after_a_pause_and_an_error_of_the_disk_is_not():
    shortages = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, RuntimeError("can't start new thread"), MemoryError()]
    worker, delays, heard = Later(), [], []
    patient = PatientWorker(worker, lambda delay_ms, again: delays.append((delay_ms, again)))
    for final in (OSError(errno.EIO, "no"), FileNotFoundError(errno.ENOENT, "gone"), LoopClosed("bye"), 42):
        left = [OSError(each, "no") if isinstance(each, int) else each for each in shortages]
        patient.submit(functools.partial(last_of, [*left, final]), heard.append)
        for _ in left:
            worker.run()
            [(delay_ms, again)] = delays
            delays.clear()
            assert (delay_ms, worker.jobs) == (RETRY_MS, [])
            again()
        worker.run()
        assert (heard.pop(), heard, delays) == (final, [], [])
    assert patient.retries == 4 * len(shortages)


def test_work_that_fails_for_ever_is_told_of_again_and_again_but_rarely(caplog):
    worker, again = Later(), []
    patient = PatientWorker(worker, lambda _, then: again.append(then))
    patient.submit(lambda: 1 // 0, fail)
    for _ in range(99):
        worker.run()
        again.pop()()
    worker.run()
    assert [record.args[1] for record in caplog.records] == [1, 10, 100]


def last_of(outcomes: list[object]) -> object:
    outcome = outcomes.pop(0)
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def test_a_stop_gets_what_waits_and_what_may_not_have_been_finished(tmp_path, monkeypatch):
    worker = Later()
    syncs = BackgroundSync(OsDisk(), worker)
    assert syncs.give_up() == []
    for name in ("running", "waits", "waits too"):
        syncs.later(tmp_path / name, fail)
    assert syncs.give_up() == [tmp_path / name for name in ("running", "waits", "waits too")]
    monkeypatch.setattr(OsDisk, "sync_path", lambda _, path: None)
    worker.run()
    assert worker.jobs == []
