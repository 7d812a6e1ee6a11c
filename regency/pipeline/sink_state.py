"""The sink's state beside a query's checkpoint: two small files written in turn, in whatever file system it is in.

A torn write leaves the other file, which is older: its floors are lower, or its batch had not begun. So nothing more is
asked of the file system than that a closed file can be read whole.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

import msgspec
import pyarrow as pa
from pyarrow import fs

from regency.pipeline.errors import PipelineOptionInvalid
from regency.pipeline.sink_errors import SinkStateUnusable
from regency.pipeline.sink_floors import SinkState
from regency.pipeline.sink_options import CHECKPOINT

FOLDER: Final = "sinks/regency"
_VERSION: Final = 1
_SLOTS: Final = 2
_HADOOP_NAMES: Final = {"s3a": "s3", "s3n": "s3"}


class StateStore:
    """State of the query whose checkpoint is at `location`, as Spark spells locations."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._files, self._root = _open(location)

    def load(self) -> SinkState:
        """The newest state that is whole; an empty one where there is none. Raises SinkStateUnusable."""
        found = [state for slot in range(_SLOTS) if (state := self._read(slot)) is not None]
        return max(found, key=lambda state: state.number, default=SinkState())

    def save(self, state: SinkState) -> None:
        """Keep `state`, whose number is higher than that of every one before. Raises SinkStateUnusable."""
        content = msgspec.json.encode(state)
        head = f"regency-sink {_VERSION} {crc32(content):08x}\n".encode()
        path = self._path(state.number % _SLOTS)
        try:
            self._files.create_dir(f"{self._root}/{FOLDER}", recursive=True)
            with self._files.open_output_stream(path) as stream:
                stream.write(head + content)
        except (OSError, pa.ArrowException) as error:
            raise SinkStateUnusable(
                f"{path}: the state of the sink cannot be written: {error}.",
                hint="The driver needs to write beside the query's checkpoint.",
            ) from error

    def _read(self, slot: int) -> SinkState | None:
        path = self._path(slot)
        try:
            with self._files.open_input_stream(path) as stream:
                content = stream.read()
        except FileNotFoundError:
            return None
        except (OSError, pa.ArrowException) as error:
            raise SinkStateUnusable(
                f"{path}: the state of the sink cannot be read: {error}.",
                hint="The driver needs to read beside the query's checkpoint.",
            ) from error
        return _parsed(path, content)

    def _path(self, slot: int) -> str:
        return f"{self._root}/{FOLDER}/state-{slot}.json"


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
            f"{path}: {error}.", hint="It was edited; remove sinks/regency, or the checkpoint."
        ) from error


def _open(location: str) -> tuple[fs.FileSystem, str]:
    """The file system of a location, and the path in it. Raises PipelineOptionInvalid."""
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return fs.LocalFileSystem(), location.rstrip("/")
    if scheme == "file":
        return fs.LocalFileSystem(), "/" + rest.strip("/")
    try:
        files, path = fs.FileSystem.from_uri(f"{_HADOOP_NAMES.get(scheme, scheme)}:{rest}")
    except (OSError, ValueError, pa.ArrowException) as error:
        raise PipelineOptionInvalid(
            CHECKPOINT,
            f"{location[:200]!r} cannot be reached with pyarrow, and effectivelyOnce keeps its state there: {error}",
            hint="Use a location in a file system pyarrow knows: a local or mounted path, s3, gs, abfs or hdfs.",
        ) from error
    return files, path.rstrip("/")
