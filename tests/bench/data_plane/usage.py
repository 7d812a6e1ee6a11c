"""What a process uses, by Linux' /proc: CPU time, memory, threads, descriptors."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """CPU time of all its threads since it began, in its own code and in the kernel for it."""
    fields = _proc(pid, "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss_mb(pid: int) -> float:
    return _status(pid, "VmRSS") / 1024


def threads(pid: int) -> int:
    return _status(pid, "Threads")


def descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def cpu_seconds_below(pid: int) -> dict[int, float]:
    """CPU time of each process that descends from it, with that of its own children that have ended."""
    parents: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # it has just ended
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
                used[int(entry.name)] = sum(map(int, fields[11:15])) / _TICKS
    found = parents.get(pid, [])
    for each in found:
        found += parents.get(each, [])
    return {each: used[each] for each in found}


class CpuWatch:
    """The share of a core that processes have used since it was made: 1.0 is a whole core."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._began = time.monotonic()
        self._used = self._sum()

    def share(self) -> float:
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
