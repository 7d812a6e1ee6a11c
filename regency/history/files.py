"""Decision records in bounded, rotated files of JSON lines: appended from any thread, and read back.

A full disk never raises; torn and foreign lines and missing folders are skipped.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from regency.history.records import Decision, decode_decision, encode_decisions, merge_decisions

logger = logging.getLogger(__name__)


class HistoryFile(msgspec.Struct, frozen=True):
    """Content of one file: its decisions as written, and how many lines were not decisions."""

    decisions: tuple[Decision, ...]
    skipped: int


def read_file(path: Path) -> HistoryFile:
    """Read one file; a file that cannot be read is empty."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return HistoryFile((), 0)
    decisions = [decode_decision(line) for line in lines if line.strip()]
    known = tuple(decision for decision in decisions if decision is not None)
    return HistoryFile(known, len(decisions) - len(known))


def read_history(directories: Iterable[Path]) -> list[Decision]:
    """Every decision in the `*.jsonl` files of the directories, merged into one order (see merge_decisions)."""
    files = [path for directory in directories if directory.is_dir() for path in sorted(directory.glob("*.jsonl"))]
    return merge_decisions(read_file(path).decisions for path in files)


class HistoryWriter:
    """Writes DIRECTORY/NAME.jsonl; at `max_bytes` it becomes NAME.1.jsonl, the oldest of `max_files` is dropped.

    A history is for people: a disk that refuses is logged once per bad spell and counted in `dropped`, nothing more.
    """

    def __init__(self, directory: Path, name: str, *, max_bytes: int = 8 << 20, max_files: int = 8) -> None:
        self._directory = directory
        self._name = name
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._lock = threading.Lock()
        self._failing = False
        self.dropped = 0
        """Decisions that could not be written."""

    def last_number(self) -> int:
        """Largest number in the files, 0 where there is none: where an agent goes on counting after a restart."""
        numbers = (decision.number for path in self._files() for decision in read_file(path).decisions)
        return max(numbers, default=0)

    def write(self, decisions: Sequence[Decision]) -> None:
        """Append the decisions as one block."""
        if not decisions:
            return
        block = encode_decisions(decisions)
        with self._lock:
            try:
                for piece in _pieces(block, self._max_bytes):
                    self._append(piece)
            except OSError as error:
                self.dropped += len(decisions)
                if not self._failing:
                    logger.warning(
                        "decisions are not written to %s: %s. Make room there; they are lost meanwhile.",
                        self._path(0),
                        error,
                    )
                self._failing = True
            else:
                self._failing = False

    def _append(self, block: bytes) -> None:
        path = self._path(0)
        path.parent.mkdir(parents=True, exist_ok=True)
        torn = False
        if path.exists():
            size = path.stat().st_size
            if size + len(block) > self._max_bytes and size > 0:
                self._rotate()
            elif size > 0:
                with path.open("rb") as existing:
                    existing.seek(-1, 2)
                    torn = existing.read(1) != b"\n"
        with path.open("ab") as file:
            file.write(b"\n" + block if torn else block)

    def _rotate(self) -> None:
        self._path(self._max_files - 1).unlink(missing_ok=True)
        for number in range(self._max_files - 2, -1, -1):
            if self._path(number).exists():
                self._path(number).replace(self._path(number + 1))

    def _path(self, number: int) -> Path:
        return self._directory / (f"{self._name}.{number}.jsonl" if number else f"{self._name}.jsonl")

    def _files(self) -> list[Path]:
        return [path for path in map(self._path, range(self._max_files)) if path.exists()]


def _pieces(block: bytes, most: int) -> Iterator[bytes]:
    """The block in pieces of whole lines, so that a file exceeds `most` bytes by less than a line."""
    begin = 0
    while len(block) - begin > most:
        end = block.find(b"\n", begin + most - 1) + 1 or len(block)
        yield block[begin:end]
        begin = end
    if begin < len(block):
        yield block[begin:]
