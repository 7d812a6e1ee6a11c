"""Directories that a job writes to, wherever they are: asked through Hadoop, as Spark itself does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regency.model.errors import RegencyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class OutputExists(RegencyError):
    """There is something already where a job was to write."""

    code = "output_exists"


def refuse_existing(session: SparkSession, directory: str) -> None:
    """Raises OutputExists, before a job begins that would only find it in the end."""
    path, system = _located(session, directory)
    if system.exists(path):
        raise OutputExists(f"{directory} exists already.", hint="Name a directory that does not, or remove it.")


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
