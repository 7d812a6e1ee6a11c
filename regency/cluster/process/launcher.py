"""Starts a program that dies with its parent (`launcher.py tied PID -- PROGRAM ARG…`), or one that has no parent of
ours (`launcher.py detached FD LIFE -- PROGRAM ARG…`), and notes how a program ended.

Run as a plain script, so that it starts in milliseconds and imports nothing of ours. PID is the one that must still
be the parent. On Linux the kernel is asked to kill the process when the thread that forked it ends (PR_SET_PDEATHSIG
survives exec); elsewhere nothing can be asked for, and the guard process (guard.py) ends what is left. FD is where the
pid of a detached program is written.

Only a parent learns how a process ended. A detached program gets one for that, its keeper: a fork of the launcher that
writes the file LIFE before the program begins and once more after its end (Life).
"""

from __future__ import annotations

import json
import os
import re
import sys
import time

PR_SET_PDEATHSIG = 1
SIGKILL = 9

EXIT_USAGE = 2
EXIT_ORPHAN = 125
EXIT_NO_PROGRAM = 127

LIFE_FILE = "life.json"
"""In the directory of a process: who it is, and after its end how it ended."""
_STARTED = 19  # field of /proc/PID/stat, counted from `state`


class Life:
    """A process from its parent's side, kept in a file: begun with `began`, ended with `ended`.

    The file is JSON: `pid`, `started` (as processes.ProcessRef has it, empty without /proc), and after the end `status`
    (an exit status, or the number of a signal as a negative number), `at_ms`, and `oom`, whether the kernel killed it
    for want of memory: yes (the kernel's log names it), likely (it killed in the same cgroup meanwhile), no, unknown.
    """

    def __init__(self, pid: int, file: str) -> None:
        self.pid = pid
        self._file = file
        self.started = _started(pid)
        self._cgroup = _oom_file(pid)
        self._kills = _oom_kills(self._cgroup)

    def began(self) -> None:
        """Write that it lives."""
        self._write({})

    def ended(self, status: int) -> None:
        """Write that it ended so, unless the file has come to speak of a later process by now."""
        try:
            with open(self._file, encoding="utf-8") as file:  # noqa: PTH123  (pathlib costs milliseconds)
                now = json.load(file)
        except (OSError, ValueError):
            return  # its directory was removed
        if (now["pid"], now["started"]) == (self.pid, self.started):
            oom = self._oom() if status == -SIGKILL else "no"
            self._write({"status": status, "at_ms": time.time_ns() // 1_000_000, "oom": oom})

    def _write(self, end: dict[str, object]) -> None:
        draft = f"{self._file}.{os.getpid()}"
        try:
            with open(draft, "w", encoding="utf-8") as file:  # noqa: PTH123
                json.dump({"pid": self.pid, "started": self.started, **end}, file)
            os.replace(draft, self._file)  # noqa: PTH105
        except OSError:
            return  # a full disk, or no directory any more: then how it ended is not known

    def _oom(self) -> str:
        if _kernel_names(self.pid, self.started):
            return "yes"
        now = _oom_kills(self._cgroup)
        if now is None or self._kills is None:
            return "unknown"
        return "likely" if now > self._kills else "no"


def _started(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:  # noqa: PTH123
            ticks = stat.read().rpartition(")")[2].split()[_STARTED]
    except OSError:
        return ""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:  # noqa: PTH123
            return f"{boot.read().strip()}/{ticks}"
    except OSError:
        return f"boot/{ticks}"


def _oom_file(pid: int) -> str:
    """The file of the process's cgroup that counts what was killed there for want of memory; empty without one."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8") as lines:  # noqa: PTH123
            groups = [line.strip().split(":", 2) for line in lines]
    except OSError:
        return ""
    for number, controllers, path in groups:
        if number == "0":
            candidates = [f"/sys/fs/cgroup{path}/memory.events", "/sys/fs/cgroup/memory.events"]
        elif "memory" in controllers.split(","):
            candidates = [f"/sys/fs/cgroup/memory{path}/memory.oom_control"]
            candidates.append("/sys/fs/cgroup/memory/memory.oom_control")  # what a container sees of its own
        else:
            continue
        for file in candidates:
            if _oom_kills(file) is not None:
                return file
    return ""


def _oom_kills(file: str) -> int | None:
    try:
        with open(file, encoding="ascii") as lines:  # noqa: PTH123
            found = re.search(r"^oom_kill (\d+)$", lines.read(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None


def _kernel_names(pid: int, started: str) -> bool:
    """Whether the kernel's log, where it may be read, says that it killed this process for want of memory."""
    ticks = started.rpartition("/")[2]
    if not ticks:
        return False
    since_us = int(ticks) * 1_000_000 // os.sysconf("SC_CLK_TCK")
    try:
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        while True:
            try:
                head, _, words = os.read(log, 8192).decode(errors="replace").partition(";")
            except BrokenPipeError:
                continue  # the kernel has overwritten what was to be read next
            if f"Killed process {pid} (" in words and int(head.split(",")[2]) >= since_us:
                return True
    except OSError:
        return False  # at its end
    finally:
        os.close(log)


def die_with_parent() -> None:
    """Have the kernel send SIGKILL to this process when its parent thread ends. Linux only; elsewhere it does nothing.

    Raises OSError where the kernel refuses.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes  # noqa: PLC0415  (costs milliseconds, and only Linux needs it)

    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"prctl(PR_SET_PDEATHSIG): {os.strerror(errno)}")


def main(arguments: list[str]) -> int:
    """Become the program, or its starter. Returns an exit status where there is nothing to become."""
    match arguments:
        case ["tied", number, "--", _, *_] if number.isdecimal():
            return start_tied(int(number), arguments[3:])
        case ["detached", number, life, "--", _, *_] if number.isdecimal():
            return start_detached(int(number), life, arguments[4:])
        case _:
            sys.stderr.write("usage: launcher.py tied PARENT_PID|detached PIPE_FD LIFE -- PROGRAM [ARGUMENT]...\n")
            return EXIT_USAGE


def start_tied(parent: int, command: list[str]) -> int:
    """Become the program, unless `parent` is no longer the parent."""
    die_with_parent()
    if os.getppid() != parent:
        sys.stderr.write(f"launcher: process {parent} ended before {command[0]} was started\n")
        return EXIT_ORPHAN
    return become(command)


def start_detached(pipe: int, life: str, command: list[str]) -> int:
    """Fork the keeper, which starts the program and writes its pid to `pipe`."""
    if os.fork() != 0:
        return 0
    os.setsid()
    return keep(pipe, life, command)


def keep(pipe: int, life: str, command: list[str]) -> int:
    """Start the program in a session of its own once it stands in the file `life`; wait, and write how it ended."""
    held, let_go = os.pipe()
    apart, is_apart = os.pipe()
    pid = os.fork()
    if pid == 0:
        for other in (pipe, let_go, apart):
            os.close(other)
        os.setsid()
        os.close(is_apart)
        # Nothing is to run that stands nowhere: where the keeper is killed before, the program does not begin.
        return become(command) if os.read(held, 1) else EXIT_ORPHAN
    os.close(held)
    os.close(is_apart)
    os.read(apart, 1)  # its end: the program leads a group of its own, which signals reach, before its pid is known
    os.close(apart)
    own = Life(pid, life)
    own.began()
    os.write(pipe, f"{pid}\n".encode())
    os.close(pipe)
    try:
        os.write(let_go, b"1")
    except BrokenPipeError:
        pass  # it was killed already, by its pid
    os.close(let_go)
    os.chdir("/")
    own.ended(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return 0


def become(command: list[str]) -> int:
    """Replace this process by the program. Returns only where that is not possible."""
    try:
        os.execvp(command[0], command)  # noqa: S606  (no shell is wanted)
    except OSError as error:
        sys.stderr.write(f"launcher: cannot run {command[0]}: {error.strerror}\n")
        return EXIT_NO_PROGRAM


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
