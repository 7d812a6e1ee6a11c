"""Starts processes through the launcher, from one thread that lives as long as they do.

The kernel's PR_SET_PDEATHSIG fires when the *thread* that forked ends, not the process; whoever calls may be a
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
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from regency.cluster import processes
from regency.cluster.errors import ClusterStartFailed
from regency.cluster.processes import ProcessRef, ProcessState

_LAUNCHER = Path(__file__).with_name("launcher.py")
_LAST_LINES = 20
_REAP_TIMEOUT_S = 5.0


class ManagedProcess:
    """A process this one started: who it is, how it ended, and signals that reach its whole group."""

    def __init__(self, ref: ProcessRef, child: subprocess.Popen[bytes], log: Path) -> None:
        self.ref = ref
        self.log = log
        self._child = child
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its process group."""
        return self.ref.pid

    def exit_status(self) -> int | None:
        """Exit status; negative is the signal that ended it; None while it lives."""
        with self._lock:
            return self._child.poll()

    @property
    def state(self) -> ProcessState:
        """Running, paused or dead."""
        return ProcessState.DEAD if self.exit_status() is not None else processes.state_of(self.ref)

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
        with self._lock, contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(_REAP_TIMEOUT_S)

    def pause(self) -> None:
        """SIGSTOP the whole group. Raises nothing when it is gone."""
        processes.send(self.ref, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT the whole group."""
        processes.send(self.ref, signal.SIGCONT)

    def last_lines(self, count: int = _LAST_LINES) -> str:
        """The last lines of its log, for an error message."""
        return last_lines(self.log, count)


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
        request = _Request(self._full_command(command), directory, log, output, dict(environment or {}))
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="cluster-spawner", daemon=True)
                self._thread.start()
        self._requests.put(request)
        try:
            child = request.started.result()
        except OSError as error:
            raise ClusterStartFailed(f"{name} cannot be started: {error}.") from error
        ref = processes.reference(name, child.pid)
        if ref is None:
            child.wait()
            raise ClusterStartFailed(
                f"{name} ended at once with status {child.returncode}.", hint=f"End of {log}:\n{last_lines(log)}"
            )
        return ManagedProcess(ref, child, log)

    def close(self) -> None:
        """End the thread, and with it (Linux) whatever still lives of what it started. Harmless twice."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._requests.put(None)
            thread.join()

    def _full_command(self, command: Sequence[str]) -> list[str]:
        if self._detached:
            return list(command)
        return [sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid()), "--", *command]

    def _serve(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                request.started.set_result(request.run())
            except OSError as error:
                request.started.set_exception(error)


class _Request:
    """One process to be started, and the promise of it."""

    def __init__(
        self, command: list[str], directory: Path, log: Path, output: Path | None, environment: dict[str, str]
    ) -> None:
        self.command = command
        self.directory = directory
        self.log = log
        self.output = output
        self.environment = environment
        self.started: Future[subprocess.Popen[bytes]] = Future()

    def run(self) -> subprocess.Popen[bytes]:
        """Fork and exec."""
        with self.log.open("ab") as log, (self.output or Path(os.devnull)).open("wb") as output:
            return subprocess.Popen(  # noqa: S603  (the command is built here, no shell)
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output if self.output else log,
                stderr=log,
                cwd=self.directory,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )


def last_lines(path: Path, count: int = _LAST_LINES) -> str:
    """The last `count` lines of a text file; a word in brackets where there is nothing to show."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return f"(cannot read {path}: {error.strerror})"
    return "\n".join(lines[-count:]) or "(empty)"
