"""Damage found in one log: told once for each place, and remembered until the place is gone or reads well again."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from regency.kafka.record_batch import CorruptBatch
from regency.model.ids import UNKNOWN_OFFSET, Offset, TopicPartition

logger = logging.getLogger(__name__)

_MOST = 100
"""Places remembered of one log: of more it is enough to know that there are many."""


class Flaw(NamedTuple):
    """A place in a file where no sound batch is, and the first offset that cannot be read because of it, if known."""

    file: Path
    position: int
    why: str
    offset: Offset = UNKNOWN_OFFSET

    def __str__(self) -> str:
        whose = "" if self.offset == UNKNOWN_OFFSET else f" for offset {self.offset}"
        return f"{self.file} holds no sound batch{whose} at byte {self.position}: {self.why}"


class CorruptFile(CorruptBatch):
    """As CorruptBatch, of a file whose bytes had to be walked over."""

    def __init__(self, file: Path, position: int, reason: str) -> None:
        super().__init__(position, f"{reason}, in {file}")
        self.flaw = Flaw(file, position, reason)


class KnownDamage:
    """Flaws by their place. Data loop only."""

    __slots__ = ("_flaws", "_partition")

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._flaws: dict[tuple[Path, int], Flaw] = {}

    def __bool__(self) -> bool:
        return bool(self._flaws)

    def found(self, flaw: Flaw) -> None:
        """A reader met it."""
        place = (flaw.file, flaw.position)
        if place not in self._flaws and len(self._flaws) < _MOST:
            self._flaws[place] = flaw
            logger.error("%s is damaged on this broker; nothing bad is handed out: %s", self._partition, flaw)

    def read_well(self, offset: Offset) -> None:
        """The batch that holds `offset` was read and is sound."""
        for place in [place for place, flaw in self._flaws.items() if flaw.offset == offset]:
            logger.warning("%s reads well again from offset %d on", self._partition, offset)
            del self._flaws[place]

    def keep(self, start: Offset, end: Offset) -> None:
        """The log holds `start` up to `end` now; what was damaged elsewhere is gone."""
        gone = [
            place
            for place, flaw in self._flaws.items()
            if flaw.offset != UNKNOWN_OFFSET and not start <= flaw.offset < end
        ]
        for place in gone:
            del self._flaws[place]

    def describe(self) -> str:
        """The lowest place, and how many more there are; empty where there is none."""
        if not self._flaws:
            return ""
        more = len(self._flaws) - 1
        lowest = min(self._flaws.values(), key=lambda flaw: (flaw.offset, flaw.position))
        return str(lowest) + (f" (and {more} more)" if more else "")
