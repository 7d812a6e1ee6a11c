"""What a process uses, by Linux' /proc: CPU time, memory, threads, descriptors."""

from __future__ import annotations

import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """CPU time of all its threads since it began, in its own code and in the kernel for it."""
    fields = _proc(pid, "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss_mb(pid: int) -> float:
    """Resident memory, shared pages included."""
    return _status(pid, "VmRSS") / 1024


def threads(pid: int) -> int:
    """Threads it has now."""
    return _status(pid, "Threads")


def descriptors(pid: int) -> int:
    """Files and sockets it has open now."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


class CpuWatch:
    """The share of a core that processes have used since it was made: 1.0 is a whole core."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._began = time.monotonic()
        self._used = self._sum()

    def share(self) -> float:
        """Since the beginning."""
        return (self._sum() - self._used) / (time.monotonic() - self._began)

    def _sum(self) -> float:
        return sum(cpu_seconds(pid) for pid in self._pids)


def _status(pid: int, field: str) -> int:
    for line in _proc(pid, "status").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    raise RuntimeError(f"/proc/{pid}/status has no {field}")


def _proc(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()
