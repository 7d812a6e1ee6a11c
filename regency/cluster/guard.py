"""Ends a cluster whose owner is gone: waits until a pipe closes, then ends every process of cluster.json.

The owner holds the other end and never writes; whatever ends it, SIGKILL included, closes it. On Linux the kernel has
killed the processes before (launcher.py); this one also reaches paused children, runs on other systems, and removes a
temporary directory.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from regency.cluster import processes
from regency.cluster.state import read_state


def watch(directory: Path, pipe: int, *, remove: bool) -> None:
    """Wait for the end of `pipe`, kill what cluster.json of `directory` lists, and `remove` the directory if asked."""
    while os.read(pipe, 1):
        pass
    state = read_state(directory)
    if state is not None:
        processes.end(state.processes, grace_s=0)
    if remove:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    watch(Path(sys.argv[1]), int(sys.argv[2]), remove=sys.argv[3] == "remove")
