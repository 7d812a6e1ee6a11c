"""Which leader epoch begins where in a log: what replicas compare to find where they differ (KIP-101, KIP-279).

The file `leader-epoch-checkpoint` is replaced at every change, at once and unsynced; who flushes data syncs it before.
An unreadable or lost file is rebuilt from the batches.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from regency.broker_agent.log.segments.checked_read import NO_END, EpochSpan
from regency.kafka.fetching.values import EpochEndOffset
from regency.kafka.logfiles.checkpoints import format_epochs, replace_file
from regency.model.crash_points import crash_point
from regency.model.ids import LeaderEpoch, Offset
from regency.runtime.disk import Disk

logger = logging.getLogger(__name__)


class LeaderEpochCache:
    """Entries (epoch, start offset), strictly rising in both."""

    def __init__(
        self,
        disk: Disk,
        path: Path,
        entries: Sequence[tuple[LeaderEpoch, Offset]] = (),
        *,
        on_written: Callable[[], None] = lambda: None,
    ) -> None:
        self.path = path
        self.on_written = on_written
        """Called after each write of the file, which is not on the disk yet."""
        self._disk = disk
        self._entries = list(entries)

    @property
    def entries(self) -> tuple[tuple[LeaderEpoch, Offset], ...]:
        """All entries, oldest first."""
        return tuple(self._entries)

    @property
    def latest(self) -> LeaderEpoch | None:
        """The newest epoch, with or without batches."""
        return self._entries[-1][0] if self._entries else None

    def assign(self, epoch: LeaderEpoch, start: Offset) -> None:
        """Note that `epoch` (0 or more) begins at `start`, dropping whatever contradicts it. Known epochs stay."""
        if epoch < 0 or start < 0:
            raise ValueError(f"{self.path}: epoch {epoch} cannot begin at offset {start}")
        entries = self._entries
        if entries and entries[-1][0] == epoch and entries[-1][1] <= start:
            return
        kept = [entry for entry in entries if entry[0] < epoch and entry[1] < start]
        if len(kept) < len(entries) and (entries[-1][0] >= epoch or entries[-1][1] > start):
            logger.warning("%s: epoch %d at %d replaces %s", self.path, epoch, start, entries[len(kept) :])
        self._replace([*kept, (epoch, start)])

    def end_offset_for(self, epoch: LeaderEpoch, log_end: Offset) -> EpochEndOffset:
        """The greatest epoch not above `epoch`, and where it ends in a log that ends at `log_end`; (-1, -1) if unknown.

        An epoch below the first is answered with itself and the start of the first: known history begins there.
        """
        entries = self._entries
        if epoch < 0 or not entries or epoch > entries[-1][0]:
            return EpochEndOffset()
        if epoch == entries[-1][0]:
            return EpochEndOffset(epoch, log_end)
        found = epoch
        for entry_epoch, start in entries:
            if entry_epoch > epoch:
                return EpochEndOffset(found, start)
            found = entry_epoch
        raise AssertionError("the last entry is above the epoch asked for")

    def epoch_at(self, offset: Offset) -> LeaderEpoch | None:
        """The epoch of the batch at `offset`; None below the first entry."""
        for epoch, start in reversed(self._entries):
            if start <= offset:
                return epoch
        return None

    def span_at(self, offset: int) -> EpochSpan:
        """The epoch of the batch at `offset`, and where the next one begins."""
        found: LeaderEpoch | None = None
        for epoch, start in self._entries:
            if start > offset:
                return EpochSpan(found, start)
            found = epoch
        return EpochSpan(found, NO_END)

    def truncate_from_end(self, offset: Offset) -> None:
        """Drop epochs that begin at `offset` or later, here in any case. Nothing for a negative offset."""
        if offset >= 0 and self._entries and self._entries[-1][1] >= offset:
            self._entries = [entry for entry in self._entries if entry[1] < offset]
            self.save()

    def truncate_from_start(self, offset: Offset) -> None:
        """Drop what lies below `offset`; the epoch it falls into begins there now. Nothing for a negative offset."""
        if offset < 0 or not self._entries or self._entries[0][1] >= offset:
            return
        above = [entry for entry in self._entries if entry[1] > offset]
        below = self._entries[len(self._entries) - len(above) - 1]
        self._replace([(below[0], offset), *above])

    def take(self, entries: Sequence[tuple[LeaderEpoch, Offset]]) -> None:
        """Have exactly these entries: those of a log with the same batches."""
        if list(entries) != self._entries:
            self._replace(list(entries))

    def forget(self) -> bool:
        """Drop everything, but for now not from the file: `save` does. Returns whether there was anything."""
        had_any, self._entries = bool(self._entries), []
        return had_any

    def put_back(self, entries: Sequence[tuple[LeaderEpoch, Offset]]) -> None:
        """Have these entries again, but for now not in the file: `save` does."""
        self._entries = list(entries)

    def save(self) -> None:
        """Write the file as it should be."""
        self._replace(self._entries)

    def _replace(self, entries: list[tuple[LeaderEpoch, Offset]]) -> None:
        crash_point("log.epochs.before_write")
        replace_file(self._disk, self.path, format_epochs(entries), sync=False)
        self._entries = entries
        self.on_written()
        crash_point("log.epochs.after_write")
