"""The terminal while a command shows a screen: single keys are read, and all is put back at the end."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager


class Keys:
    """Keys that were pressed; without a terminal there are none."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def wait(self, seconds: float) -> str:
        """What was typed, after so many seconds at most; empty where nothing was."""
        if self._fd is None:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([self._fd], [], [], seconds)
        if not ready:
            return ""
        typed = os.read(self._fd, 64)
        if not typed:  # the end: nobody can type any more
            self._fd = None
        return typed.decode(errors="replace")


@contextmanager
def single_keys() -> Iterator[Keys]:
    """Inside, keys come one by one and are not shown; Ctrl-C works as ever. Afterwards the terminal is as it was."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield Keys(None)
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield Keys(fd)
    finally:
        termios.tcsetattr(fd, termios.TCSAFLUSH, before)
