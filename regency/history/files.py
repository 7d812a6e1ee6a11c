"""Which files a history is in, by the names people give, and the lines of such a file on this machine.

A file that is named itself is read whatever its name. Of a directory all files below are read whose names say so, at
any depth, and whatever the names of the directories on the way.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from regency.history.operations import HistoryMalformed

SUFFIXES = (".jsonl", ".jsonl.gz")
"""Names of the files that are looked for in directories end so."""
CUT_OFF = "it is cut off: its compressed data have no end"
TORN_HINT = "Copy it again from where it is whole, or leave it out."
_GZIP = ".gz"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Found(NamedTuple):
    """Files, each once, in the order in which they were named and by name."""

    files: list[Path]
    others: list[Path]
    """Found in a directory, and not read because of their names."""


def find_files(paths: Iterable[Path]) -> Found:
    """The files that paths stand for. Raises OSError for a directory that cannot be listed."""
    files: dict[str, Path] = {}
    others: dict[str, Path] = {}
    for path in paths:
        if not path.is_dir():
            files.setdefault(str(path.absolute()), path)
            continue
        for file in _below(path):
            (files if file.name.endswith(SUFFIXES) else others).setdefault(str(file.absolute()), file)
    return Found(list(files.values()), [other for name, other in others.items() if name not in files])


def file_lines(path: Path) -> Iterator[bytes]:
    """Lines of a file, without a byte order mark at its beginning; compressed ones (`*.gz`) are unpacked.

    Raises HistoryMalformed, without the file's name, for one that is cut off or no gzip file; and OSError.
    """
    with gzip.open(path) if path.name.endswith(_GZIP) else path.open("rb") as lines:
        first = True
        try:
            for line in lines:
                yield line.removeprefix(_BYTE_ORDER_MARK) if first else line
                first = False
        except EOFError as error:
            raise HistoryMalformed(f"{CUT_OFF}.", hint=TORN_HINT) from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise HistoryMalformed(f"{no_gzip(str(error))}.", hint=TORN_HINT) from error


def no_gzip(why: str) -> str:
    """What is wrong with a file that is not compressed as its name says; `why` as whoever unpacks it has it."""
    return f"it is no gzip file, or damaged ({why})"


def nothing_read(paths: Sequence[object]) -> HistoryMalformed:
    """The error for a history without a single operation: nobody may take it for a clean one."""
    holds = "holds" if len(paths) == 1 else "hold"
    return HistoryMalformed(
        f"{', '.join(map(str, paths))} {holds} no operations: there is nothing to judge.",
        hint=f"Of a directory, files {' and '.join('*' + each for each in SUFFIXES)} are read.",
    )


def told_others(others: Sequence[object]) -> str:
    """What to say of the files that were found in directories and not read."""
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return f"Not read, because of their names (not {' or '.join('*' + each for each in SUFFIXES)}): {others[0]}{more}."


def _below(directory: Path) -> Iterator[Path]:
    def give_up(error: OSError) -> None:
        raise error

    for here, directories, names in os.walk(directory, onerror=give_up, followlinks=True):
        directories.sort()
        for name in sorted(names):
            yield Path(here, name)
