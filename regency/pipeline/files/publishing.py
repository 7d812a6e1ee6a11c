"""A directory of results that appears whole or not at all, on any file system that Spark can write.

Everything is written beside the place and moved there at the end: one rename, which is atomic where renames are (local
file systems, HDFS), and not in object stores. Older results are swapped with the new ones where the system can (Linux);
elsewhere they are moved away first, and for a moment there is nothing.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from regency.model.errors import RegencyError
from regency.pipeline.files.files import java_raises, located, told, why_no_new_directory

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


class _LocalPlaces:
    """Of the machine this runs on, where Spark's driver runs, too."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def uri(self, path: str) -> str:
        return f"file:{path}"

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def make(self, path: str) -> None:
        Path(path).mkdir(parents=True)

    def write(self, path: str, content: bytes) -> None:
        Path(path).write_bytes(content)

    def delete(self, path: str) -> None:
        if Path(path).is_dir():
            shutil.rmtree(path, ignore_errors=True)  # a task that is being cancelled may write there still
        else:
            Path(path).unlink(missing_ok=True)

    def delete_when_java_ends(self, path: str) -> None:
        place, system = located(self._session, self.uri(path))
        system.deleteOnExit(place)

    def claim(self, path: str) -> bool:
        try:
            Path(path).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def move(self, path: str, to: str) -> None:
        try:
            _move(path, to)
        except (FileExistsError, FileNotFoundError) as error:
            raise Occupied from error

    def swap(self, path: str, other: str) -> bool:
        try:
            return _exchange(path, other)
        except FileNotFoundError as error:
            raise Occupied from error


class _HadoopPlaces:
    """Of any other file system, through Java."""

    def __init__(self, session: SparkSession, system: Any) -> None:
        self._session = session
        self._system = system

    def uri(self, path: str) -> str:
        return path

    def exists(self, path: str) -> bool:
        return bool(self._system.exists(self._path(path)))

    def make(self, path: str) -> None:
        if not self._system.mkdirs(self._path(path)):
            raise OSError(0, "its file system does not say why")

    def write(self, path: str, content: bytes) -> None:
        stream = self._system.create(self._path(path), True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    def delete(self, path: str) -> None:
        self._system.delete(self._path(path), True)

    def delete_when_java_ends(self, path: str) -> None:
        self._system.deleteOnExit(self._path(path))

    def claim(self, path: str) -> bool:
        try:
            with java_raises("FileAlreadyExistsException", Occupied):
                self._system.create(self._path(path), False).close()
        except Occupied:
            return False
        return True

    def move(self, path: str, to: str) -> None:
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
        return False

    def _path(self, path: str) -> Any:
        return located(self._session, path)[0]


_HERE: Final = -100
"""AT_FDCWD: paths are as they are."""
_NOREPLACE, _EXCHANGE = 1, 2
_UNSUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV})


def _move(path: str, to: str) -> None:
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


def _exchange(path: str, other: str) -> bool:
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


class PlaceTaken(RegencyError):
    """Results would take the place of something else."""

    code = "place_taken"


class Staging:
    """Where results are written before they are published."""

    def __init__(self, places: Places, part: str, path: str) -> None:
        self._places = places
        self._part = part
        self._path = path
        self.directory = places.uri(part)
        """It is there, and empty at first."""

    def path(self, name: str) -> str:
        """Where to write a part of the results."""
        return f"{self.directory}/{name}"

    def write(self, name: str, content: bytes) -> None:
        """Write a file. Raises OutputUnwritable."""
        with told(self._path):
            self._places.write(f"{self._part}/{name}", content)

    def delete(self, name: str) -> None:
        """Delete what shall not be published."""
        with told(self._path):
            self._places.delete(f"{self._part}/{name}")


@contextmanager
def published(session: SparkSession, path: str, *, mark: str = "", overwrite: bool = False) -> Iterator[Staging]:
    """Inside, results are written to the Staging; at the end they are at `path`, and after an error nothing is.

    `mark` is the name of a file that the results have, if they may be replaced: with `overwrite`, a directory that has
    it is. Raises PlaceTaken at once where there is anything else, or anything without `overwrite`, and OutputUnwritable
    where nothing can be written. A symbolic link is followed.
    """
    why = why_no_new_directory(path)
    if why:
        raise PlaceTaken(f"{path or 'The name'} {why}.", hint="Name a directory that is not there yet.")
    with told(path):
        places, target = _places(session, path)
        taken = places.exists(target)
        if taken:
            _refuse_foreign(places, path, target, mark, overwrite=overwrite)
        parent, slash, name = target.rpartition("/")
        beside = f"{parent}{slash}.{name}.{uuid.uuid4().hex[:12]}"
        part, old = f"{beside}.part", f"{beside}.old"
        # after Ctrl-C tasks that are cancelled may still write, and make again what is deleted below
        places.make(part)
        places.delete_when_java_ends(part)
    try:
        yield Staging(places, part, path)
        with told(path), _occupied(path):
            if not taken or not places.swap(part, target):
                with alone(places, target):  # between two moves another process would get in
                    if taken:
                        _replace(places, target, part, old)
                    else:
                        places.move(part, target)
            elif not places.exists(f"{part}/{mark}"):
                places.swap(part, target)
                raise Occupied
    finally:
        places.delete(part)


def _places(session: SparkSession, path: str) -> tuple[Places, str]:
    """What moves directories there, and the path in its words."""
    place, system = located(session, path)
    if system.getScheme() == "file":
        return _LocalPlaces(session), os.path.realpath(str(system.makeQualified(place).toUri().getPath()))
    return _HadoopPlaces(session, system), path.rstrip("/")


def _refuse_foreign(places: Places, path: str, target: str, mark: str, *, overwrite: bool) -> None:
    if not overwrite:
        raise PlaceTaken(
            f"{path} is there already.", hint=f"Name another directory{', or say --overwrite' * bool(mark)}."
        )
    if not places.exists(f"{target}/{mark}"):
        raise PlaceTaken(
            f"{path} is there already, and is no result of this job: it has no {mark}.", hint="Name another directory."
        )


def _replace(places: Places, target: str, part: str, old: str) -> None:
    """Put `part` in the place of `target`, which is in its place afterwards if that fails."""
    try:
        places.move(target, old)
        places.move(part, target)
    finally:
        if places.exists(old):
            if not places.exists(target):
                with suppress(Occupied):  # by another writer's, this very moment
                    places.move(old, target)
            if places.exists(old) and places.exists(target):
                places.delete_when_java_ends(old)  # and now, unless that is interrupted
                places.delete(old)


@contextmanager
def _occupied(path: str) -> Iterator[None]:
    try:
        yield
    except Occupied as error:
        raise PlaceTaken(
            f"{path} {error.why}.", hint="Name another directory, or see who else writes there and try again."
        ) from error
