"""Agents started elsewhere: the process that holds the lock of a broker's log directory runs as that broker.

So `regency agent --config DIR/agent-2/server.properties`, typed by hand, is part of the cluster in DIR as any other.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from pathlib import Path

from regency.cluster.processes import ProcessRef, reference

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
