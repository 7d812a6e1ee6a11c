"""Ties a process to the life of the one that started it, then becomes the program: `launcher.py PID -- PROGRAM ARG…`.

Run as a plain script, so that it starts in milliseconds and imports nothing of ours. PID is the one that must still
be the parent. On Linux the kernel is asked to kill the process when the thread that forked it ends (PR_SET_PDEATHSIG
survives exec); elsewhere nothing can be asked for, and the guard process (guard.py) ends what is left.
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
    """Become the program. Returns an exit status only where that is not possible."""
    if len(arguments) < 3 or not arguments[0].isdecimal() or arguments[1] != "--":
        sys.stderr.write("usage: launcher.py PARENT_PID -- PROGRAM [ARGUMENT]...\n")
        return EXIT_USAGE
    parent, command = int(arguments[0]), arguments[2:]
    die_with_parent()
    if os.getppid() != parent:
        sys.stderr.write(f"launcher: process {parent} ended before {command[0]} was started\n")
        return EXIT_ORPHAN
    try:
        os.execvp(command[0], command)  # noqa: S606  (no shell is wanted)
    except OSError as error:
        sys.stderr.write(f"launcher: cannot run {command[0]}: {error.strerror}\n")
        return EXIT_NO_PROGRAM


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
