"""Putting cleaned segments in the place of those they were made from, so that a crash leaves the one or the other.

Data loop only; the worker syncs. Kafka's protocol, and its names: `.cleaned` files become `.swap` files, at which point
the next start would finish the swap; then the segments that are replaced become `.deleted`, and at last the suffix is
dropped. Each of the three is on the disk before the next begins: after a power cut renames may be lost in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from regency.broker_agent.log.cleaning.job import remove_cleaned
from regency.broker_agent.log.segments.segment import Segment
from regency.broker_agent.log.segments.segments import Segments
from regency.broker_agent.ports import Worker
from regency.kafka.logfiles.file_names import CLEANED, INDEX, LOG, SWAP, TIME_INDEX, TXN_INDEX, offset_file
from regency.model.crash_points import crash_point
from regency.model.ids import Offset
from regency.runtime.descriptors import is_shortage
from regency.runtime.disk import Disk

_AT_ONCE = 200
"""Segments that are replaced in one step of the data loop."""


class Replacement(NamedTuple):
    """A cleaned segment, in `.cleaned` files, and the segments in whose place it comes, side by side in the log."""

    base: Offset
    sources: Sequence[Segment]


class SegmentSwap:
    """One swap. `begin` starts it; `done` is called once when it is over, but for one that was interrupted."""

    def __init__(
        self,
        segments: Segments,
        replacements: Sequence[Replacement],
        make: Callable[[Offset, str], Segment],
        disk: Disk,
        worker: Worker,
        done: Callable[[OSError | None], None],
    ) -> None:
        """`make` makes a segment of this base offset and file suffix, unread. `done` gets what the disk refused."""
        self._segments = segments
        self._waiting = list(replacements)
        """In `.swap` files once it has begun, and not in the log yet."""
        self._replaced: list[Segment] = []
        """In the log, in `.swap` files."""
        self.removed: list[Path] = []
        """What was replaced, to be removed later."""
        self._make = make
        self._disk = disk
        self._worker = worker
        self._done = done
        self._is_over = False

    def begin(self) -> None:
        """Give the new segments the names that say they are whole. Raises OSError."""
        crash_point("log.compaction.before_swap_names")
        try:
            self._name_swaps()
        except OSError:
            self.interrupt()
            raise
        self._sync_then(self._replace)

    def _name_swaps(self) -> None:
        for replacement in reversed(self._waiting):  # a start that finds a lower `.cleaned` one removes the others
            for path in self._files(replacement.base):
                cleaned = path.with_name(path.name + CLEANED)
                if self._disk.exists(cleaned):
                    self._disk.rename(cleaned, path.with_name(path.name + SWAP))
                    crash_point("log.compaction.between_swap_names")
        remove_cleaned(self._disk, self._segments.directory)  # with one that is left, it would remove these

    def interrupt(self) -> None:
        """End here, before what is in the log is cut off: what was replaced is, all else is as before.

        Names may not be on the disk then. Raises OSError; where descriptors are short, the swap goes on.
        """
        crash_point("log.compaction.before_interrupt")
        if self._replaced:
            self._disk.sync_path(self._segments.directory)
            if self._name_aborted():
                self._disk.sync_path(self._segments.directory)
        self._is_over = True
        crash_point("log.compaction.before_interrupted_names")
        for replacement in self._waiting:
            for path in reversed(self._files(replacement.base)):
                swap = path.with_name(path.name + SWAP)
                if path.suffix == TXN_INDEX and self._disk.exists(swap):
                    self._disk.rename(swap, path.with_name(path.name + CLEANED))  # for the case that they come back
                else:
                    self._disk.remove(swap, missing_ok=True)
        self._drop_suffixes()

    def give_up(self) -> None:
        """The log is no more in use: do nothing from now on."""
        self._is_over = True

    def _files(self, base: Offset) -> list[Path]:
        """Final paths of a new segment's files, the batches last: without them the others mean nothing."""
        return [offset_file(self._segments.directory, base, suffix) for suffix in (INDEX, TIME_INDEX, TXN_INDEX, LOG)]

    def _sync_then(self, then: Callable[[], None]) -> None:
        def synced(outcome: BaseException | None) -> None:
            if self._is_over:
                return
            try:
                if isinstance(outcome, BaseException):
                    raise outcome
                then()
            except OSError as error:
                if is_shortage(error):
                    self._sync_then(then)  # each step can be taken again
                else:
                    self._end(error)

        directory, disk = self._segments.directory, self._disk
        self._worker.submit(lambda: disk.sync_path(directory), synced)

    def _end(self, error: OSError | None) -> None:
        self._is_over = True
        self._done(error)

    def _replace(self) -> None:
        replaced = 0
        while self._waiting and replaced < _AT_ONCE:
            replacement = self._waiting[0]
            crash_point("log.compaction.before_replacement")
            segment = self._make(replacement.base, SWAP)
            segment.load()
            self._replaced.append(segment)
            self._waiting.pop(0)
            self.removed += self._segments.exchange(replacement.sources, segment)
            for source in replacement.sources:
                aborted = offset_file(self._segments.directory, source.base_offset, TXN_INDEX)
                self._disk.remove(aborted, missing_ok=True)
            replaced += len(replacement.sources)
        self._sync_then(self._replace if self._waiting else self._finish)

    def _finish(self) -> None:
        if self._name_aborted():
            self._sync_then(self._finish)
            return
        self._drop_suffixes()
        self._sync_then(lambda: self._end(None))

    def _name_aborted(self) -> bool:
        """Drop the suffix of `.txnindex` files, and tell whether there was any. The next start would remove one that
        still has it once the batches have not.
        """
        aborted = [offset_file(self._segments.directory, each.base_offset, TXN_INDEX) for each in self._replaced]
        named = [path for path in aborted if self._disk.exists(path.with_name(path.name + SWAP))]
        for path in named:
            self._disk.rename(path.with_name(path.name + SWAP), path)
        return bool(named)

    def _drop_suffixes(self) -> None:
        directory = self._segments.directory
        for segment in self._replaced:
            crash_point("log.compaction.before_last_names")
            for file in reversed(segment.files):  # the batches last
                file.rename(directory / file.path.name.removesuffix(SWAP))
        self._replaced.clear()
