"""What is in a log, read behind the back of whoever owns it: no port is asked, so nothing can fail or take time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from regency.broker_agent.log.partition_log import PartitionLog
from regency.model.ids import BrokerId, Offset
from regency.model.record_batch import HEADER_BYTES, Buffer, crc_matches, read_header
from simulation.judging.facts import Digest
from simulation.judging.invariants import broken

Peek = Callable[[BrokerId, Path], Buffer | None]
"""The content of a file as the broker's processes would read it now; None where there is no such file."""


class LogCursor:
    """How far a log has been read."""

    __slots__ = ("_broker", "_log", "_peek", "_position", "_segment", "offset")

    def __init__(self, broker: BrokerId, log: PartitionLog, peek: Peek) -> None:
        self._broker = broker
        self._log = log
        self._peek = peek
        self._segment = -1
        self._position = 0
        self.offset: int = log.log_start_offset

    def go_back_to(self, offset: int) -> None:
        """What follows `offset` may have changed."""
        if offset < self.offset:
            self.offset = offset
            self._segment = -1

    def read_to(self, end: int) -> Iterator[tuple[int, Digest]]:
        """First offset and digest of every batch from here on that ends at or below `end`."""
        log = self._log
        if self.offset < log.log_start_offset:
            self.offset = log.log_start_offset
        data: Buffer | None = None
        while self.offset < end:
            segment = log._segments.floor(Offset(self.offset))
            if segment.base_offset != self._segment:
                self._segment, self._position, data = segment.base_offset, 0, None
            if data is None:
                data = self._peek(self._broker, segment.log.path)
            if data is None or len(data) - self._position < HEADER_BYTES:
                raise broken(
                    "watermark-within-log",
                    f"broker {self._broker}, {log.topic_partition}: no batch at {self.offset}, the log ends at {end}",
                )
            header = read_header(data, self._position)
            following = header.base_offset + header.last_offset_delta + 1
            if following > end:
                return
            position = self._position
            self._position += header.size
            if self._position > len(data) or not crc_matches(data, header, position):
                raise broken(
                    "batches-sound",
                    f"broker {self._broker}, {log.topic_partition}: the batch at {header.base_offset} is damaged",
                )
            if following > self.offset:
                self.offset = following
                yield header.base_offset, Digest(following, header.crc, header.leader_epoch)
