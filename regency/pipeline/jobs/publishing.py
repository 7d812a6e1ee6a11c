"""A directory of results that appears whole or not at all, on any file system that Spark can write.

Everything is written beside the place and moved there at the end: one rename, which is atomic where renames are (local
file systems, HDFS), and not in object stores.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from regency.model.errors import RegencyError
from regency.pipeline.files import located

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class PlaceTaken(RegencyError):
    """Results would take the place of something else."""

    code = "place_taken"


class Staging:
    """Where results are written before they are published."""

    def __init__(self, files: Any, path: str) -> None:
        self._files = files
        self.directory = path
        """It is there, and empty at first."""

    def path(self, name: str) -> str:
        """Where to write a part of the results."""
        return f"{self.directory}/{name}"

    def write(self, name: str, content: bytes) -> None:
        """Write a file."""
        stream = self._files.create(self.path(name))
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()
        self._files.delete(self.path(f".{name}.crc"))  # Hadoop's, beside files of this machine: nobody looks at it

    def delete(self, name: str) -> None:
        """Delete what shall not be published."""
        self._files.delete(self.path(name))


@contextmanager
def published(session: SparkSession, path: str, *, mark: str = "", overwrite: bool = False) -> Iterator[Staging]:
    """Inside, results are written to the Staging; at the end they are at `path`, and after an error nothing is.

    `mark` is the name of a file that the results have, if they may be replaced: with `overwrite`, a directory that has
    it is. Raises PlaceTaken at once where there is anything else, or anything without `overwrite`.
    """
    files = _Files(session, path)
    target = path.rstrip("/")
    parent, slash, name = target.rpartition("/")
    if not name or name in (".", "..") or parent.endswith(":/"):
        raise PlaceTaken(f"{path} cannot be the directory of the results.", hint="Name one that is not there yet.")
    taken = files.exists(target)
    if taken and not overwrite:
        raise PlaceTaken(
            f"{path} is there already.", hint=f"Name another directory{', or say --overwrite' * bool(mark)}."
        )
    if taken and not files.exists(f"{target}/{mark}"):
        raise PlaceTaken(
            f"{path} is there already, and is no result of this job: it has no {mark}.", hint="Name another directory."
        )
    beside = f"{parent}{slash}.{name}.{uuid.uuid4().hex[:12]}"
    part, old = f"{beside}.part", f"{beside}.old"
    # after Ctrl-C tasks that are cancelled may still write, and make again what is deleted below
    files.make(part)
    files.delete_when_java_ends(part)
    try:
        yield Staging(files, part)
        if taken:
            _replace(files, target, part, old)
        else:
            files.rename(part, target)
    finally:
        files.delete(part)


def _replace(files: _Files, target: str, part: str, old: str) -> None:
    """Put `part` in the place of `target`, which is in its place afterwards if that fails."""
    try:
        files.rename(target, old)
        files.rename(part, target)
    finally:
        if not files.exists(target):
            files.rename(old, target)
        elif files.exists(old):
            files.delete_when_java_ends(old)  # and now, unless somebody interrupts that
            files.delete(old)


class _Files:
    """Hadoop's file system of a path, through Java."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self._session = session
        _, self._system = located(session, path)

    def exists(self, path: str) -> bool:
        return bool(self._system.exists(self._path(path)))

    def create(self, path: str) -> Any:
        return self._system.create(self._path(path), True)

    def delete(self, path: str) -> None:
        self._system.delete(self._path(path), True)

    def make(self, path: str) -> None:
        if not self._system.mkdirs(self._path(path)):
            raise PlaceTaken(f"{path} cannot be made.", hint="Name a directory where Spark's driver may write.")

    def delete_when_java_ends(self, path: str) -> None:
        """Delete what is there now, by then if it is there still."""
        self._system.deleteOnExit(self._path(path))

    def rename(self, path: str, to: str) -> None:
        """Raises PlaceTaken where there is something, also if it appears this very moment."""
        inside = f"{to}/{path.rpartition('/')[2]}"
        if self.exists(to):
            raise _made_meanwhile(to)
        if not self._system.rename(self._path(path), self._path(to)):
            raise PlaceTaken(f"{path} cannot be moved to {to}.", hint="See who else writes there, and try again.")
        if self.exists(inside):  # Hadoop moves a directory into one that is there
            self.delete(inside)
            raise _made_meanwhile(to)

    def _path(self, path: str) -> Any:
        return located(self._session, path)[0]


def _made_meanwhile(path: str) -> PlaceTaken:
    return PlaceTaken(f"{path} was made by somebody else meanwhile.", hint="Name another directory.")
