"""Ends a cluster whose owner is gone: waits until a pipe closes, then ends every process of cluster.json.

The owner holds the other end and never writes; whatever ends it, SIGKILL included, closes it. On Linux the kernel has
killed the processes before (launcher.py); this one also reaches paused children, runs on other systems, and removes a
temporary directory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from regency.cluster.agent import import_path
from regency.cluster.errors import ClusterRunning
from regency.cluster.process import processes
from regency.cluster.record import LabRecord
from regency.model.errors import RegencyError

_DISMISS_TIMEOUT_S = 10.0
_LOCK_WAIT_S = 5.0


class Guard:
    """A process that ends the cluster in `directory` when this process is gone. It ignores the terminal's signals."""

    def __init__(self, directory: Path, *, remove: bool) -> None:
        read_end, self._write_end = os.pipe()
        command = [sys.executable, "-P", "-m", "regency.cluster.guard", str(directory), str(read_end)]
        try:
            self._process = subprocess.Popen(  # noqa: S603  (the command is built here, no shell)
                [*command, "remove" if remove else "keep"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[read_end],
                cwd="/",
                env={**os.environ, **import_path()},
                start_new_session=True,
            )
        finally:
            os.close(read_end)

    def dismiss(self) -> None:
        """Let it go and wait until it is gone: it ends what cluster.json still lists. Harmless twice."""
        if self._write_end < 0:
            return
        os.close(self._write_end)
        self._write_end = -1
        try:
            self._process.wait(_DISMISS_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def watch(directory: Path, pipe: int, *, remove: bool) -> None:
    """Wait for the end of `pipe`, kill what cluster.json of `directory` lists, and `remove` the directory if asked."""
    while os.read(pipe, 1):
        pass
    record = LabRecord(directory)
    with contextlib.suppress(OSError, RegencyError):  # the directory is gone, or cannot be written
        try:
            with record.locked(_LOCK_WAIT_S):  # so that what another command starts now is ended too
                end_all(record)
        except ClusterRunning:
            end_all(record)
    if remove:
        shutil.rmtree(directory, ignore_errors=True)


def end_all(record: LabRecord) -> None:
    """Kill what runs from the directory, and remember that its owner did not end it in order."""
    state = record.read()
    if state is None:
        return
    processes.end(state.alive(record.directory), grace_s=0)
    if state.stopped is None:
        record.stopped("guard")


if __name__ == "__main__":
    watch(Path(sys.argv[1]), int(sys.argv[2]), remove=sys.argv[3] == "remove")
