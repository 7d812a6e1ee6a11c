"""Whether what was written before the last end of the agent is there yet, and what the next start finds out of it."""

from __future__ import annotations

import errno
import shutil

import pytest

from regency.runtime.disk import OsDisk


class Machine(OsDisk):
    """A disk on a machine that is booted when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.booted = "first"

    @property
    def boot_id(self) -> str:
        return self.booted


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def start(disk, machine):
    """Opens the logs and registers, as an agent does; tells whether they were whole."""
    disk.dirs = [disk.root / "a", disk.root / "b"]

    def start(*, registers: bool = True) -> bool:
        continuity = disk.open(disk=machine).continuity
        whole = continuity.whole
        if registers:
            continuity.note_registered()
        return whole

    return start


def test_an_agent_that_was_killed_or_stopped_has_lost_nothing(disk, start):
    start()
    disk.crash()
    assert start()
    disk.manager.close()
    assert start()
    disk.crash()
    assert start()


def test_a_session_that_is_lost_loses_no_logs(disk, start):
    assert not start(), "nothing tells what was before"
    assert disk.manager.continuity.whole, "what this process writes is there as long as it is"


@pytest.mark.parametrize("booted", ["second", ""])
def test_another_boot_or_an_unknown_one_may_have_lost_what_was_not_synced(disk, start, machine, booted):
    machine.booted = "first" if booted else ""
    start()
    disk.crash()
    machine.booted = booted
    assert not start()


def test_a_clean_shutdown_loses_nothing_whatever_is_booted_after_it(disk, start, machine):
    start()
    disk.manager.close()
    machine.booted = "second"
    assert start()


def test_who_dies_before_the_cluster_knows_of_the_loss_does_not_hide_it(disk, start, machine):
    start()
    disk.crash()
    machine.booted = "second"
    assert not start(registers=False)
    disk.crash()
    assert not start()
    disk.crash()
    assert start()


@pytest.mark.parametrize("clean", [False, True])
def test_a_directory_that_was_emptied_has_lost_everything(disk, start, clean):
    start()
    disk.manager.close() if clean else disk.crash()
    shutil.rmtree(disk.root / "b")
    assert not start()


@pytest.mark.parametrize("clean", [False, True])
def test_so_has_one_that_was_taken_out_of_the_settings(disk, start, clean):
    start()
    disk.manager.close() if clean else disk.crash()
    disk.dirs.pop()
    assert not start()


@pytest.mark.parametrize("clean", [False, True])
def test_one_that_failed_may_have_lost_what_the_kernel_could_not_write(disk, start, clean):
    start()
    failing = next(each for each in disk.manager._directories if each.path.name == "b")
    failing.fail(OSError(errno.EIO, "broken"))
    disk.manager.close() if clean else disk.crash()
    assert not start()


def test_one_that_cannot_be_read_at_the_start_may_have_too(disk, start):
    start()
    disk.crash()
    (disk.root / "b" / "meta.properties").unlink()
    (disk.root / "b" / "meta.properties").mkdir()
    assert not start()
    disk.crash()
    (disk.root / "b" / "meta.properties").rmdir()
    assert not start(), "what it has is from before"
