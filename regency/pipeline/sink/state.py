"""The sink's state beside a query's checkpoint: two small files written in turn, in whatever file system it is in.

Their numbers follow each other, so that a file that was torn, damaged or lost is noticed: then the other one counts,
and a state that was newer may be gone, which a load reports. On local and mounted file systems a file is synced
before it takes its name, and its name after that, so that a power cut tears none. Elsewhere nothing more is asked than
that a closed file can be read whole; where neither can, what was written is not known, and that is reported.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote
from zlib import crc32

import msgspec
import pyarrow as pa
from pyarrow import fs

from regency.pipeline.errors import PipelineOptionInvalid, SinkStateUnusable
from regency.pipeline.sink.floors import SinkState
from regency.pipeline.sink.options import CHECKPOINT

FOLDER: Final = "sinks/regency"
_METADATA: Final = "metadata"
"""The file that Spark writes into a checkpoint before anything else: the query's id."""
_VERSION: Final = 1
_SLOTS: Final = 2
_HADOOP_NAMES: Final = {"s3a": "s3", "s3n": "s3"}


class KeptState(NamedTuple):
    """What is in the two files."""

    state: SinkState
    """The newest that is whole; an empty one where there is no file."""
    doubt: str = ""
    """Why a newer one may be lost; empty: none is."""


class StateStore:
    """State of the query whose checkpoint is at `location`, as Spark spells locations."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._files, self._root = _open(location)
        self._paths = [f"{self._root}/{FOLDER}/state-{slot}.json" for slot in range(_SLOTS)]

    def check_place(self) -> None:
        """Raise SinkStateUnusable unless Spark has begun its checkpoint where this looks for it.

        Spark takes a location without scheme for one in its default file system, which no worker of Python knows.
        """
        path = f"{self._root}/{_METADATA}"
        try:
            there = self._files.get_file_info(path).is_file
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(path, error) from error
        if not there:
            raise SinkStateUnusable(
                f"{path} does not exist: Spark keeps the query's checkpoint at another place than {self._location!r}"
                " means here.",
                hint=f"Nothing was written. Give {CHECKPOINT} with its scheme, such as hdfs://host/path or file:/path.",
            )

    def load(self) -> KeptState:
        """The newest state that is whole. Raises SinkStateUnusable, also where there are files and none is whole."""
        contents = {path: content for path in self._paths if (content := self._read(path)) is not None}
        found = {path: state for path, content in contents.items() if (state := _parsed(path, content)) is not None}
        if contents and not found:
            raise SinkStateUnusable(
                f"{', '.join(contents)}: not whole, so that it is not known what earlier attempts have written.",
                hint="Nothing was written. Restore one of these files; or remove sinks/regency from the checkpoint: a"
                " batch that is repeated is written whole then, and readers may see rows twice.",
            )
        torn = [path for path in contents if path not in found]
        if torn:
            return KeptState(_newest(found.values()), f"{torn[0]}: not whole.")
        newest = _newest(found.values())
        if newest.number > 1 and newest.number - 1 not in {state.number for state in found.values()}:
            other = self._paths[(newest.number + 1) % _SLOTS]
            return KeptState(newest, f"{other}: {'older than it was' if other in found else 'lost'}.")
        return KeptState(newest)

    def save(self, state: SinkState) -> None:
        """Keep `state`, whose number is higher than that of every one before. Raises SinkStateUnusable."""
        content = msgspec.json.encode(state)
        head = f"regency-sink {_VERSION} {crc32(content):08x}\n".encode()
        path = self._paths[state.number % _SLOTS]
        try:
            if isinstance(self._files, fs.LocalFileSystem):
                _write_durably(Path(path), head + content)
            else:
                self._files.create_dir(f"{self._root}/{FOLDER}", recursive=True)
                with self._files.open_output_stream(path) as stream:
                    stream.write(head + content)
        except (OSError, pa.ArrowException) as error:
            raise SinkStateUnusable(
                f"{path}: the state of the sink cannot be written: {error}.",
                hint="The driver needs to write beside the query's checkpoint.",
            ) from error

    def _read(self, path: str) -> bytes | None:
        """What is in a file; None where it does not exist."""
        try:
            with self._files.open_input_stream(path) as stream:
                content: bytes = stream.read()
        except FileNotFoundError:
            return None
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(path, error) from error
        return content


def _newest(states: Iterable[SinkState]) -> SinkState:
    return max(states, key=lambda state: state.number, default=SinkState())


def _unreadable(path: str, error: Exception) -> SinkStateUnusable:
    return SinkStateUnusable(
        f"{path}: the state of the sink cannot be read: {error}.",
        hint="The driver needs to read beside the query's checkpoint.",
    )


def _parsed(path: str, content: bytes) -> SinkState | None:
    """The state in a file; None for one that was torn while it was written."""
    head, newline, body = content.partition(b"\n")
    words = head.decode("ascii", "replace").split()
    if not newline or len(words) != 3 or words[0] != "regency-sink" or words[2] != f"{crc32(body):08x}":
        return None
    if words[1] != str(_VERSION):
        raise SinkStateUnusable(
            f"{path}: its version is {words[1][:20]}, this release knows {_VERSION}.",
            hint="Use the release that wrote it.",
        )
    try:
        return msgspec.json.decode(body, type=SinkState)
    except msgspec.DecodeError as error:
        raise SinkStateUnusable(
            f"{path}: {error}.",
            hint="It was edited. Restore it; or remove sinks/regency from the checkpoint: a batch that is repeated is"
            " written whole then, and readers may see rows twice.",
        ) from error


def _write_durably(path: Path, content: bytes) -> None:
    """Write a file that is there whole or as it was, also after a power cut. Its folders are made."""
    folder = path.parent
    made = [each for each in (folder, *folder.parents) if not each.is_dir()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in made:
        _sync_folder(each.parent)
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(path)
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    """Make names in a folder last. Some mounted file systems cannot, and have names of files last with the files."""
    found = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(found)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF):
            raise
    finally:
        os.close(found)


def _open(location: str) -> tuple[fs.FileSystem, str]:
    """The file system of a location, and the path in it. Raises PipelineOptionInvalid."""
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return fs.LocalFileSystem(), os.path.normpath(location)  # as Hadoop, which follows no link before a `..`
    if scheme == "file":
        return fs.LocalFileSystem(), os.path.normpath("/" + rest.strip("/"))
    host, slash, below = rest.removeprefix("//").partition("/")
    # to Hadoop a % stands for itself
    uri = f"{_HADOOP_NAMES.get(scheme, scheme)}:{rest[: len(rest) - len(slash + below) - len(host)]}{host}{slash}"
    try:
        files, path = fs.FileSystem.from_uri(uri + quote(below))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise PipelineOptionInvalid(
            CHECKPOINT,
            f"{location[:200]!r} cannot be reached with pyarrow, and effectivelyOnce keeps its state there: {error}",
            hint="Use a location in a file system pyarrow knows: a local or mounted path, s3, gs, abfs or hdfs.",
        ) from error
    return files, path.rstrip("/")
