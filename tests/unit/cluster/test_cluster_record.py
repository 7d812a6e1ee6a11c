"""cluster.json changed by several programs: one at a time, and what has ended stays known."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from regency.cluster.errors import ClusterNotRunning, ClusterRunning
from regency.cluster.process.endings import LastLife
from regency.cluster.process.processes import ProcessRef, reference
from regency.cluster.record import LOCK_NAME, LabRecord, with_ended, with_started
from regency.cluster.state import ClusterState, read_state, write_state

EMPTY = ClusterState(zookeeper_connect="zk:2181", zookeeper_port=0, session_timeout_ms=3000, brokers=())
GONE = ProcessRef("agent-1", 1, "another boot/1")


def test_only_one_program_at_a_time(tmp_path: Path) -> None:
    first, second = LabRecord(tmp_path), LabRecord(tmp_path)
    with first.locked(), first.locked(), pytest.raises(ClusterRunning, match="being started"), second.locked(0.1):
        pass
    with second.locked(0):
        pass


def test_a_lock_in_a_directory_that_was_removed_and_made_again_is_not_that_of_the_new_one(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    got: list[bool] = []

    def take() -> None:
        with LabRecord(home).locked(10):
            got.append(home.joinpath(LOCK_NAME).exists())

    with LabRecord(home).locked():
        waiting = threading.Thread(target=take)
        waiting.start()
        shutil.rmtree(home)
        home.mkdir()
    waiting.join()
    assert got == [True]


def test_changes_of_two_programs_are_both_kept(tmp_path: Path) -> None:
    write_state(tmp_path, EMPTY)
    LabRecord(tmp_path).change(lambda state: msgspec.structs.replace(state, log_dirs=2))
    LabRecord(tmp_path).change(lambda state: msgspec.structs.replace(state, first_port=9092))
    found = read_state(tmp_path)
    assert (found.log_dirs, found.first_port) == (2, 9092)
    tmp_path.joinpath("cluster.json").unlink()
    with pytest.raises(ClusterNotRunning, match="no cluster in"):
        LabRecord(tmp_path).change(lambda state: state)


def test_what_is_found_dead_is_remembered_as_that(sleeper: Callable[..., subprocess.Popen[bytes]]) -> None:
    living = reference("agent-2", sleeper().pid)
    state = with_started(msgspec.structs.replace(EMPTY, processes=(GONE, living)), ())
    assert (state.processes, state.ended) == ((living,), {"agent-1": LastLife(GONE)})
    again = reference("agent-1", sleeper().pid)
    state = with_started(state, (again,))
    assert state.processes == (again, living)


def test_the_end_of_an_earlier_life_is_not_noted_of_the_later(sleeper: Callable[..., subprocess.Popen[bytes]]) -> None:
    later = reference("agent-1", sleeper().pid)
    state = msgspec.structs.replace(EMPTY, processes=(later,))
    assert with_ended(state, [LastLife(GONE, "kill", 5)]) == state
    noted = with_ended(msgspec.structs.replace(EMPTY, processes=(GONE,)), [LastLife(GONE, "kill", 5)])
    assert (noted.processes, noted.ended) == ((), {"agent-1": LastLife(GONE, "kill", 5)})
    assert with_started(noted, ()).ended == noted.ended
