"""Syncing in the background, and what a stop leaves of it."""

from __future__ import annotations

import errno
from pathlib import Path

from regency.broker_agent.log.background import BackgroundSync
from regency.broker_agent.log.disk import OsDisk


class Later:
    """A worker that runs what it is given when it is told."""

    def __init__(self) -> None:
        self.jobs = []

    def submit(self, work, done):
        self.jobs.append((work, done))

    def run(self) -> None:
        jobs, self.jobs = self.jobs, []
        for work, done in jobs:
            done(work())


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
