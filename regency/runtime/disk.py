"""The disk as a port: everything the log asks of the operating system's files, and the real thing.

No other module of the log opens, renames or syncs anything. Descriptors are integers that only the disk they came from
understands; they stay valid when their file is renamed or removed, and may be used from any thread.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

from regency.runtime.descriptors import is_shortage, limit

T = TypeVar("T")

_FILE_MODE = 0o644

_CANNOT_SET_ASIDE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
"""What file systems say that cannot set blocks aside; they need not."""

_SYNCERS = 16
"""Files that are synced at a time where many are to be; fewer where descriptors are few."""


class Disk(Protocol):
    """Files and directories by path, content by descriptor. Every method raises OSError.

    What was written lasts when its descriptor was synced; what was created, renamed or removed lasts when the
    directory it happened in was synced. A crash of the process alone loses neither.
    """

    @property
    def max_open_files(self) -> int:
        """How many descriptors this process may have at once."""
        ...

    @property
    def boot_id(self) -> str:
        """Tells one boot of the machine from the next: what was written lasts at least as long. Empty: not known."""
        ...

    def open(self, path: Path) -> int:
        """A descriptor to read and write the file at `path`, which is created empty where it is missing."""
        ...

    def open_existing(self, path: Path) -> int:
        """A descriptor to read the file at `path`, which is not created. Raises FileNotFoundError."""
        ...

    def open_empty(self, path: Path, size: int = 0) -> int:
        """As `open`, of a file whose content is dropped, and which is about to get `size` bytes."""
        ...

    def lock(self, path: Path) -> int:
        """A descriptor of the file at `path`, created where it is missing, that locks it until it is closed.

        Raises BlockingIOError where another process has it, be it by flock or by fcntl (as Kafka's).
        """
        ...

    def open_directory(self, path: Path) -> int:
        """A descriptor of the directory at `path`, only for `sync`: that the names in it last, and `close`."""
        ...

    def close(self, fd: int) -> None:
        """Give a descriptor back."""
        ...

    def read(self, fd: int, size: int, position: int) -> bytes:
        """At most `size` bytes from `position`; fewer only at the end of the file."""
        ...

    def write(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        """Write `data` at `position`; returns how many bytes were written, which may be fewer."""
        ...

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file off at `size` bytes."""
        ...

    def sync(self, fd: int) -> None:
        """Wait until the file's content, or the directory's names, will last.

        No error is a shortage here: what failed once is not tried again.
        """
        ...

    def size(self, fd: int) -> int:
        """Bytes in the file."""
        ...

    def modified_ms(self, fd: int) -> int:
        """Wall milliseconds when the file was last written to."""
        ...

    def read_file(self, path: Path) -> bytes:
        """The whole content of the file at `path`."""
        ...

    def sync_path(self, path: Path) -> None:
        """Wait until the content of the file at `path`, or the names in the directory at `path`, will last."""
        ...

    def sync_paths(self, paths: Sequence[Path]) -> dict[Path, OSError]:
        """Wait until all of them will last, in no order. Returns those that could not be synced, and why."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Move a file, over whatever file is at `target`, or a directory to a name that is free."""
        ...

    def remove(self, path: Path, *, missing_ok: bool = False) -> None:
        """Remove a file."""
        ...

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with everything in it."""
        ...

    def make_directory(self, path: Path, *, parents: bool = False) -> None:
        """Make a new directory; with `parents` also those above it, and it may be there already."""
        ...

    def names_in(self, directory: Path) -> list[str]:
        """Names of everything in `directory`, in order."""
        ...

    def exists(self, path: Path) -> bool:
        """Whether there is a file or a directory at `path`."""
        ...

    def is_directory(self, path: Path) -> bool:
        """Whether there is a directory at `path`."""
        ...

    def space(self, path: Path) -> tuple[int, int]:
        """Bytes of the volume `path` is on: all, and those that could still be written."""
        ...


class OsDisk:
    """The operating system's files."""

    def __init__(self, reserve: int = 0) -> None:
        """Keeps `reserve` descriptors for when the process has no others: most that a log needs it needs for a moment.

        Raises OSError where it cannot have them.
        """
        self._reserved = reserve
        self._reserve = [os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) for _ in range(reserve)]
        self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) if reserve else -1

    @property
    def max_open_files(self) -> int:
        """The process's soft limit."""
        return limit()

    @property
    def boot_id(self) -> str:
        """The kernel's, where it is Linux."""
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        except (OSError, ValueError):
            return ""

    def open(self, path: Path) -> int:
        """As the port says."""
        return self._taken(lambda: os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE))

    def open_existing(self, path: Path) -> int:
        """As the port says."""
        return self._taken(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def open_empty(self, path: Path, size: int = 0) -> int:
        """As the port says. A file with its blocks set aside may replace another one without being written out.

        ext4 does that at a rename otherwise (auto_da_alloc), for a millisecond and more, so that what replaces is not
        empty after a power cut; here a caller that needs that syncs.
        """
        fd = self._taken(lambda: os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE))
        if size and hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(fd, 0, size)
            except OSError as error:
                if error.errno not in _CANNOT_SET_ASIDE:
                    self.close(fd)
                    error.filename = error.filename or str(path)
                    raise
        return fd

    def lock(self, path: Path) -> int:
        """As the port says."""
        fd = self.open(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close(fd)
            raise
        return fd

    def open_directory(self, path: Path) -> int:
        """As the port says."""
        return self._taken(lambda: os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def close(self, fd: int) -> None:
        """As the port says. What was taken from the reserve goes back there without ever being free for others."""
        if len(self._reserve) < self._reserved:
            os.dup2(self._nothing, fd, inheritable=False)
            self._reserve.append(fd)
        else:
            os.close(fd)

    def read(self, fd: int, size: int, position: int) -> bytes:
        """As the port says."""
        return os.pread(fd, size, position)

    def write(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        """As the port says."""
        return os.pwrite(fd, data, position)

    def truncate(self, fd: int, size: int) -> None:
        """As the port says."""
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """As the port says."""
        _sync(fd)

    def size(self, fd: int) -> int:
        """As the port says."""
        return os.fstat(fd).st_size

    def modified_ms(self, fd: int) -> int:
        """As the port says."""
        return int(os.fstat(fd).st_mtime * 1000)

    def read_file(self, path: Path) -> bytes:
        """As the port says."""
        return self._taken(path.read_bytes)

    def sync_path(self, path: Path) -> None:
        """As the port says."""
        fd = self._taken(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        try:
            _sync(fd)
        finally:
            self.close(fd)

    def sync_paths(self, paths: Sequence[Path]) -> dict[Path, OSError]:
        """As the port says. Side by side: a journal takes many at once for little more than the time of one."""
        failed: dict[Path, OSError] = {}
        left = deque(paths)

        def sync() -> None:
            with suppress(IndexError):
                while True:
                    path = left.popleft()
                    try:
                        self.sync_path(path)
                    except OSError as error:
                        failed[path] = error

        helpers = min(_SYNCERS, self.max_open_files // 64, len(paths)) - 1
        if helpers <= 0:
            sync()
            return failed
        with ThreadPoolExecutor(helpers, "log-sync") as pool:
            with suppress(RuntimeError):  # no more threads: those that are there do it all
                for _ in range(helpers):
                    pool.submit(sync)
            sync()
        return failed

    def rename(self, source: Path, target: Path) -> None:
        """As the port says."""
        source.rename(target)

    def remove(self, path: Path, *, missing_ok: bool = False) -> None:
        """As the port says."""
        path.unlink(missing_ok=missing_ok)

    def remove_tree(self, path: Path) -> None:
        """As the port says."""
        self._taken(lambda: shutil.rmtree(path))

    def make_directory(self, path: Path, *, parents: bool = False) -> None:
        """As the port says."""
        path.mkdir(parents=parents, exist_ok=parents)

    def names_in(self, directory: Path) -> list[str]:
        """As the port says."""

        def names() -> list[str]:
            with os.scandir(directory) as entries:
                return sorted(entry.name for entry in entries)

        return self._taken(names)

    def exists(self, path: Path) -> bool:
        """As the port says."""
        return path.exists()

    def is_directory(self, path: Path) -> bool:
        """As the port says."""
        return path.is_dir()

    def space(self, path: Path) -> tuple[int, int]:
        """As the port says."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def _taken(self, take: Callable[[], T]) -> T:
        """What needs a descriptor, with one of the reserve where there is no other. From any thread."""
        while True:
            try:
                return take()
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
                try:
                    spare = self._reserve.pop()
                except IndexError:
                    raise error from None
                os.close(spare)


def _sync(fd: int) -> None:
    """One that fails for want of memory is no shortage: the next may succeed without what the kernel did not write."""
    try:
        os.fsync(fd)
    except OSError as error:
        if is_shortage(error):
            raise OSError(errno.EIO, f"a sync failed: {error.strerror}") from error
        raise
