"""How a process of a cluster ended, as far as it can be known, in words. What the parent noted is read here."""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path

import msgspec

from regency.cluster.process.launcher import LIFE_FILE
from regency.cluster.process.processes import ProcessRef, this_boot

_NOTED_WITHIN_S = 0.5
_POLL_S = 0.02
_OUT_OF_MEMORY = {
    "yes": "out of memory, as the kernel's log says",
    "likely": "probably out of memory: the kernel killed for that in its cgroup",
    "unknown": "perhaps out of memory",
}


class EndRecord(msgspec.Struct, frozen=True):
    """How a process ended. `status` is its exit status, or the number of a signal as a negative number.

    `oom` says whether the kernel killed it for want of memory: yes, likely, no, unknown. `at_ms` is 0 where the moment
    is not known.
    """

    status: int
    at_ms: int = 0
    oom: str = "unknown"


class _Life(msgspec.Struct, frozen=True):
    """Content of life.json (launcher.Life)."""

    pid: int
    started: str
    status: int | None = None
    at_ms: int = 0
    oom: str = "unknown"


class LastLife(msgspec.Struct, frozen=True):
    """A process that is gone, as cluster.json remembers it. `by` is the verb that ended it, `kill` or `stop`.

    `by` is empty, and `at_ms` 0, where it ended by itself or by another hand.
    """

    ref: ProcessRef
    by: str = ""
    at_ms: int = 0


class Ending(msgspec.Struct, frozen=True, rename={"at_ms": "time_ms"}):
    """How and when a process ended: `how` in words; `signal` by name, or `exit_status`, where its parent noted it.

    `out_of_memory` is yes, likely, no or unknown: whether the kernel killed it for want of memory.
    """

    how: str
    at_ms: int | None = None
    signal: str | None = None
    exit_status: int | None = None
    out_of_memory: str = "unknown"


def read_life(directory: Path, ref: ProcessRef) -> EndRecord | None:
    """What the parent noted about the end of this very process; None where nothing is noted."""
    life = _read(directory)
    if life is None or life.status is None or not _is(life, ref):
        return None
    return EndRecord(life.status, life.at_ms, life.oom)


def noted(directory: Path, name: str) -> ProcessRef | None:
    """The process that was last started in the directory, alive or not; None where none is noted."""
    life = _read(directory)
    return None if life is None or not life.started else ProcessRef(name, life.pid, life.started)


def ended_words(end: EndRecord) -> str:
    """Such as "ended in order" (0, as after SIGTERM), "ended with status 1", "was killed by SIGKILL (perhaps ...)"."""
    if end.status >= 0:
        return "ended in order" if end.status == 0 else f"ended with status {end.status}"
    memory = _OUT_OF_MEMORY.get(end.oom) if -end.status == signal.SIGKILL else None
    return f"was killed by {signal_name(end.status)}" + (f" ({memory})" if memory else "")


def signal_name(status: int) -> str:
    """SIGKILL for -9."""
    with contextlib.suppress(ValueError):
        return signal.Signals(-status).name
    return f"signal {-status}"


def ending(last: LastLife, directory: Path) -> Ending:
    """How this process ended, from what a command noted, and its parent in `directory`, the process's own."""
    end = _noted_soon(directory, last.ref) if last.ref.started.partition("/")[0] == this_boot() else None
    told = Ending("")
    if end is not None:
        by_signal = end.status < 0
        told = Ending(
            how=ended_words(end),
            at_ms=end.at_ms or None,
            signal=signal_name(end.status) if by_signal else None,
            exit_status=None if by_signal else end.status,
            out_of_memory=end.oom,
        )
    if last.by:
        how = "was killed on purpose" if last.by == "kill" else "was stopped on purpose"
        return msgspec.structs.replace(told, how=how, at_ms=last.at_ms, out_of_memory="no")
    if end is not None:
        return told
    if last.ref.started.partition("/")[0] != this_boot():
        return Ending("ended with this machine, which was started again since", out_of_memory="no")
    return Ending("ended; how is not known, because no process of the lab was there to see it")


def _noted_soon(directory: Path, ref: ProcessRef) -> EndRecord | None:
    """What the parent noted; a parent that has just lost its child gets a moment to note it."""
    deadline = time.monotonic() + _NOTED_WITHIN_S
    while (end := read_life(directory, ref)) is None and noted(directory, ref.name) == ref:
        if time.monotonic() >= deadline:
            break
        time.sleep(_POLL_S)
    return end


def _read(directory: Path) -> _Life | None:
    try:
        return msgspec.json.decode(directory.joinpath(LIFE_FILE).read_bytes(), type=_Life)
    except (OSError, msgspec.DecodeError):
        return None


def _is(life: _Life, ref: ProcessRef) -> bool:
    return life.pid == ref.pid and life.started in ("", ref.started)  # "" where the system has no /proc
