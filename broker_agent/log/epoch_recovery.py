"""Which leader epochs a log has after a crash: where batches were read anyway, they decide, not the file. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from regency.model.ids import LeaderEpoch, Offset
from regency.model.record_batch import BatchHeader

EpochEntry = tuple[LeaderEpoch, Offset]


class ReadRange(NamedTuple):
    """Offsets whose batches were all read, and each batch's epoch where it is not that of the one before."""

    start: Offset
    end: Offset
    entries: tuple[EpochEntry, ...]


class EpochReader:
    """Collects the epochs of batches that are read in order."""

    def __init__(self, start: Offset) -> None:
        self._start = start
        self._entries: list[EpochEntry] = []

    def note(self, header: BatchHeader) -> None:
        """Count in the next batch."""
        if header.leader_epoch >= 0 and (not self._entries or header.leader_epoch != self._entries[-1][0]):
            self._entries.append((LeaderEpoch(header.leader_epoch), Offset(header.base_offset)))

    def range(self, end: Offset) -> ReadRange:
        """What was read, up to `end`."""
        return ReadRange(self._start, end, tuple(self._entries))


def merge_epochs(on_file: Sequence[EpochEntry], read: Sequence[ReadRange]) -> list[EpochEntry]:
    """The entries of leader-epoch-checkpoint, corrected by the batches that were read: strictly rising in both columns.

    The file may be newer than the batches, if these came back with a truncation that was lost, or older.
    """
    kept = [entry for entry in on_file if not any(part.start <= entry[1] < part.end for part in read)]
    merged: list[EpochEntry] = []
    for entry in sorted([*kept, *(entry for part in read for entry in part.entries)], key=lambda entry: entry[1]):
        if not merged or entry[0] > merged[-1][0]:
            merged.append(entry)
    return merged
