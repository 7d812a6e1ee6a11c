"""Standard output that may be closed, full or read by nobody any more: a line on stderr and a status, no traceback."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import TextIO

CANNOT_WRITE = 2
NOBODY_READS = 128 + signal.SIGPIPE
"""What a shell reports of a program that SIGPIPE has ended."""


class Output:
    """Writes to standard output until that fails; from then on whatever is written is dropped. Never raises OSError."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._status: int | None = None
        stream: TextIO | None = sys.stdout
        if stream is None:
            self._lose(CANNOT_WRITE, "it is closed")

    @property
    def lost(self) -> bool:
        return self._status is not None

    def write(self, text: str) -> None:
        if not self.lost:
            try:
                sys.stdout.write(text)
            except OSError as error:
                self._lose_to(error)

    def flush(self) -> None:
        """Have everything written that was taken: only this shows whether it could be."""
        if not self.lost:
            try:
                sys.stdout.flush()
            except OSError as error:
                self._lose_to(error)

    def end(self, status: int) -> int:
        """Flush. The exit status of what would end with `status`: 0 only if everything could be written."""
        self.flush()
        return status or self._status or 0

    def _lose_to(self, error: OSError) -> None:
        status = NOBODY_READS if isinstance(error, BrokenPipeError) else CANNOT_WRITE
        self._lose(status, error.strerror or str(error))
        _to_nowhere(sys.stdout)

    def _lose(self, status: int, why: str) -> None:
        self._status = status
        say(f"{self._program}: standard output cannot be written: {why}\n")


def say(text: str) -> None:
    """Write to standard error, where there is one."""
    stream: TextIO | None = sys.stderr
    if stream is not None:
        try:
            stream.write(text)
            stream.flush()
        except OSError:
            _to_nowhere(stream)


def is_watched() -> bool:
    stream: TextIO | None = sys.stderr
    return stream is not None and stream.isatty()


def _to_nowhere(stream: TextIO) -> None:
    """What the stream still holds would fail once more when the interpreter ends, which then complains."""
    with suppress(OSError):  # of streams that are no files, as a test's
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
