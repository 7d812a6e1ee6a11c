"""Which files a history is in, on any file system that Spark can read, each by its name.

Spark leaves out names that begin with a dot or an underscore, Hadoop's listing those that Java cannot decode and links
that lead nowhere, and neither says anything. So files of this machine are found by Python, by the rule of
`regency.judge.files`; elsewhere Hadoop lists them. A file that Spark would not read as a history is reported with the
reason, and so is a file that was there and is not among those Spark reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from regency.judge.files import CUT_OFF, GZIP, SUFFIXES, FilesUnreadable, no_gzip, packed
from regency.judge.files import find_files as find_here
from regency.judge.operations import printable
from regency.pipeline.files.files import located

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import Column, DataFrame, SparkSession


HIDDEN = "Spark reads no file whose name begins with . or _, ends with ._COPYING_, or has a colon: rename it"
_GLOB = frozenset("\\[]{}*?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_HERE = re.compile(r"file:(?://)?(?=/)")
_BUFFER = 1 << 16
_UNOPENED = ("FileNotFoundException", "AccessControlException", "AccessDeniedException")
_UNCHECKED = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",  # or the one that is there already is taken
}
"""Files of a machine are read as they are, whatever checksums Hadoop once wrote beside them (`.NAME.crc`)."""

_WHOLE = {"ignoreCorruptFiles": False, "ignoreMissingFiles": False}
"""Unless they are chosen, whatever a site has set for all sessions: what is left out so is left out in silence."""


class PathMissing(FilesUnreadable):
    """There is nothing at a path, and nothing that it matches."""

    code = "path_missing"


class Found(NamedTuple):
    """Files by their whole names, each once. Empty ones whose names Spark does not read are left out."""

    files: list[str]
    unread: dict[str, str]
    """Those that belong to the history and would not be read, and why."""
    others: list[str]
    """Found in a directory, and not read because of their names, as in `regency.judge.files`."""


def find_files(session: SparkSession, paths: Sequence[str]) -> Found:
    """The files that paths stand for: the rule of `regency.judge.files`, and globs for whatever they match.

    Raises PathMissing, and FilesUnreadable that names the path.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415  (an extra)
    from pyspark.errors import PySparkException  # noqa: PLC0415

    here: list[Path] = []
    found = Found([], {}, [])
    for path in paths:
        try:
            local = _of_this_machine(session, path)
            if local is not None:
                here += _matched_here(session, path, local)
            else:
                _add_elsewhere(session, path, found)
        except Py4JJavaError as error:
            raise FilesUnreadable(f"{path} cannot be read: {error.java_exception.getMessage()}.") from error
        except PySparkException as error:
            raise FilesUnreadable(f"{path} cannot be read: {error}.") from error
    _add_here(session, here, found)
    files = dict.fromkeys(found.files)
    return Found(list(files), found.unread, [name for name in dict.fromkeys(found.others) if name not in files])


def by_names(found: Found) -> Found:
    """Only those whose names are of histories, however they were found. Pure."""
    files = [name for name in found.files if name.endswith(SUFFIXES)]
    return Found(files, {name: why for name, why in found.unread.items() if name.endswith(SUFFIXES)}, [])


def is_hidden(name: str) -> bool:
    """Whether Spark leaves a file out because of its name, or cannot open it. Pure."""
    last = name.rpartition("/")[2]
    return last.startswith((".", "_")) or last.endswith("._COPYING_") or ":" in last


def undecoded(name: str, encoding: str) -> str:
    """Why Java, whose file names are in `encoding`, does not find a file; empty where it does. Pure."""
    if name.isascii():
        return ""
    try:
        name.encode()
    except UnicodeEncodeError:
        return "its name is no UTF-8, and Java does not find it: rename it"
    try:
        if name.encode(encoding) == os.fsencode(name):
            return ""
    except (UnicodeEncodeError, LookupError):
        pass
    return f"Java decodes names as {encoding}, and does not find it: run this in a UTF-8 locale, such as LC_ALL=C.UTF-8"


def escaped(path: str) -> str:
    """A path for Spark to read whose characters stand for themselves, though some mean something in a glob. Pure."""
    return "".join(f"\\{each}" if each in _GLOB else each for each in path)


def text_of(session: SparkSession, files: Sequence[str], **options: bool) -> DataFrame:
    """Lines of the files, as Spark's text source has them, with its `_metadata`. `files`: at least one.

    Raises FilesUnreadable where Spark would leave one of them out.
    """
    chosen: dict[str, str | bool] = {**_UNCHECKED, **_WHOLE, **options}
    reader = session.read.options(**chosen)
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


def damaged(session: SparkSession, files: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each file that cannot be opened, or unpacked to its end, and why. Reads them in Spark's driver, one by one."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415  (an extra)

    for name in files:
        try:
            _read_through(session, name)
        except Py4JJavaError as error:
            thrown = error.java_exception
            kind, said = str(thrown.getClass().getSimpleName()), str(thrown.getMessage())
            if not name.endswith(GZIP) or kind in _UNOPENED:
                yield name, f"it cannot be read: {said}"
            else:
                yield name, CUT_OFF if kind == "EOFException" else no_gzip(said)


def _of_this_machine(session: SparkSession, path: str) -> str | None:
    """The path without its scheme, where it is of this machine's files; Hadoop knows where one without a scheme is."""
    bare = _HERE.sub("", path, count=1)
    if bare != path:
        return bare
    if _SCHEME.match(path):
        return None
    jvm: Any = session._jvm  # noqa: SLF001  (there is no public way to Hadoop's files from Python)
    configuration = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    return path if jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(configuration).getScheme() == "file" else None


def _missing(path: str) -> PathMissing:
    return PathMissing(
        f"There is no {printable(path)}." if path else "A path is empty.",
        hint="Name files, directories, or globs that match some.",
    )


def _matched_here(session: SparkSession, path: str, local: str) -> list[Path]:
    """A path as it stands, if there is something, else what it matches: whole names."""
    try:
        if not local or os.path.lexists(local):
            matched = [Path(local)] if local and Path(local).exists() else []
        else:
            matched = matching(session, local)
    except OSError as error:
        raise FilesUnreadable(f"{path} cannot be read: {error.filename}: {error.strerror}.") from error
    if not matched:
        raise _missing(path)
    return [_without_parents(each) for each in matched]


def _without_parents(path: Path) -> Path:
    """The same file by a whole name without `..`, which means the parent of what a link leads to."""
    parts = path.absolute().parts
    last = max((number for number, part in enumerate(parts) if part == ".."), default=-1)
    return Path(os.path.realpath(Path(*parts[: last + 1])), *parts[last + 1 :]) if last >= 0 else path.absolute()


def _add_here(session: SparkSession, paths: Sequence[Path], found: Found) -> None:
    jvm: Any = session._jvm  # noqa: SLF001  (there is no public way to Java's settings from Python)
    encoding = str(jvm.java.lang.System.getProperty("sun.jnu.encoding"))
    ends = _codecs(session)
    try:
        own = find_here(paths)
        for file, why in own.unread.items():
            found.unread[f"file:{printable(str(file))}"] = why
        for file in own.files:
            name = f"file:{file}"
            wrong = _unread_here(file, encoding) or _unpacked_otherwise(name, ends)
            if not wrong:
                found.files.append(name)
            elif file.stat().st_size or not file.is_file():
                found.unread[printable(name)] = wrong
    except OSError as error:
        raise FilesUnreadable(f"{error.filename} cannot be read: {error.strerror}.") from error
    found.others.extend(f"file:{other}" for other in own.others)


def _unread_here(file: Path, encoding: str) -> str:
    if is_hidden(file.name):
        return HIDDEN
    return undecoded(str(file), encoding) or ("" if file.is_file() else "it is a pipe, a socket or a device")


def _unpacked_otherwise(name: str, ends: Sequence[str]) -> str:
    """Why a file is not read that Hadoop has a codec for. `ends`: of the names of such, in small letters. Pure."""
    if name.endswith(GZIP) or not name.lower().endswith(tuple(ends)):
        return ""
    return packed(name) or f"Hadoop is set to unpack it as one of {', '.join(ends)}: unpack it, or rename it"


def _codecs(session: SparkSession) -> list[str]:
    """How names of files end that Hadoop unpacks: those it knows, and those that were set."""
    jvm: Any = session._jvm  # noqa: SLF001  (no public way)
    configuration = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    kinds = jvm.org.apache.hadoop.io.compress.CompressionCodecFactory.getCodecClasses(configuration)
    make = jvm.org.apache.hadoop.util.ReflectionUtils.newInstance
    return sorted({str(make(kind, configuration).getDefaultExtension()).lower() for kind in kinds})


def _add_elsewhere(session: SparkSession, path: str, found: Found) -> None:
    codecs: list[str] | None = None
    for name, size, named in _standing_for(session, path):
        if not named and not name.endswith(SUFFIXES):
            found.others.append(name)
            continue
        if named and codecs is None:
            codecs = _codecs(session)
        why = HIDDEN if is_hidden(name) else _unpacked_otherwise(name, codecs or ()) if named else ""
        if not why:
            found.files.append(name)
        elif size > 0:
            found.unread[name] = why


def _standing_for(session: SparkSession, path: str) -> Iterator[tuple[str, int, bool]]:
    """Name and size of each file, and whether it was named itself, or matched by a glob, and not found below."""
    place, system = located(session, path)
    if system.exists(place):
        matched = [system.getFileStatus(place)]
    else:
        matched = list(system.globStatus(system.makeQualified(place)) or ())
        if not matched:
            raise _missing(path)
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


def _read_through(session: SparkSession, name: str) -> None:
    """Open a file and read it to its end, if it is compressed, as Spark does; keep nothing."""
    place, system = located(session, name)
    jvm: Any = session._jvm  # noqa: SLF001  (there is no public way to Hadoop's files from Python)
    if system.getScheme() == "file":
        system = jvm.org.apache.hadoop.fs.FileSystem.getLocal(system.getConf()).getRaw()
    stream = system.open(place)
    try:
        if not name.endswith(GZIP):
            stream.read()
            return
        codecs = jvm.org.apache.hadoop.io.compress.CompressionCodecFactory(system.getConf())
        unpacked = codecs.getCodec(place).createInputStream(stream)
        jvm.org.apache.hadoop.io.IOUtils.copyBytes(unpacked, jvm.java.io.OutputStream.nullOutputStream(), _BUFFER)
    finally:
        stream.close()


_WILD = frozenset("[{*?")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def matching(session: SparkSession, pattern: str) -> list[Path]:
    """What a glob stands for, by name; a relative one begins in the directory of this process.

    Raises OSError for a directory that cannot be listed, and what Hadoop raises for a pattern that is none.
    """
    jvm: Any = session._jvm  # noqa: SLF001  (there is no public way to Hadoop's files from Python)
    hadoop = jvm.org.apache.hadoop.fs
    found: set[Path] = set()
    for flat in hadoop.GlobExpander.expand(pattern):  # several, where braces have a slash in them
        here = [Path("/") if flat.startswith("/") else Path.cwd()]
        for part in filter(None, flat.split("/")):
            names = re.compile(hadoop.GlobPattern.compile(part).pattern(), re.DOTALL) if _is_wild(part) else None
            here = [each for directory in here for each in _in(directory, part, names)]
        found.update(here)
    return sorted(found)


def _is_wild(part: str) -> bool:
    return not _WILD.isdisjoint(_ESCAPED.sub("", part))


def _in(directory: Path, part: str, names: re.Pattern[str] | None) -> Iterator[Path]:
    if names is None:
        one = directory / _ESCAPED.sub(r"\1", part)
        if os.path.lexists(one):
            yield one
    elif directory.is_dir():
        yield from (each for each in directory.iterdir() if names.fullmatch(each.name))
