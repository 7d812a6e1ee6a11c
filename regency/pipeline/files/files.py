"""Files and directories of a job, wherever they are: asked for and made through Hadoop, as Spark itself does.

What is wrong with the name of one is found before Spark and its Java are asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from regency.model.errors import RegencyError
from regency.pipeline.errors import package_hint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_ROOT = "is the root of a file system"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


def why_no_directory(path: str) -> str:
    """Why a directory of that name cannot be written, in words behind it; empty where it may be possible."""
    if not path.strip():
        return "is empty"
    scheme, colon, rest = path.partition(":")
    if not colon or "/" in scheme:
        return "" if path.strip("/") else _ROOT
    if not _SCHEME.fullmatch(scheme):
        return "has a colon: what is before the first one is the scheme of a URI, as in hdfs://host/directory"
    if not rest.startswith("/"):
        return f"reads as a URI of the scheme {scheme}, which goes on with a slash, as in {scheme}://host/directory"
    below = rest[2:].partition("/")[2] if rest.startswith("//") else rest
    return "" if below.strip("/") else _ROOT


def why_no_new_directory(path: str) -> str:
    """As why_no_directory, of a directory that is to be made."""
    why = why_no_directory(path)
    if not why and path.rstrip("/").rpartition("/")[2] in (".", ".."):
        return "names no directory of its own"
    return why


class OutputExists(RegencyError):
    """There is something already where a job was to write."""

    code = "output_exists"


class OutputUnwritable(RegencyError):
    """A job may not write where it was to write."""

    code = "output_unwritable"


_GLOB = "{}[]*?\\"
"""Characters that make a pattern of a path where Spark reads it (SparkHadoopUtil.isGlobPath), but not where it writes.

Escaping does not help: the backslash is one of them, and where there is a pattern Spark's streams do not look for the
log that says which files count (FileStreamSource).
"""
_PROBE = "_regency_probe"
"""Readers of Parquet pass over names that begin so."""


def glob_characters(path: str) -> str:
    """Those of a path that Spark would take for a pattern, each once, in order."""
    return "".join(dict.fromkeys(character for character in path if character in _GLOB))


def refuse_unfit(session: SparkSession, directory: str) -> None:
    """Raises OutputExists and OutputUnwritable, before a job begins that would only find it in the end.

    The directory is made and removed again; what was missing above it stays.
    """
    with told(directory):
        path, system = located(session, directory)
        if system.exists(path):
            raise OutputExists(f"{directory} exists already.", hint="Name a directory that does not, or remove it.")
        _try_to_make(path, system, directory)


def refuse_unwritable(session: SparkSession, directory: str) -> None:
    """Raises OutputUnwritable for a directory, there or not, in which nothing can be written. Leaves it as it was."""
    with told(directory):
        path, system = located(session, directory)
        if system.exists(path):
            path, system = located(session, f"{directory}/{_PROBE}")
        _try_to_make(path, system, directory)


def _try_to_make(path: Any, system: Any, directory: str) -> None:
    if not (system.mkdirs(path) and system.delete(path, False)):
        raise _unwritable(directory, "")


@contextmanager
def told(directory: str) -> Iterator[None]:
    """Raises OutputUnwritable in the place of what Java, or the system of this machine, says."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415  (an extra)
    from pyspark.errors.exceptions.captured import CapturedException  # noqa: PLC0415

    try:
        yield
    except Py4JJavaError as error:
        raise _unwritable(directory, _root(error.java_exception)) from error
    except CapturedException as error:  # of classes that PySpark has a name for, such as IllegalArgumentException
        raise _unwritable(directory, _root(error._origin) if error._origin is not None else str(error)) from error  # noqa: SLF001
    except OSError as error:
        if isinstance(error, ConnectionError):
            raise  # Java is gone
        raise _unwritable(directory, error.strerror or str(error)) from error


@contextmanager
def java_raises(name: str, instead: type[Exception]) -> Iterator[None]:
    """Raises another exception in the place of Java's of that class."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415  (an extra)

    try:
        yield
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() == name:
            raise instead from error
        raise


def _root(exception: Any) -> str:
    """The words of the first cause, with its class where they are one word, such as the name of a host."""
    while exception.getCause() is not None:
        exception = exception.getCause()
    kind, words = str(exception.getClass().getSimpleName()), str(exception.getMessage() or "")
    return words if " " in words else f"{kind}: {words}".rstrip(": ")


def _unwritable(directory: str, why: str) -> OutputUnwritable:
    return OutputUnwritable(
        f"{directory} cannot be made{why and f': {why}'}{'' if why.endswith('.') else '.'}",
        hint=package_hint(why) or "Name a directory in a place where Spark's driver may write.",
    )


def names(session: SparkSession, directory: str) -> list[str]:
    """Names of the files in a directory, in order; none where it does not exist."""
    path, system = located(session, directory)
    if not system.exists(path):
        return []
    return sorted(status.getPath().getName() for status in system.listStatus(path) if status.isFile())


def make_directory(session: SparkSession, directory: str) -> None:
    """Make a directory, and those above it, where they do not exist."""
    path, system = located(session, directory)
    system.mkdirs(path)


def delete(session: SparkSession, directory: str, name: str) -> None:
    """Delete one file of a directory."""
    path, system = located(session, f"{directory}/{name}")
    system.delete(path, False)


def read_text(session: SparkSession, path: str) -> str | None:
    """What is in a small file; None where there is none."""
    place, system = located(session, path)
    if not system.exists(place):
        return None
    stream = system.open(place)
    try:
        jvm: Any = session._jvm  # noqa: SLF001
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def write_text(session: SparkSession, path: str, text: str) -> None:
    """Make a small file that is not there, whole or not at all, on disk when this returns. Raises OutputUnwritable."""
    with told(path):
        place, system = located(session, path)
        if system.getScheme() == "file":  # the one that adds checksums cannot flush to the disk
            jvm: Any = session._jvm  # noqa: SLF001
            system = jvm.org.apache.hadoop.fs.FileSystem.getLocal(system.getConf()).getRaw()
        beside = place.suffix(".new")
        stream = system.create(beside, True)
        try:
            stream.write(bytearray(text.encode()))
            if stream.hasCapability("hsync"):
                stream.hsync()
        finally:
            stream.close()
        if not system.rename(beside, place):
            raise _unwritable(path, "")


def located(session: SparkSession, path: str) -> tuple[Any, Any]:
    """Hadoop's path and file system of it."""
    jvm: Any = session._jvm  # noqa: SLF001  (there is no public way to Hadoop's files from Python)
    place = jvm.org.apache.hadoop.fs.Path(path)
    configuration = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    return place, place.getFileSystem(configuration)
