"""Directories that a job writes to, wherever they are: asked through Hadoop, as Spark itself does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regency.model.errors import RegencyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class OutputExists(RegencyError):
    """There is something already where a job was to write."""

    code = "output_exists"


class OutputUnwritable(RegencyError):
    """A job may not write where it was to write."""

    code = "output_unwritable"


def refuse_unfit(session: SparkSession, directory: str) -> None:
    """Raises OutputExists and OutputUnwritable, before a job begins that would only find it in the end.

    The directory is made and removed again; what was missing above it stays.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415  (an extra)

    try:
        path, system = _located(session, directory)
        if system.exists(path):
            raise OutputExists(f"{directory} exists already.", hint="Name a directory that does not, or remove it.")
        made, why = system.mkdirs(path) and system.delete(path, False), ""
    except Py4JJavaError as error:
        made, why = False, f": {error.java_exception.getMessage()}"
    if not made:
        raise OutputUnwritable(
            f"{directory} cannot be made{why}.", hint="Name a directory in a place where Spark's driver may write."
        )


def names(session: SparkSession, directory: str) -> list[str]:
    """Names of the files in a directory, in order; none where it does not exist."""
    path, system = _located(session, directory)
    if not system.exists(path):
        return []
    return sorted(status.getPath().getName() for status in system.listStatus(path) if status.isFile())


def make_directory(session: SparkSession, directory: str) -> None:
    """Make a directory, and those above it, where they do not exist."""
    path, system = _located(session, directory)
    system.mkdirs(path)


def delete(session: SparkSession, directory: str, name: str) -> None:
    """Delete one file of a directory."""
    path, system = _located(session, f"{directory}/{name}")
    system.delete(path, False)


def _located(session: SparkSession, path: str) -> tuple[Any, Any]:
    """Hadoop's path and file system of it."""
    jvm: Any = session._jvm  # noqa: SLF001  (there is no public way to Hadoop's files from Python)
    located = jvm.org.apache.hadoop.fs.Path(path)
    configuration = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    return located, located.getFileSystem(configuration)
