"""Whether the logs are whole: all they held when the process before ended, be it in the page cache alone, is there yet.

After a clean shutdown they are. After the end of the process alone they are, too, since the kernel keeps what was
written: the machine has not been booted since, which its boot id tells. Anything else may have taken what was not
synced: a power cut, another machine that mounts the disk, a directory that was emptied, replaced or taken out of
log.dirs, an I/O error. What cannot be told counts as a loss.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

from regency.broker_agent.log.log_directory import LogDirectory
from regency.kafka.logfiles.checkpoints import replace_file
from regency.kafka.logfiles.file_names import BOOT

logger = logging.getLogger(__name__)


class Traces(NamedTuple):
    """What the run before left in one directory."""

    marker: bool
    """The clean-shutdown marker."""
    boot_id: str
    """Under which boot of the machine it ran; empty where nothing says so."""
    directories: frozenset[str]
    """All its log directories, as absolute paths."""


NO_TRACES = Traces(marker=False, boot_id="", directories=frozenset())


def read_traces(directory: LogDirectory, *, marker: bool) -> Traces:
    """The traces in a directory whose marker was taken. Raises OSError."""
    try:
        boot_id, *directories = directory.disk.read_file(directory.path / BOOT).decode(errors="replace").splitlines()
    except (FileNotFoundError, ValueError):
        return NO_TRACES._replace(marker=marker)
    return Traces(marker, boot_id, frozenset(directories))


def are_whole(traces: Sequence[Traces], directories: Collection[str], boot_id: str) -> bool:
    """Whether nothing was lost since the run that left `traces`, one for each of the directories of now.

    Some with a marker and some without were not stopped in order together: one of them had failed, or is new.
    """
    if any(not each.directories.issubset(directories) for each in traces):
        return False
    if any(each.marker for each in traces):
        return all(each.marker for each in traces)
    return bool(boot_id) and all(each.boot_id == boot_id for each in traces)


class Continuity:
    """Tells registrations whether the logs are whole, and leaves the traces for the next start. Any thread."""

    def __init__(self, directories: Sequence[LogDirectory], *, whole: bool) -> None:
        self._directories = directories
        self._whole = whole
        self._noted = self._failed = False
        self._lock = threading.Lock()
        if any(each.failure is not None for each in directories):
            self._whole = False
            self.break_off()

    @property
    def whole(self) -> bool:
        """Whether the logs are whole since the last registration, of this process or the one before."""
        return self._whole

    def note_registered(self) -> None:
        """The cluster knows whether something was lost until now: what this process writes from now on is new.

        Not earlier: a process that ended before would hide the loss from the next one.
        """
        self._whole = True
        with self._lock:
            if self._noted or self._failed:
                return
            self._noted = True
            lines = [self._directories[0].disk.boot_id, *(str(each.path) for each in self._directories)]
            try:
                for directory in self._directories:
                    # Not synced: what a power cut takes is of no use after it.
                    replace_file(directory.disk, directory.path / BOOT, "\n".join(lines).encode(), sync=False)
            except OSError as error:
                logger.warning("after a crash of this process alone its logs will count as damaged: %s", error)

    def break_off(self) -> None:
        """A directory has failed: what is in it after the end of this process need not be what was."""
        with self._lock:
            self._failed = True
            for directory in self._directories:
                with suppress(OSError):
                    directory.disk.remove(directory.path / BOOT)
