"""cluster.json as several programs change it: each change under the lab's lock, on what the file holds by then."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from regency.cluster.errors import ClusterNotRunning, ClusterRunning
from regency.cluster.process import processes
from regency.cluster.process.endings import LastLife
from regency.cluster.process.processes import ProcessRef
from regency.cluster.state import ZOOKEEPER, ClusterState, Stopped, read_state, write_state

LOCK_NAME = "cluster.lock"
LOCK_TIMEOUT_S = 90.0
"""How long a change waits for another command: longer than a cluster may take to start."""
START_WAIT_S = 1.0
"""How long the start of a whole cluster does: a second one at the same moment is refused, not queued."""
_POLL_S = 0.05


class LabRecord:
    """cluster.json of a directory, read and changed. The lock is held by a thread, as often as it likes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._thread_lock = threading.RLock()
        self._depth = 0

    @contextmanager
    def locked(self, wait_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
        """Hold the lab's lock, so that no other program starts anything in it or changes cluster.json.

        Raises ClusterRunning when another holds it for `wait_s` seconds, and OSError without the directory.
        """
        with self._thread_lock:
            if self._depth:
                yield
                return
            file = self._acquire(time.monotonic() + wait_s)
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                file.close()

    def read(self) -> ClusterState | None:
        """What the directory remembers; None where there was no cluster. Raises ClusterFileMalformed."""
        return read_state(self.directory)

    def change(self, change: Callable[[ClusterState], ClusterState]) -> ClusterState:
        """Replace cluster.json by what `change` makes of it; the new content.

        Raises ClusterError where it cannot be written, ClusterNotRunning where it is gone.
        """
        with self.locked():
            state = self.read()
            if state is None:
                raise ClusterNotRunning(f"There is no cluster in {self.directory} any more.")
            changed = change(state)
            if changed != state:
                write_state(self.directory, changed)
            return changed

    def started(self, *refs: ProcessRef) -> ClusterState:
        """Remember processes that were started, in the place of earlier ones of their names."""
        return self.change(lambda state: with_started(state, refs))

    def ended(self, refs: tuple[ProcessRef, ...], by: str) -> ClusterState:
        """Remember who ended these processes: `kill` or `stop`."""
        now_ms = time.time_ns() // 1_000_000
        return self.change(lambda state: with_ended(state, [LastLife(ref, by, now_ms) for ref in refs]))

    def stopped(self, by: str) -> ClusterState:
        """Remember that the whole cluster was ended (Stopped). What was ended before, by itself or not, stays known."""
        now = Stopped(by, time.time_ns() // 1_000_000)
        return self.change(lambda state: msgspec.structs.replace(with_started(state, ()), stopped=now))

    def _acquire(self, deadline: float) -> IO[str]:
        path = self.directory / LOCK_NAME
        while True:
            file = path.open("a")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(file, path):  # a start that failed may have removed it, with the directory
                    return file
                file.close()
                continue
            except BlockingIOError as error:
                file.close()
                if time.monotonic() >= deadline:
                    raise ClusterRunning(
                        f"A cluster is being started in {self.directory} right now, or changed.",
                        hint="Wait for the other command, or choose another directory.",
                    ) from error
            except BaseException:
                file.close()
                raise
            time.sleep(_POLL_S)


def with_started(state: ClusterState, refs: tuple[ProcessRef, ...]) -> ClusterState:
    """The state with these processes running in the place of earlier ones; what is found dead moves to `ended`."""
    names = {ref.name for ref in refs}
    alive = [ref for ref in state.processes if ref.name not in names and processes.members(ref)]
    ended = dict(state.ended)
    for ref in state.processes:
        if ref not in alive and ref not in refs and (ref.name not in ended or ended[ref.name].ref != ref):
            ended[ref.name] = LastLife(ref)
    running = sorted([*alive, *refs], key=lambda ref: (ref.name != ZOOKEEPER, len(ref.name), ref.name))
    return msgspec.structs.replace(state, processes=tuple(running), ended=ended)


def with_ended(state: ClusterState, lives: list[LastLife]) -> ClusterState:
    """The state with these lives over, each where no later one has taken its name."""
    later = {ref.name: ref for ref in state.processes}
    ended = dict(state.ended)
    for life in lives:
        if later.get(life.ref.name, life.ref) == life.ref:
            ended[life.ref.name] = life
    return with_started(msgspec.structs.replace(state, ended=ended), ())


def _is_at(file: IO[str], path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(file.fileno()))
