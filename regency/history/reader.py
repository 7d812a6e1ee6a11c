"""Reads decision records back, whatever state the files are in: torn and foreign lines, missing folders are skipped."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from regency.history.records import Decision, decode_decision, merge_decisions


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
