"""Processes are known by pid and start time, agents by the lock they hold; signals reach whole groups, no stranger."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from regency.cluster.process import processes
from regency.cluster.process.processes import ProcessRef, ProcessState, end, members, reference, send, state_of
from regency.kafka.logfiles.file_names import LOCK

Sleeper = Callable[..., subprocess.Popen[bytes]]
Eventually = Callable[..., None]

WITH_CHILD = """
import os, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"])
print(child.pid, flush=True)
signal.pause()
"""
STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True:
    signal.pause()
"""


BUSY_THREADS = """
import signal, subprocess, sys, threading
subprocess.Popen([sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"])
for _ in range(8):
    threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
print("ready", flush=True)
signal.pause()
"""


def remember(child: subprocess.Popen[bytes]) -> ProcessRef:
    ref = reference("sleeper", child.pid)
    assert ref is not None
    return ref


def first_line(child: subprocess.Popen[bytes]) -> bytes:
    assert child.stdout is not None
    return child.stdout.readline()


def test_process_is_running_then_paused_then_running_then_dead(sleeper: Sleeper, eventually: Eventually) -> None:
    child = sleeper()
    ref = remember(child)
    assert state_of(ref) is ProcessState.RUNNING
    send(ref, signal.SIGSTOP)
    eventually(lambda: state_of(ref) is ProcessState.PAUSED, what="it is paused")
    send(ref, signal.SIGCONT)
    eventually(lambda: state_of(ref) is ProcessState.RUNNING, what="it runs again")
    send(ref, signal.SIGKILL)
    eventually(lambda: state_of(ref) is ProcessState.DEAD, what="it is dead, though nobody has waited for it")


def test_a_pause_returns_when_every_thread_of_the_group_stands_still(sleeper: Sleeper) -> None:
    child = sleeper(BUSY_THREADS)
    assert first_line(child) == b"ready\n"
    ref = remember(child)
    processes.pause(ref)
    stopped = [
        stat.read_text().rpartition(")")[2].split()[0]
        for row in members(ref)
        for stat in Path(f"/proc/{row.pid}/task").glob("*/stat")
    ]
    assert len(stopped) >= 10, "nine threads and the child"
    assert set(stopped) == {"T"}


def test_a_pause_of_what_is_gone_is_harmless(sleeper: Sleeper) -> None:
    child = sleeper()
    ref = remember(child)
    send(ref, signal.SIGKILL)
    child.wait()
    processes.pause(ref)
    assert state_of(ref) is ProcessState.DEAD


def test_process_with_a_reused_pid_is_never_signalled(sleeper: Sleeper) -> None:
    child = sleeper()
    former = msgspec.structs.replace(remember(child), started="another boot/12345")
    assert state_of(former) is ProcessState.DEAD
    assert members(former) == []
    assert not send(former, signal.SIGKILL)
    assert end([former], grace_s=0) == []
    assert child.poll() is None


def test_signal_to_one_process_is_withheld_from_its_successor(sleeper: Sleeper) -> None:
    row = processes.process(sleeper().pid)
    assert row is not None
    assert not processes.send_one(msgspec.structs.replace(row, started="another boot/1"), signal.SIGKILL)
    assert processes.process(row.pid) is not None


def test_kill_reaches_the_child_of_the_process(sleeper: Sleeper, eventually: Eventually) -> None:
    parent = sleeper(WITH_CHILD)
    grandchild = int(first_line(parent))
    ref = remember(parent)
    assert [row.pid for row in members(ref)] == [parent.pid, grandchild]
    assert end([ref], grace_s=0) == [ref]
    eventually(lambda: processes.process(grandchild) is None, what="the child is gone")
    assert members(ref) == []


def test_orphan_of_a_dead_process_is_still_a_member_of_its_group(sleeper: Sleeper, eventually: Eventually) -> None:
    parent = sleeper(WITH_CHILD)
    grandchild = int(first_line(parent))
    ref = remember(parent)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert [row.pid for row in members(ref)] == [grandchild]
    assert end([ref], grace_s=5) == []
    eventually(lambda: processes.process(grandchild) is None, what="the orphan is gone")


def test_end_resumes_a_paused_process_so_that_it_can_leave_in_order(sleeper: Sleeper) -> None:
    child = sleeper(
        "import signal, sys\nsignal.signal(15, lambda *_: sys.exit(7))\nprint('ready', flush=True)\nsignal.pause()"
    )
    first_line(child)
    ref = remember(child)
    send(ref, signal.SIGSTOP)
    assert end([ref], grace_s=10) == []
    assert child.wait() == 7


def test_end_kills_what_does_not_listen(sleeper: Sleeper) -> None:
    child = sleeper(STUBBORN)
    first_line(child)
    ref = remember(child)
    assert end([ref], grace_s=0.05) == [ref]
    assert child.wait() == -signal.SIGKILL


def test_end_of_nothing_is_harmless(sleeper: Sleeper) -> None:
    child = sleeper()
    ref = remember(child)
    child.kill()
    child.wait()
    assert end([ref], grace_s=1) == []
    assert reference("gone", child.pid) is None


def test_ps_gives_the_same_answer_as_proc(sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch) -> None:
    child = sleeper()
    by_proc = processes.process(child.pid)
    assert by_proc is not None
    monkeypatch.setattr(processes, "_PROC", processes.Path("/no/proc/here"))
    by_ps = processes.process(child.pid)
    assert by_ps is not None
    assert (by_ps.pid, by_ps.parent, by_ps.group) == (by_proc.pid, by_proc.parent, by_proc.group)
    assert by_ps.started in [row.started for row in processes.all_processes() if row.pid == child.pid]


def test_the_process_that_has_locked_a_directory_is_found_until_it_ends(
    lock_holder: Callable[..., int], tmp_path: Path, eventually: Eventually
) -> None:
    pid = lock_holder(tmp_path)

    found = processes.started_by_hand("agent-7", tmp_path)
    assert found is not None
    assert (found.name, found.pid) == ("agent-7", pid)

    os.kill(pid, signal.SIGKILL)
    eventually(lambda: processes.started_by_hand("agent-7", tmp_path) is None, what="the lock goes with the process")


def test_an_agent_locks_its_directory_so_that_it_is_found(
    owner: Callable[[str], subprocess.Popen[str]], tmp_path: Path
) -> None:
    agent = owner(f"""
        import signal
        from pathlib import Path
        from regency.runtime.disk import OsDisk
        OsDisk().lock(Path({str(tmp_path)!r}) / {LOCK!r})
        print("locked", flush=True)
        signal.pause()
    """)
    assert agent.stdout is not None
    assert agent.stdout.readline() == "locked\n"

    assert processes.lock_holder(tmp_path / processes.LOCK_NAME) == agent.pid


def test_nobody_is_found_where_nothing_is_locked_or_nothing_is(tmp_path: Path) -> None:
    assert processes.started_by_hand("agent-7", tmp_path) is None
    (tmp_path / LOCK).write_bytes(b"")
    assert processes.started_by_hand("agent-7", tmp_path) is None
