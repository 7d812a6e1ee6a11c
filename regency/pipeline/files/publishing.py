"""A directory of results that appears whole or not at all, on any file system that Spark can write.

Everything is written beside the place and moved there at the end: one rename, which is atomic where renames are (local
file systems, HDFS), and not in object stores. Older results are swapped with the new ones where the system can (Linux);
elsewhere they are moved away first, and for a moment there is nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from regency.model.errors import RegencyError
from regency.pipeline.files.files import located, told
from regency.pipeline.files.place_names import why_no_new_directory
from regency.pipeline.files.places import HadoopPlaces, LocalPlaces, Occupied, Places, alone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        return LocalPlaces(session), LocalPlaces.real(str(system.makeQualified(place).toUri().getPath()))
    return HadoopPlaces(session, system), path.rstrip("/")


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
            f"{path} {error.why}.",
            hint="Name another directory, or see who else writes there and try again.",
        ) from error
