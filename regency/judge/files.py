"""Which files a history is in, by the names people give, and the lines of such a file on this machine.

A file that is named itself is read whatever its name, unless that says that it is compressed in a way that is not
unpacked here. Of a directory all files below are read whose names say so, at any depth, and whatever the names of the
directories on the way. What belongs to a history and cannot be read is reported, never left out.
"""

from __future__ import annotations

import io
import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from regency.judge.operations import HistoryMalformed, printable
from regency.model.errors import RegencyError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

SUFFIXES = (".jsonl", ".jsonl.gz")
"""Names of the files that are looked for in directories end so."""
CUT_OFF = "it is cut off: its compressed data have no end"
TORN_HINT = "Copy it again from where it is whole, or leave it out."
GZIP = ".gz"
"""Names of the files that are unpacked end so."""
PACKED = (".bz2", ".deflate", ".gz", ".lz4", ".snappy", ".zst")
"""Names end so, in capitals too, that Spark takes for compressed files."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class FilesUnreadable(RegencyError):
    """Files of a history are not there, or cannot be listed, or cannot be read as what their names say."""

    code = "files_unreadable"


class Found(NamedTuple):
    """Files, each once by whatever ways it was found, in the order in which they were named and by name."""

    files: list[Path]
    unread: dict[Path, str]
    """Those that belong to the history and cannot be read, and why."""
    others: list[Path]
    """Found in a directory, and not read because of their names."""


def find_files(paths: Iterable[Path]) -> Found:
    """The files that paths stand for. Two paths are one file where links and `..` lead them to the same place.

    Raises OSError for a directory that cannot be listed.
    """
    files: dict[str, Path] = {}
    unread: dict[str, tuple[Path, str]] = {}
    others: dict[str, Path] = {}
    entered: set[str] = set()
    for path in paths:
        if not path.is_dir():
            why = packed(path.name) or _not_there(path)
            _enter(os.path.realpath(path), path, why, files, unread)
            continue
        for real, file in _below(path, entered):
            if file.name.endswith(SUFFIXES):
                _enter(real, file, _unfit(file), files, unread)
            else:
                others.setdefault(real, file)
    told = dict(unread.values())
    return Found(list(files.values()), told, [other for real, other in others.items() if real not in files])


def packed(name: str) -> str:
    """Why a file of this name is not read; empty where it is. Pure."""
    if name.endswith(GZIP) or not name.lower().endswith(PACKED):
        return ""
    return f"its name says that it is compressed, and only *{GZIP} is unpacked: unpack it, or rename it"


def refuse_unread(unread: Mapping[Path, str] | Mapping[str, str]) -> None:
    """Raises FilesUnreadable for the first of them: it may hold anything."""
    for name, why in unread.items():
        raise FilesUnreadable(f"{printable(str(name))} would not be read: {why}.")


def file_lines(path: Path) -> Iterator[bytes]:
    """Lines of a file, without a byte order mark at its beginning; compressed ones (`*.gz`) are unpacked.

    Raises HistoryMalformed, without the file's name, for one that is cut off or no gzip file; and OSError.
    """
    with unpacked(path) if path.name.endswith(GZIP) else path.open("rb") as lines:
        first = True
        try:
            for line in lines:
                yield line.removeprefix(_BYTE_ORDER_MARK) if first else line
                first = False
        except EOFError as error:
            raise HistoryMalformed(f"{CUT_OFF}.", hint=TORN_HINT) from error
        except zlib.error as error:
            raise HistoryMalformed(f"{no_gzip(str(error))}.", hint=TORN_HINT) from error


def no_gzip(why: str) -> str:
    """What is wrong with a file that is not compressed as its name says; `why` as the unpacker has it."""
    return f"it is no gzip file, or damaged ({why})"


def nothing_read(paths: Sequence[object]) -> HistoryMalformed:
    """The error for a history without a single operation, which is no clean one."""
    holds = "holds" if len(paths) == 1 else "hold"
    return HistoryMalformed(
        f"{', '.join(map(str, paths))} {holds} no operations: there is nothing to judge.",
        hint=f"Of a directory, files {' and '.join('*' + each for each in SUFFIXES)} are read.",
    )


def told_others(others: Sequence[object]) -> str:
    """What to say of the files that were found in directories and not read."""
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    kinds = " or ".join("*" + each for each in SUFFIXES)
    return f"Not read, because of their names (not {kinds}): {printable(str(others[0]))}{more}."


def _enter(real: str, path: Path, why: str, files: dict[str, Path], unread: dict[str, tuple[Path, str]]) -> None:
    if why:
        unread.setdefault(real, (path, why))
    else:
        files.setdefault(real, path)


def _below(directory: Path, entered: set[str]) -> Iterator[tuple[str, Path]]:
    """The files below a directory, and where they are in truth. Directories that were `entered` are passed over."""
    ahead = [directory]
    while ahead:
        here = ahead.pop()
        real = os.path.realpath(here)
        if real in entered:
            continue
        entered.add(real)
        with os.scandir(here) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
        below: list[Path] = []
        for entry in entries:
            is_link = entry.is_symlink()
            if os.path.isdir(entry.path) if is_link else entry.is_dir():  # noqa: PTH112  (of a link to itself, too)
                below.append(here / entry.name)
            else:
                yield os.path.realpath(entry.path) if is_link else f"{real}/{entry.name}", here / entry.name
        ahead += reversed(below)


def _unfit(path: Path) -> str:
    """Why a file in a directory cannot be read; empty where it can."""
    try:
        is_file = stat.S_ISREG(path.stat().st_mode)
    except OSError as error:
        return f"{_link(path)}{error.strerror}"
    return "" if is_file else "it is a pipe, a socket or a device"


def _not_there(path: Path) -> str:
    try:
        path.stat()
    except OSError as error:
        return f"{_link(path)}{error.strerror}"
    return ""


def _link(path: Path) -> str:
    return f"it is a link to {printable(str(path.readlink()))}: " if path.is_symlink() else ""


_CHUNK = 1 << 16
_GZIP = 16 + zlib.MAX_WBITS
_MAGIC = b"\x1f\x8b"


@contextmanager
def unpacked(path: Path) -> Iterator[BinaryIO]:
    """The content of a gzip file; of an empty file nothing. Reading raises EOFError where it is cut off, zlib.error.

    As Java unpacks: members one behind the other, and behind the last of them nothing at all. Python's own module
    passes over zeros behind a member, Java refuses them; so `regency judge` and Spark are of one mind.
    """
    with path.open("rb") as packed, io.BufferedReader(_Members(packed), _CHUNK) as content:
        yield content


class _Members(io.RawIOBase):
    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._rest = b""
        """Read, and not yet unpacked."""
        self._member: zlib._Decompress | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, into: Buffer) -> int:
        view = memoryview(into)
        while True:
            if self._member is None and not self._begin():
                return 0
            data = self._unpack(len(view))
            if data:
                view[: len(data)] = data
                return len(data)

    def _begin(self) -> bool:
        """Whether another member begins."""
        while len(self._rest) < len(_MAGIC):
            more = self._packed.read(_CHUNK)
            if not more:
                break
            self._rest += more
        if not self._rest:
            return False
        if not _MAGIC.startswith(self._rest[: len(_MAGIC)]):
            raise zlib.error(f"no gzip from byte {self._packed.tell() - len(self._rest)} on")
        self._member = zlib.decompressobj(_GZIP)
        return True

    def _unpack(self, most: int) -> bytes:
        assert self._member is not None
        packed = self._rest or self._packed.read(_CHUNK)
        if not packed:
            raise EOFError
        data = self._member.decompress(packed, most)
        self._rest = self._member.unconsumed_tail
        if self._member.eof:
            self._rest, self._member = self._member.unused_data, None
        return data
