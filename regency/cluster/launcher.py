"""Starts a program that dies with its parent (`launcher.py tied PID -- PROGRAM ARG…`), or one that has no parent
of (`launcher.py detached FD -- PROGRAM ARG…`).

Run as a plain script, so that it starts in milliseconds and imports nothing of ours. PID is the one that must still
be the parent. On Linux the kernel is asked to kill the process when the thread that forked it ends (PR_SET_PDEATHSIG
survives exec); elsewhere nothing can be asked for, and the guard process (guard.py) ends what is left. FD is where the
pid of a detached program is written.
"""

from __future__ import annotations

import os
import sys

PR_SET_PDEATHSIG = 1
SIGKILL = 9

EXIT_USAGE = 2
EXIT_ORPHAN = 125
EXIT_NO_PROGRAM = 127


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
        case ["detached", number, "--", _, *_] if number.isdecimal():
            return start_detached(int(number), arguments[3:])
        case _:
            sys.stderr.write("usage: launcher.py tied PARENT_PID|detached PIPE_FD -- PROGRAM [ARGUMENT]...\n")
            return EXIT_USAGE


def start_tied(parent: int, command: list[str]) -> int:
    """Become the program, unless `parent` is no longer the parent."""
    die_with_parent()
    if os.getppid() != parent:
        sys.stderr.write(f"launcher: process {parent} ended before {command[0]} was started\n")
        return EXIT_ORPHAN
    return become(command)


def start_detached(pipe: int, command: list[str]) -> int:
    """Fork a session of its own that becomes the program, and write its pid to `pipe`."""
    pid = os.fork()
    if pid == 0:
        os.close(pipe)
        os.setsid()
        return become(command)
    os.write(pipe, f"{pid}\n".encode())
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
