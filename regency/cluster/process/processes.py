"""Processes by pid and start time, so that a reused pid is never mistaken for ours. From /proc, or `ps` without it.

The process that holds the lock of a broker's log directory runs as that broker, also where it was started by hand: so
`regency agent --config DIR/agent-2/server.properties` is part of the cluster in DIR as any other.

Every process that a cluster starts leads a process group of its own; what it starts itself (an agent's controller
child) stays in that group. Signals go to whole groups.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cache
from pathlib import Path

import msgspec

_PROC = Path("/proc")
_POLL_S = 0.02
_PAUSE_TIMEOUT_S = 5.0
_LEAST_GRACE_S = 1.0
"""What the last one gets, however long the others took."""
_STOPPED = ("T", "t")
_STAT_THREADS, _STAT_STARTED = 17, 19  # fields of /proc/PID/stat, counted from `state`


class ProcessRef(msgspec.Struct, frozen=True):
    """A process as cluster.json remembers it. `started` is opaque: equal only for the same process of the same boot."""

    name: str
    pid: int
    started: str


class ProcessState(Enum):
    """What a process is doing, as far as its keeper cares."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class ProcessRow(msgspec.Struct, frozen=True, gc=False):
    """One line of the process table. `state` is the letter that `ps` shows: T stopped, Z zombie."""

    pid: int
    parent: int
    group: int
    state: str
    started: str

    @property
    def alive(self) -> bool:
        """Whether it can still run: a zombie cannot."""
        return self.state not in ("Z", "X")


def process(pid: int) -> ProcessRow | None:
    """The row of a process that is alive; None where there is none."""
    if _PROC.joinpath("self", "stat").exists():
        row = _read_stat(pid)
    else:
        row = next((candidate for candidate in _ask_ps() if candidate.pid == pid), None)
    return row if row is not None and row.alive else None


def all_processes() -> list[ProcessRow]:
    """Every process that is alive, by pid."""
    if not _PROC.joinpath("self", "stat").exists():
        return [row for row in _ask_ps() if row.alive]
    pids = sorted(int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal())
    rows = (_read_stat(pid) for pid in pids)
    return [row for row in rows if row is not None and row.alive]


def reference(name: str, pid: int) -> ProcessRef | None:
    """Remember a process that is alive; None where it is gone already."""
    row = process(pid)
    return None if row is None else ProcessRef(name, pid, row.started)


def members(ref: ProcessRef) -> list[ProcessRow]:
    """The process, its descendants and all of its group, itself first; empty when gone or the pid is someone else's."""
    return _members(ref, all_processes())


def _members(ref: ProcessRef, rows: Sequence[ProcessRow]) -> list[ProcessRow]:
    root = next((row for row in rows if row.pid == ref.pid), None)
    if root is not None and root.started != ref.started:
        return []
    boot = ref.started.partition("/")[0]
    found = {ref.pid: root} if root is not None else {}
    for row in rows:
        if row.group == ref.pid and row.started.startswith(boot):
            found[row.pid] = row
    while new := [row for row in rows if row.parent in found and row.pid not in found]:
        found.update((row.pid, row) for row in new)
    return list(found.values())


def state_of(ref: ProcessRef) -> ProcessState:
    """What the process itself (not its children) is doing."""
    row = process(ref.pid)
    if row is None or row.started != ref.started:
        return ProcessState.DEAD
    return ProcessState.PAUSED if row.state in _STOPPED else ProcessState.RUNNING


def send(ref: ProcessRef, signal_number: signal.Signals, *, children: bool = True) -> bool:
    """Send a signal to the process and, with `children`, to all of its group; False when there was no process.

    A process that ended in between is no error.
    """
    rows = members(ref)
    targets = rows if children else [row for row in rows if row.pid == ref.pid]
    sent = False
    for row in targets:
        sent = send_one(row, signal_number) or sent
    return sent


def send_one(row: ProcessRow, signal_number: signal.Signals) -> bool:
    """Send a signal to exactly this process; False when it is gone, whatever process has its pid now."""
    if sys.platform != "linux":
        return _same_process(row) and _quietly(lambda: os.kill(row.pid, signal_number))
    try:
        descriptor = os.pidfd_open(row.pid)
    except ProcessLookupError:
        return False
    try:
        return _same_process(row) and _quietly(lambda: signal.pidfd_send_signal(descriptor, signal_number))
    finally:
        os.close(descriptor)


def pause(ref: ProcessRef, timeout_s: float = _PAUSE_TIMEOUT_S) -> None:
    """SIGSTOP the process and all of its group, and wait until every thread of them stands still.

    A signal takes hold thread by thread: one that is writing to a disk goes on until it is done, so the wait ends after
    `timeout_s` seconds at the latest.
    """
    deadline = time.monotonic() + timeout_s
    while send(ref, signal.SIGSTOP) and not all(map(_stands_still, members(ref))):  # again: it may have forked
        if time.monotonic() >= deadline:
            return
        time.sleep(_POLL_S)


def wait_gone(refs: Sequence[ProcessRef], timeout_s: float) -> list[ProcessRef]:
    """Wait until the processes and their groups are gone; the ones that are not after `timeout_s` seconds."""
    left = list(refs)
    deadline = time.monotonic() + timeout_s
    while True:
        rows = all_processes()
        left = [ref for ref in left if _members(ref, rows)]
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(_POLL_S)


def end(
    refs: Sequence[ProcessRef], *, grace_s: float, kill_timeout_s: float = 10.0, last: str = ""
) -> list[ProcessRef]:
    """End processes and their groups: resume, SIGTERM, up to `grace_s` seconds, SIGKILL. Returns those killed.

    The one of the name `last` is asked when the others are gone. `grace_s` 0 kills at once. Only the process itself
    gets SIGTERM: it ends its children in its own order.
    """
    left = [ref for ref in refs if members(ref)]
    if grace_s > 0:
        until, asked = time.monotonic() + grace_s, left
        left = []
        for group in ([ref for ref in asked if ref.name != last], [ref for ref in asked if ref.name == last]):
            for ref in group:
                send(ref, signal.SIGCONT)
                send(ref, signal.SIGTERM, children=state_of(ref) is ProcessState.DEAD)
            left += wait_gone(group, max(until - time.monotonic(), min(grace_s, _LEAST_GRACE_S)))
    deadline = time.monotonic() + kill_timeout_s
    alive = left
    while alive and time.monotonic() < deadline:
        for ref in alive:  # again each time: a process may fork while it is being killed
            send(ref, signal.SIGKILL)
        alive = wait_gone(alive, 0.1)
    return left


def _stands_still(row: ProcessRow) -> bool:
    try:
        threads = [int(entry.name) for entry in _PROC.joinpath(str(row.pid), "task").iterdir()]
    except OSError:
        return row.state in _STOPPED  # gone, or a system without /proc
    stats = (_read_stat(thread) for thread in threads)
    return all(stat is None or not stat.alive or stat.state in _STOPPED for stat in stats)


def _same_process(row: ProcessRow) -> bool:
    now = process(row.pid)
    return now is not None and now.started == row.started


def _quietly(call: Callable[[], None]) -> bool:
    try:
        call()
    except ProcessLookupError:
        return False
    return True


def _read_stat(pid: int) -> ProcessRow | None:
    try:
        text = _PROC.joinpath(str(pid), "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    started = f"{this_boot()}/{fields[_STAT_STARTED]}"
    state = fields[0]
    if state == "Z" and int(fields[_STAT_THREADS]) > 1:
        state = "R"  # only the first thread has ended; the others still hold ports and files
    return ProcessRow(pid=pid, parent=int(fields[1]), group=int(fields[2]), state=state, started=started)


@cache
def this_boot() -> str:
    """What `started` of every process of this boot begins with, up to its slash."""
    if not _PROC.joinpath("self", "stat").exists():
        return "ps"
    try:
        return _PROC.joinpath("sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "boot"


def _ask_ps() -> list[ProcessRow]:
    command = ["ps", "-A", "-o", "pid=,ppid=,pgid=,stat=,lstart="]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603
    rows = []
    for line in output.splitlines():
        pid, parent, group, state, started = line.split(None, 4)
        rows.append(ProcessRow(int(pid), int(parent), int(group), state[0], f"ps/{started.strip()}"))
    return rows


LOCK_NAME = ".lock"
"""In each log directory, as Kafka has it; locked by fcntl as long as an agent runs."""

_LINUX = struct.Struct("hhqqi0q")
_BSD = struct.Struct("qqihh")


def started_by_hand(name: str, log_directory: Path) -> ProcessRef | None:
    """The process that has locked the log directory; None where none has."""
    pid = lock_holder(log_directory / LOCK_NAME)
    return None if pid is None else reference(name, pid)


def lock_holder(path: Path) -> int | None:
    """The process that has locked a file by fcntl; None where no other process has, or it cannot be told."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if sys.platform == "linux":
            asked = _LINUX.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = _LINUX.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        else:
            asked = _BSD.pack(0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
            _, _, pid, kind, _ = _BSD.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return pid if kind != fcntl.F_UNLCK and pid > 0 else None
