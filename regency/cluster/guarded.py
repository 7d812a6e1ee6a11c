"""The owner's side of the guard process (guard.py): start it, and dismiss it when nothing is left to guard."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from regency.cluster.agent import import_path

_DISMISS_TIMEOUT_S = 10.0


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
