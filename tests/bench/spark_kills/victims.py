"""The processes of a Spark application, by Linux' /proc, and how they are killed: by number and start time."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process as it was seen. `started` tells it from another that gets its number later."""

    pid: int
    started: int
    parent: int
    command: str

    @property
    def alive(self) -> bool:
        """Whether it is still there, and no zombie that waits for its parent."""
        now = _seen(self.pid)
        return now is not None and now.started == self.started

    def kill(self, number: int = signal.SIGKILL) -> bool:
        """Send it a signal; whether it was there."""
        if not self.alive:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
            return True
        return False


class Application(NamedTuple):
    """What runs of it now."""

    driver: list[Process]
    """The Python process that was started, and Java's below it."""
    executors: list[Process]
    """Java processes of their own."""
    workers: list[Process]
    """Python processes that run tasks, or plan."""
    executor_of: dict[int, Process]
    """Whose a worker is, by the worker's number; only where executors are processes of their own."""

    @property
    def all(self) -> list[Process]:
        return [*self.driver, *self.executors, *self.workers]


def application(pid: int) -> Application:
    """The application whose driver is the Python process `pid`."""
    children: dict[int, list[Process]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (found := _seen(int(entry.name))) is not None:
            children.setdefault(found.parent, []).append(found)
    below = list(children.get(pid, []))
    for each in below:
        below += children.get(each.pid, [])
    by_pid = {each.pid: each for each in below}
    me = _seen(pid)
    executors = [each for each in below if "CoarseGrainedExecutorBackend" in each.command]
    workers = [
        each
        for each in below
        if "pyspark.daemon" in each.command
        and each.parent in by_pid
        and "pyspark.daemon" in by_pid[each.parent].command
    ]
    java = [each for each in below if "org.apache.spark.deploy.SparkSubmit" in each.command]
    executor_of: dict[int, Process] = {}
    for worker in workers:
        at: Process | None = worker
        while at is not None and at not in executors:
            at = by_pid.get(at.parent)
        if at is not None:
            executor_of[worker.pid] = at
    return Application([*([me] if me is not None else []), *java], executors, workers, executor_of)


def wait_gone(processes: list[Process], within_s: float) -> list[Process]:
    """Those that are still there after so long."""
    deadline = time.monotonic() + within_s
    while (left := [each for each in processes if each.alive]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _seen(pid: int) -> Process | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (OSError, UnicodeDecodeError):
        return None
    return None if fields[0] in "ZX" else Process(pid, int(fields[19]), int(fields[1]), command)
