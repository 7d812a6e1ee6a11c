"""Rebuilding the indexes of one segment, where an entry was found that does not fit its batches."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from regency.broker_agent.log.segments.damage import CorruptFile
from regency.broker_agent.log.segments.segment import Segment

logger = logging.getLogger(__name__)

_LITTLE: Final = 64 << 10
"""Bytes of batches that are walked over in a few milliseconds, whatever they are."""


class IndexBuilding:
    """Walks over all batches of a segment, on any thread, while that is used and grows; then it gets the indexes.

    Where a batch is damaged the walk goes on at the next that has a true entry in the index of before. It is worthless
    where batches are cut off meanwhile. `close` gives the descriptor back.
    """

    def __init__(self, segment: Segment, why: str) -> None:
        """Raises OSError."""
        self.segment = segment
        self._why = why
        self._entries = segment.offsets.entries()
        self._copy = segment.unindexed_copy()
        self._end, self._following = 0, int(segment.base_offset)
        self._is_whole = True

    def walk(self) -> None:
        """Go on up to where the segment ended when `may_end` was asked last, or this was made. Raises OSError."""
        self._walk_in_line()
        while self._end < self._copy.size and self._skip_damage():
            self._walk_in_line()

    def _walk_in_line(self) -> None:
        with suppress(CorruptFile):
            for position, header in self._copy.headers(self._end):
                if header.base_offset < self._following or not self._copy.has_room(header.last_offset):
                    return
                self._copy.count(position, header)
                self._end, self._following = position + header.size, header.next_offset

    def _skip_damage(self) -> bool:
        """Whether there is another batch to go on with: what follows it has more weight than what was before."""
        self._is_whole = False
        for last_offset, position in self._entries:
            if position > self._end and (base := self._copy.base_of(last_offset, position)) is not None:
                self._copy.forget_entries(base, position)
                self._end, self._following = position, base
                return True
        return False

    def may_end(self) -> bool:
        """Whether no more is left to walk over than `end` may; the next walk goes up to where the segment ends now."""
        is_out_of_line, self._copy.size = self._end != self._copy.size, self.segment.size
        return is_out_of_line or self.segment.size - self._end <= _LITTLE

    def end(self) -> None:
        """Let the segment have the indexes, with entries of the batches alone that are in their places.

        Raises OSError.
        """
        self.walk()
        path = self.segment.log.path
        if self._is_whole:
            logger.warning("%s: its indexes are built again, they do not fit: %s", path, self._why)
        else:
            logger.warning(
                "%s: its indexes and its batches contradict each other, they are built again of what is sound: %s",
                path,
                self._why,
            )
        self.segment.take_indexes(self._copy, is_whole=self._is_whole)
        self.segment.is_index_checked = True

    def close(self) -> None:
        """Give the descriptor back."""
        self._copy.close()


def build_at_once(segment: Segment, why: str) -> None:
    """Rebuild its indexes before returning: where a log is opened. Raises OSError."""
    building = IndexBuilding(segment, why)
    try:
        building.end()
    finally:
        building.close()
