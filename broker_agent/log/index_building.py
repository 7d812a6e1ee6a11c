"""Building the indexes of one segment anew, where an entry was found that does not fit its batches."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from regency.broker_agent.log.damage import CorruptFile

if TYPE_CHECKING:
    from regency.broker_agent.log.segment import Segment

logger = logging.getLogger(__name__)

_LITTLE: Final = 64 << 10
"""Bytes of batches that are walked over in a few milliseconds, whatever they are."""


class IndexBuilding:
    """Walks over all batches of a segment, on any thread, while that is used and grows; then it gets the indexes.

    The walk is worthless where batches are cut off meanwhile. `close` gives the descriptor back.
    """

    def __init__(self, segment: Segment, why: str) -> None:
        """Raises OSError."""
        self.segment = segment
        self._why = why
        self._copy = segment.unindexed_copy()
        self._end, self._following = 0, int(segment.base_offset)

    def walk(self) -> None:
        """Go on up to where the segment ended when `may_end` was asked last, or this was made. Raises OSError."""
        try:
            for position, header in self._copy.headers(self._end):
                if header.base_offset < self._following or not self._copy.has_room(header.last_offset):
                    return
                self._copy.count(position, header)
                self._end, self._following = position + header.size, header.next_offset
        except CorruptFile:
            return

    def may_end(self) -> bool:
        """Whether no more is left to walk over than `end` may; the next walk goes up to where the segment ends now."""
        is_out_of_line, self._copy.size = self._end != self._copy.size, self.segment.size
        return is_out_of_line or self.segment.size - self._end <= _LITTLE

    def end(self) -> None:
        """Let the segment have the indexes, if every batch is in its place: else it is a batch that is wrong.

        Raises OSError.
        """
        self.walk()
        path = self.segment.log.path
        if self._end == self._copy.size:
            logger.warning("%s: its indexes are built anew, they do not fit: %s", path, self._why)
            self.segment.take_indexes(self._copy)
        else:
            logger.warning("%s: its indexes and its batches contradict each other: %s", path, self._why)
        self.segment.is_index_checked = True

    def close(self) -> None:
        """Give the descriptor back."""
        self._copy.close()
