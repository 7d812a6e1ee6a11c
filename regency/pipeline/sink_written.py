"""What earlier attempts of a task have written already, as a multiset of records, and what that says of its rows. Pure.

Rows are told apart by what they are, not by their position: the order of rows after a shuffle changes between attempts.
Equal rows are counted, so that of five equal ones of which two are there three are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from regency.pipeline.sink_identity import DIGEST_BYTES


class Written:
    """Digests of the records that are there: 16 bytes and a counter for each different one."""

    def __init__(self, digests: Iterable[bytes]) -> None:
        joined = b"".join(digests)
        self.records = len(joined) // DIGEST_BYTES
        found = np.frombuffer(joined, dtype=f"S{DIGEST_BYTES}")
        # S compares as if trailing zero bytes were not there, which is sound where all have one length
        self._digests, counts = np.unique(found, return_counts=True)
        self._left = counts.astype(np.int64)
        self._met = np.zeros(len(counts), dtype=bool)
        self.left = self.records
        """Records that no row has matched yet."""

    def missing(self, digests: list[bytes]) -> list[int]:
        """Which rows of these, in order, are not there yet; the others are counted off."""
        if not self.left and not len(self._digests):
            return list(range(len(digests)))
        return list(self._missing(digests))

    def changed(self) -> int:
        """Records that are there and are none of the task's rows, once all rows were asked for."""
        return int(self._left[~self._met].sum())

    def doubled(self) -> int:
        """Records that are there more often than the task has the row, once all rows were asked for."""
        return self.left - self.changed()

    def _missing(self, digests: list[bytes]) -> Iterator[int]:
        asked = np.frombuffer(b"".join(digests), dtype=f"S{DIGEST_BYTES}")
        places = np.searchsorted(self._digests, asked)
        places[places == len(self._digests)] = 0
        found = self._digests[places] == asked
        for row, (place, there) in enumerate(zip(places.tolist(), found.tolist(), strict=True)):
            if not there:
                yield row
                continue
            self._met[place] = True
            if self._left[place]:
                self._left[place] -= 1
                self.left -= 1
            else:
                yield row
