"""Where results are published: directories of this machine, and those of any other file system that Spark can write."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from regency.pipeline.files.files import java_raises, located

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Occupied(Exception):
    """Another process made, moved or removed a directory at this very moment; `why` says so behind its name."""

    def __init__(self, why: str = "was made, replaced or removed by another process meanwhile") -> None:
        super().__init__(why)
        self.why = why


class Places(Protocol):
    """Directories of one file system."""

    def uri(self, path: str) -> str:
        """The path as Spark is to be told it."""

    def exists(self, path: str) -> bool:
        """Whether anything is there."""

    def make(self, path: str) -> None:
        """Make a directory that is not there, and those above it."""

    def write(self, path: str, content: bytes) -> None:
        """Write a file."""

    def delete(self, path: str) -> None:
        """Delete what is there, if anything is."""

    def delete_when_java_ends(self, path: str) -> None:
        """Delete what is there now, by then if it is there still."""

    def claim(self, path: str) -> bool:
        """Make an empty file; False where it is there, also if it appears this very moment."""

    def move(self, path: str, to: str) -> None:
        """Raises Occupied where there is something, also if it appears this very moment, or `path` is gone."""

    def swap(self, path: str, other: str) -> bool:
        """Each takes the place of the other in one step; False, and nothing is done, where that is not possible.

        Raises Occupied where one of them is not there.
        """


@contextmanager
def alone(places: Places, target: str) -> Iterator[None]:
    """Inside, no other process that asks for the same moves directories to or from there. Raises Occupied."""
    parent, slash, name = target.rpartition("/")
    lock = f"{parent}{slash}.{name}.lock"
    if not places.claim(lock):
        raise Occupied(f"is being written by another process, as {lock} says; should there be none, remove that")
    try:
        places.delete_when_java_ends(lock)
        yield
    finally:
        places.delete(lock)


class LocalPlaces:
    """Of the machine this runs on, where Spark's driver runs, too."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    @staticmethod
    def real(path: str) -> str:
        """Where a path leads, symbolic links followed: they stay what they are."""
        return os.path.realpath(path)

    def uri(self, path: str) -> str:
        """See Places."""
        return f"file:{path}"

    def exists(self, path: str) -> bool:
        """See Places."""
        return os.path.lexists(path)

    def make(self, path: str) -> None:
        """See Places."""
        Path(path).mkdir(parents=True)

    def write(self, path: str, content: bytes) -> None:
        """See Places."""
        Path(path).write_bytes(content)

    def delete(self, path: str) -> None:
        """See Places."""
        if Path(path).is_dir():
            shutil.rmtree(path, ignore_errors=True)  # a task that is being cancelled may write there still
        else:
            Path(path).unlink(missing_ok=True)

    def delete_when_java_ends(self, path: str) -> None:
        """See Places."""
        place, system = located(self._session, self.uri(path))
        system.deleteOnExit(place)

    def claim(self, path: str) -> bool:
        """See Places."""
        try:
            Path(path).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def move(self, path: str, to: str) -> None:
        """See Places."""
        try:
            move(path, to)
        except (FileExistsError, FileNotFoundError) as error:
            raise Occupied from error

    def swap(self, path: str, other: str) -> bool:
        """See Places."""
        try:
            return exchange(path, other)
        except FileNotFoundError as error:
            raise Occupied from error


class HadoopPlaces:
    """Of any other file system, through Java."""

    def __init__(self, session: SparkSession, system: Any) -> None:
        self._session = session
        self._system = system

    def uri(self, path: str) -> str:
        """See Places."""
        return path

    def exists(self, path: str) -> bool:
        """See Places."""
        return bool(self._system.exists(self._path(path)))

    def make(self, path: str) -> None:
        """See Places."""
        if not self._system.mkdirs(self._path(path)):
            raise OSError(0, "its file system does not say why")

    def write(self, path: str, content: bytes) -> None:
        """See Places."""
        stream = self._system.create(self._path(path), True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    def delete(self, path: str) -> None:
        """See Places."""
        self._system.delete(self._path(path), True)

    def delete_when_java_ends(self, path: str) -> None:
        """See Places."""
        self._system.deleteOnExit(self._path(path))

    def claim(self, path: str) -> bool:
        """See Places."""
        try:
            with java_raises("FileAlreadyExistsException", Occupied):
                self._system.create(self._path(path), False).close()
        except Occupied:
            return False
        return True

    def move(self, path: str, to: str) -> None:
        """See Places."""
        inside = f"{to}/{path.rpartition('/')[2]}"
        if self.exists(to):
            raise Occupied
        with java_raises("FileNotFoundException", Occupied):
            moved = self._system.rename(self._path(path), self._path(to))
        if not moved:
            raise Occupied
        if self.exists(inside):  # Hadoop moves a directory into one that is there
            self.delete(inside)
            raise Occupied

    def swap(self, path: str, other: str) -> bool:  # noqa: ARG002
        """See Places."""
        return False

    def _path(self, path: str) -> Any:
        return located(self._session, path)[0]


_HERE: Final = -100
"""AT_FDCWD: paths are as they are."""
_NOREPLACE, _EXCHANGE = 1, 2
_UNSUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV})


def move(path: str, to: str) -> None:
    """Rename a directory. Raises FileExistsError where there is something, also if it appears this very moment."""
    if _renameat2(path, to, _NOREPLACE):
        return
    if os.path.lexists(to):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), to)
    try:
        Path(path).rename(to)  # takes the place of an empty directory at most
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), to) from error
        raise


def exchange(path: str, other: str) -> bool:
    """Swap two directories: at every moment there is one of them at either place.

    False where the system or the file system cannot. Raises FileNotFoundError where one of them is not there.
    """
    return _renameat2(path, other, _EXCHANGE)


def _renameat2(path: str, other: str, flags: int) -> bool:
    """Linux' system call; False where there is none, or the file system does not know the flag."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    if call(_HERE, os.fsencode(path), _HERE, os.fsencode(other), flags) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), path, None, other)
