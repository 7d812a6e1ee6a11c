"""Which files a history is in, on any file system that Spark can read: found through Hadoop, each by its name.

Spark's own listing leaves out names that begin with a dot or an underscore, and says nothing. Here a file that Spark
would leave out is found as well, and told, and so is one that was there and is not among those Spark reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from regency.history.files import CUT_OFF, SUFFIXES, no_gzip
from regency.model.errors import RegencyError
from regency.pipeline.files import located

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import Column, DataFrame, SparkSession

HIDDEN = "Spark reads no file whose name begins with . or _, or has a colon: rename it"
_GLOB = frozenset("\\[]{}*?")
_GZIP = ".gz"
_BUFFER = 1 << 16


class FilesUnreadable(RegencyError):
    """Files that a job was to read are not there, or cannot be listed, or Spark does not read them."""

    code = "files_unreadable"


class Found(NamedTuple):
    """Files by their whole names, each once. Empty ones whose names Spark does not read are left out."""

    files: list[str]
    hidden: list[str]
    """Those among the files to be read that Spark leaves out because of their names."""
    others: list[str]
    """Found in a directory, and not read because of their names, as in `regency.history.files`."""


def find_files(session: SparkSession, paths: Sequence[str]) -> Found:
    """The files that paths stand for: the rule of `regency.history.files`, and globs for whatever they match.

    Raises FilesUnreadable that names the path.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415  (an extra)
    from pyspark.errors import PySparkException  # noqa: PLC0415

    files: dict[str, bool] = {}
    others: dict[str, None] = {}
    for path in paths:
        try:
            for name, size, named in _standing_for(session, path):
                if not named and not name.endswith(SUFFIXES):
                    others[name] = None
                elif size > 0 or not is_hidden(name):
                    files.setdefault(name, is_hidden(name))
        except Py4JJavaError as error:
            raise FilesUnreadable(f"{path} cannot be read: {error.java_exception.getMessage()}.") from error
        except PySparkException as error:
            raise FilesUnreadable(f"{path} cannot be read: {error}.") from error
    return Found(
        [name for name, hidden in files.items() if not hidden],
        [name for name, hidden in files.items() if hidden],
        [name for name in others if name not in files],
    )


def by_names(found: Found) -> Found:
    """Only those whose names are of histories, however they were found. Pure."""
    files, hidden = ([name for name in names if name.endswith(SUFFIXES)] for names in (found.files, found.hidden))
    return Found(files, hidden, [])


def is_hidden(name: str) -> bool:
    """Whether Spark leaves a file out because of its name, or cannot open it. Pure."""
    last = name.rpartition("/")[2]
    return last.startswith((".", "_")) or last.endswith("._COPYING_") or ":" in last


def escaped(path: str) -> str:
    """A path for Spark to read whose characters stand for themselves, though some mean something in a glob. Pure."""
    return "".join(f"\\{each}" if each in _GLOB else each for each in path)


def text_of(session: SparkSession, files: Sequence[str], **options: bool) -> DataFrame:
    """Lines of the files, as Spark's text source has them, with its `_metadata`. `files`: at least one.

    Raises FilesUnreadable where Spark would leave one of them out.
    """
    reader = session.read.options(**options)
    text = reader.text([escaped(each) for each in files], lineSep="\n", recursiveFileLookup=True)
    found = len(text.inputFiles())
    if found != len(files):
        raise FilesUnreadable(
            f"Spark reads {found} of {len(files)} files.", hint="Some are gone meanwhile, or of names it leaves out."
        )
    return text


def file_name() -> Column:
    """Of each line of `text_of`, the file it is from, called as in Found. Spark has its URI."""
    from pyspark.sql import functions as f  # noqa: PLC0415  (an extra)

    uri = f.replace(f.col("_metadata.file_path"), f.lit("+"), f.lit("%2B"))  # which in a form would be a space
    return f.url_decode(uri)


def unread(error: Exception) -> bool:
    """Whether an error of Spark, or of its Java, says that a file cannot be read to its end."""
    return "FAILED_READ_FILE" in str(error)


def damaged(session: SparkSession, files: Sequence[str]) -> dict[str, str]:
    """What is wrong with each compressed file that cannot be unpacked to its end. Reads them all, in Spark's driver."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415  (an extra)

    wrong: dict[str, str] = {}
    for name in files:
        if not name.endswith(_GZIP):
            continue
        try:
            _unpack(session, name)
        except Py4JJavaError as error:
            thrown = error.java_exception
            cut = thrown.getClass().getSimpleName() == "EOFException"
            wrong[name] = CUT_OFF if cut else no_gzip(str(thrown.getMessage()))
    return wrong


def _standing_for(session: SparkSession, path: str) -> Iterator[tuple[str, int, bool]]:
    """Name and size of each file, and whether it was named itself, or matched by a glob, and not found below."""
    place, system = located(session, path)
    if system.exists(place):
        matched = [system.getFileStatus(place)]
    else:
        matched = list(system.globStatus(system.makeQualified(place)) or ())
        if not matched:
            raise FilesUnreadable(f"There is no {path}.", hint="Name files, directories, or globs that match some.")
    for status in matched:
        if not status.isDirectory():
            yield *_named(status), True
            continue
        below = system.listFiles(status.getPath(), True)
        found = []
        while below.hasNext():
            found.append(_named(below.next()))
        for name, size in sorted(found):
            yield name, size, False


def _named(status: JavaObject) -> tuple[str, int]:
    return status.getPath().toString(), status.getLen()


def _unpack(session: SparkSession, name: str) -> None:
    """Read a compressed file to its end, as Spark does, and keep nothing."""
    place, system = located(session, name)
    jvm: Any = session._jvm  # noqa: SLF001  (there is no public way to Hadoop's files from Python)
    codecs = jvm.org.apache.hadoop.io.compress.CompressionCodecFactory(system.getConf())
    stream = system.open(place)
    try:
        unpacked = codecs.getCodec(place).createInputStream(stream)
        jvm.org.apache.hadoop.io.IOUtils.copyBytes(unpacked, jvm.java.io.OutputStream.nullOutputStream(), _BUFFER)
    finally:
        stream.close()
