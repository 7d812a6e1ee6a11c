"""Files that are open only while they are used: thousands of partitions share a bounded number of descriptors.

A pool belongs to one thread: a descriptor taken from it stays valid until the next file is opened through the pool.
Other threads open files by path.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from regency.kafka.record_batch import Buffer
from regency.runtime.descriptors import is_shortage
from regency.runtime.disk import Disk

MIN_LIMIT = 8
"""Fewest files a pool keeps open."""


class OpenFiles:
    """A pool of descriptors; opening one more than `limit` closes the one that was not used for the longest time."""

    def __init__(self, limit: int, disk: Disk) -> None:
        self.disk = disk
        self._limit = max(limit, MIN_LIMIT)
        self._open: OrderedDict[LogFile, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def used(self, file: LogFile) -> None:
        """Note that an open file is in use."""
        self._open.move_to_end(file)

    def opened(self, file: LogFile) -> None:
        """Take a file that has just been opened, at the cost of the least recently used one."""
        self._open[file] = None
        if len(self._open) > self._limit:
            next(iter(self._open)).close()

    def closed(self, file: LogFile) -> None:
        """Forget a file."""
        self._open.pop(file, None)

    def make_room(self) -> bool:
        """Close the half that was used least recently; returns whether there was any."""
        victims = list(self._open)[: (len(self._open) + 1) // 2]
        for file in victims:
            file.close()
        return bool(victims)

    def close_all(self) -> None:
        """Close every file; each is opened again when it is used."""
        while self._open:
            next(iter(self._open)).close()


class LogFile:
    """A file read and written by position. Created empty where it is missing; errors are OSErrors."""

    __slots__ = ("_disk", "_fd", "_pool", "on_close", "path")

    def __init__(self, path: Path, pool: OpenFiles) -> None:
        self.path = path
        self.on_close: Callable[[], None] | None = None
        """Called when the descriptor is closed: whatever is cached of the content goes with it."""
        self._pool = pool
        self._disk = pool.disk
        self._fd = -1

    @property
    def is_open(self) -> bool:
        """Whether it can be read, written and synced without another descriptor."""
        return self._fd >= 0

    def fileno(self) -> int:
        """The descriptor, opened if need be; valid until another file of the pool is opened."""
        fd = self._fd
        if fd >= 0:
            self._pool.used(self)
            return fd
        self._fd = self._open()
        self._pool.opened(self)
        return self._fd

    def read(self, size: int, position: int) -> bytes:
        """At most `size` bytes from `position`; fewer only at the end of the file."""
        return self._disk.read(self.fileno(), size, position)

    def write(self, data: Buffer, position: int) -> None:
        """Write all of `data` at `position` in one call; a short write is an error."""
        try:
            written = self._disk.write(self.fileno(), data, position)
        except OSError as error:
            error.filename = error.filename or str(self.path)
            raise
        if written != len(data):
            reason = f"only {written} of {len(data)} bytes were written, as where a disk is full"
            raise OSError(errno.EIO, reason, str(self.path))

    def size(self) -> int:
        """Bytes in the file."""
        return self._disk.size(self.fileno())

    def truncate(self, size: int) -> None:
        """Cut the file off at `size` bytes."""
        self._disk.truncate(self.fileno(), size)

    def sync(self) -> None:
        """Wait until the content is on the disk."""
        self._disk.sync(self.fileno())

    def close(self) -> None:
        """Give the descriptor back; the next use opens the file again."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        self._pool.closed(self)
        if self.on_close is not None:
            self.on_close()
        self._disk.close(fd)

    def rename(self, path: Path) -> None:
        """Move the file; it stays open."""
        self._disk.rename(self.path, path)
        self.path = path

    def exists(self) -> bool:
        """Whether there is a file at its path."""
        return self._disk.exists(self.path)

    def modified_ms(self) -> int:
        """Wall milliseconds when it was last written to."""
        return self._disk.modified_ms(self.fileno())

    def remove(self) -> None:
        """Close the file and remove it, if it is there."""
        self.close()
        self._disk.remove(self.path, missing_ok=True)

    def move_to(self, pool: OpenFiles) -> None:
        """Close the file and let `pool` keep its descriptor from now on."""
        self.close()
        self._pool = pool
        self._disk = pool.disk

    def twin(self) -> LogFile:
        """The same file, open, with a descriptor of its own that another thread may use. Raises OSError."""
        twin = LogFile(self.path, OpenFiles(MIN_LIMIT, self._disk))
        twin._fd = self._open()  # room is made in this one's pool
        twin._pool.opened(twin)
        return twin

    def in_memory(self) -> LogFile:
        """An empty file of its path that is nowhere but in memory."""
        return _MemoryFile(self.path, self._pool)

    def copy_to(self, file: LogFile) -> None:
        """Have the other file hold the bytes of this one and no others. Raises OSError."""
        content = self.read(self.size(), 0)
        file.truncate(0)
        file.write(content, 0)

    def _open(self) -> int:
        """Take a descriptor; where the process has no more of them, give back some of the pool's first."""
        try:
            return self._disk.open(self.path)
        except OSError as error:
            if not is_shortage(error) or not self._pool.make_room():
                raise
        return self._disk.open(self.path)


class _MemoryFile(LogFile):
    """Bytes that are to be a file's one day."""

    __slots__ = ("_content",)

    def __init__(self, path: Path, pool: OpenFiles) -> None:
        super().__init__(path, pool)
        self._content = bytearray()

    def read(self, size: int, position: int) -> bytes:
        """As a file's."""
        return bytes(self._content[position : position + size])

    def write(self, data: Buffer, position: int) -> None:
        """As a file's."""
        self._content[position : position + len(data)] = data

    def size(self) -> int:
        """As a file's."""
        return len(self._content)

    def truncate(self, size: int) -> None:
        """As a file's."""
        del self._content[size:]
