"""Starts processes through the launcher, from one thread that lives as long as they do.

The kernel's PR_SET_PDEATHSIG fires when the *thread* that forked ends, not the process; the caller may be a
short-lived thread, so all forks happen on a thread of the spawner's own.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from regency.cluster.errors import ClusterStartFailed
from regency.cluster.process import launcher, processes
from regency.cluster.process.endings import EndRecord, ended_words, read_life
from regency.cluster.process.processes import ProcessRef, ProcessState

_LAST_LINES = 20
_REAP_TIMEOUT_S = 5.0
_KEEPER_TIMEOUT_S = 1.0
_POLL_S = 0.02


class ManagedProcess:
    """A process of a cluster: who it is, how it ended, and signals that reach its whole group.

    `child` is None for one that is no child of this process: then its keeper, if it has one, notes how it ended in
    `directory`; of a child this one notes it. What it writes begins at byte `log_begin` of `log`.
    """

    def __init__(
        self,
        ref: ProcessRef,
        child: subprocess.Popen[bytes] | None,
        log: Path,
        log_begin: int = 0,
        *,
        directory: Path | None = None,
    ) -> None:
        self.ref = ref
        self.log = log
        self._child = child
        self.log_begin = log_begin
        self._directory = directory
        self._life: launcher.Life | None = None
        if child is not None and directory is not None:
            self._life = launcher.Life(child.pid, str(directory / launcher.LIFE_FILE))
            self._life.began()
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its process group."""
        return self.ref.pid

    def how_it_ended(self) -> str | None:
        """Words for its end, such as "ended with status 1" or "was killed by SIGTERM"; None while it lives."""
        if self._child is None:
            status = None if processes.state_of(self.ref) is not ProcessState.DEAD else 0
        else:
            with self._lock:
                status = self._child.poll()
                if status is not None and self._life is not None:
                    self._life.ended(status)
                    self._life = None
        if status is None:
            return None
        end = None if self._directory is None else read_life(self._directory, self.ref)
        if end is None and self._child is None:
            return "ended"  # how, only its parent knows
        return ended_words(end or EndRecord(status))

    @property
    def state(self) -> ProcessState:
        """Running, paused or dead."""
        return ProcessState.DEAD if self.how_it_ended() is not None else processes.state_of(self.ref)

    def wait_noted(self) -> None:
        """After its end: wait a moment until its keeper has noted how."""
        deadline = time.monotonic() + _KEEPER_TIMEOUT_S
        while self.how_it_ended() == "ended" and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def kill(self, timeout_s: float = 10.0) -> None:
        """SIGKILL the whole group and wait until it is gone. Harmless when it is."""
        processes.end([self.ref], grace_s=0, kill_timeout_s=timeout_s)
        self._reap()

    def stop(self, grace_s: float) -> bool:
        """SIGTERM, wait up to `grace_s` seconds, then SIGKILL; whether it went by itself."""
        killed = processes.end([self.ref], grace_s=grace_s)
        self._reap()
        return not killed

    def _reap(self) -> None:
        # A process may be gone for /proc a moment before it can be reaped.
        if self._child is not None:
            with self._lock, contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(_REAP_TIMEOUT_S)
            self.how_it_ended()

    def pause(self) -> None:
        """SIGSTOP the whole group, and wait until all of it stands still. Raises nothing when it is gone."""
        processes.pause(self.ref)

    def resume(self) -> None:
        """SIGCONT the whole group."""
        processes.send(self.ref, signal.SIGCONT)

    def last_lines(self, count: int = _LAST_LINES) -> str:
        """The last lines it has written to its log, for an error message; not those of earlier processes."""
        return last_lines(self.log, count, self.log_begin)


class Spawner:
    """Starts processes in sessions of their own, so that Ctrl-C at a terminal does not reach them.

    `detached` processes outlive this one; all others die with it.
    """

    def __init__(self, *, detached: bool = False) -> None:
        self._detached = detached
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def spawn(
        self,
        name: str,
        command: Sequence[str],
        *,
        directory: Path,
        log: Path,
        output: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> ManagedProcess:
        """Start `command` in `directory`. stderr is appended to `log`; stdout too, or it replaces the file `output`.

        `environment` is added to this process's. Raises ClusterStartFailed when it ended at once or cannot be started.
        """
        log_begin = _size(log)
        request = _Request(command, directory, log, output, dict(environment or {}), detached=self._detached)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="cluster-spawner", daemon=True)
                self._thread.start()
        self._requests.put(request)
        try:
            pid, child = request.started.result()
        except OSError as error:
            raise ClusterStartFailed(f"{name} cannot be started: {error}.") from error
        ref = processes.reference(name, pid)
        if ref is None:
            status = f" with status {child.wait()}" if child is not None else ""
            raise ClusterStartFailed(
                f"{name} ended at once{status}.", hint=f"End of {log}:\n{last_lines(log, begin=log_begin)}"
            )
        return ManagedProcess(ref, child, log, log_begin, directory=directory)

    def close(self) -> None:
        """End the thread, and with it (Linux) whatever still lives of what it started. Harmless twice."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._requests.put(None)
            thread.join()

    def _serve(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                request.started.set_result(request.run())
            except OSError as error:
                request.started.set_exception(error)


class _Request:
    """One process to be started, and the promise of its pid; with it the child, unless it is detached."""

    def __init__(
        self,
        command: Sequence[str],
        directory: Path,
        log: Path,
        output: Path | None,
        environment: dict[str, str],
        *,
        detached: bool,
    ) -> None:
        self._command = command
        self._directory = directory
        self._log = log
        self._output = output
        self._environment = environment
        self._detached = detached
        self.started: Future[tuple[int, subprocess.Popen[bytes] | None]] = Future()

    def run(self) -> tuple[int, subprocess.Popen[bytes] | None]:
        """Fork and exec."""
        if not self._detached:
            child = self._launch("tied", os.getpid())
            return child.pid, child
        read_end, write_end = os.pipe()
        with open(read_end, "rb") as pipe:  # noqa: PTH123  (a descriptor, not a path)
            try:
                starter = self._launch("detached", write_end, str(self._directory / launcher.LIFE_FILE))
            finally:
                os.close(write_end)
            answer = pipe.read()
        starter.wait()
        if not answer:
            raise OSError(f"its launcher failed, see {self._log}")
        return int(answer), None

    def _launch(self, how: str, number: int, *words: str) -> subprocess.Popen[bytes]:
        start = [sys.executable, "-I", "-S", str(launcher.__file__), how, str(number), *words, "--"]
        with self._log.open("ab") as log, (self._output or Path(os.devnull)).open("wb") as output:
            return subprocess.Popen(  # noqa: S603  (the command is built here, no shell)
                [*start, *self._command],
                stdin=subprocess.DEVNULL,
                stdout=output if self._output else log,
                stderr=log,
                cwd=self._directory,
                env={**os.environ, **self._environment},
                start_new_session=True,
                pass_fds=[number] if self._detached else [],
            )


def last_lines(path: Path, count: int = _LAST_LINES, begin: int = 0) -> str:
    """The last `count` lines from byte `begin` of a text file on; a word in brackets where there is nothing to show."""
    try:
        lines = path.read_bytes()[begin:].decode(errors="replace").splitlines()
    except OSError as error:
        return f"(cannot read {path}: {error.strerror})"
    return "\n".join(lines[-count:]) or ("(nothing since this start)" if begin else "(empty)")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
