"""Reading a partition of `__consumer_offsets` into its shard, in steps, from the log start to the log end.

To the log end and not the high watermark: commits that were confirmed may lie above the high watermark that a new
leader knows of. And it is loaded only when the high watermark is there (Kafka does not wait): what lies above it may
never have been confirmed, and the next leader may not have it. Source: GroupMetadataManager.loadGroupsAndOffsets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import ClassVar, Final, Protocol

from regency.broker_agent.replication.offsets import LedRead
from regency.broker_agent.steps import Steps
from regency.kafka.groups.records import GroupRecordMalformed
from regency.kafka.record_batch import BatchHeader, Buffer, CorruptBatch, iter_batches
from regency.kafka.records import CodecMissing, iter_records
from regency.model.errors import RegencyError
from regency.model.ids import Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

logger = logging.getLogger(__name__)

READ_BYTES: Final = 64 << 10
"""Read at once at most: with what is made of it some milliseconds."""
RECORDS_PER_STEP: Final = 200
MOST_TOLD: Final = 10
"""Records that cannot be used which are logged one by one."""

_COMMIT: Final = b"\0\1"
_MARKER_TYPE: Final = slice(2, 4)
"""In the key of a control record, after its version."""


class LoadFailed(RegencyError):
    """The partition cannot be read now. It is tried again; groups in it wait until it can be."""

    code: ClassVar[str] = "group_load_failed"
    retriable: ClassVar[bool] = True


class Loads(Protocol):
    """What takes in the records: a shard."""

    def load(self, key: bytes, value: bytes | None, /) -> None:
        """One record, in the order of the log. Raises GroupRecordMalformed."""
        ...


class Load:
    """One attempt to load a partition. `records` counts what was read, `end` is where that ends."""

    def __init__(
        self, partition: TopicPartition, read: Callable[[Offset, int], LedRead | ErrorCode], shard: Loads, most: int
    ) -> None:
        """`read` gives whole batches from an offset on, about so many bytes; `most` is offsets.load.buffer.size."""
        self._partition = partition
        self._read = read
        self._shard = shard
        self._most = min(most, READ_BYTES)
        self._undecided: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}
        """Records of transactions without a marker yet, with their batch's offset, by producer: later ones win."""
        self.end = Offset(0)
        self.records = 0
        self.unusable = 0
        """Records that could not be taken in."""

    def run(self) -> Steps[None]:
        """Load everything. Raises LoadFailed."""
        offset = Offset(0)
        while True:
            read = self._read(offset, self._most)
            if isinstance(read, ErrorCode):
                raise LoadFailed(f"{self._partition} cannot be read from {offset} on: {read.name}")
            self.end = read.log_end
            try:
                following = yield from self._take(read.records, max(offset, read.log_start))
            except (CorruptBatch, CodecMissing) as error:
                raise LoadFailed(f"{self._partition} from {offset} on: {error.message}", hint=error.hint) from error
            if following <= offset:  # no batch lies between here and the end, as after a compaction (KAFKA-9065)
                return
            offset = following
            if offset >= read.log_end:
                return
            yield

    def _take(self, data: Buffer, offset: Offset) -> Steps[Offset]:
        """What follows the batches in `data`, or -1 where there are none."""
        following = Offset(-1)
        for at, header in iter_batches(data):
            following = header.next_offset
            if header.is_control:
                self._mark(data, header, at)
            elif following > offset:
                yield from self._take_batch(data, header, at)
        return following

    def _take_batch(self, data: Buffer, header: BatchHeader, at: int) -> Steps[None]:
        undecided = self._undecided.setdefault(header.producer_id, {}) if header.is_transactional else None
        for key, value in iter_records(data, header, at):
            self.records += 1
            if key is None:
                self._tell(header.base_offset, "it has no key")
            elif undecided is not None:
                undecided[key] = header.base_offset, value
            else:
                self._load(key, value, header.base_offset)
            if self.records % RECORDS_PER_STEP == 0:
                yield

    def _mark(self, data: Buffer, header: BatchHeader, at: int) -> None:
        """The end of a transaction; a marker of which compaction left nothing has done its work long ago."""
        undecided = self._undecided.pop(header.producer_id, {})
        for key, _ in iter_records(data, header, at):
            if key is not None and key[_MARKER_TYPE] == _COMMIT:
                for decided, (offset, value) in undecided.items():
                    self._load(decided, value, offset)

    def _load(self, key: bytes, value: bytes | None, batch: int) -> None:
        for others in self._undecided.values():
            if key in others and others[key][0] < batch:
                del others[key]
        try:
            self._shard.load(key, value)
        except GroupRecordMalformed as error:
            self._tell(batch, error.message)

    def _tell(self, batch: int, why: str) -> None:
        self.unusable += 1
        if self.unusable <= MOST_TOLD:
            logger.error("%s: a record of the batch at %d is left out: %s", self._partition, batch, why)


def steps_left(steps: Iterator[object]) -> bool:
    """Take one step; whether there may be more."""
    return next(steps, _END) is not _END


_END: Final = object()
