"""What a log remembers of idempotent producers: their epoch and last five batches (KIP-98, KIP-360).

The state is a function of the batches; snapshots (`.snapshot`, Kafka's version 1) only spare reading them all again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from heapq import nlargest
from pathlib import Path
from typing import NamedTuple

from regency.broker_agent.log.errors import RecordsRejected
from regency.broker_agent.log.segments.segments import Segments
from regency.kafka.logfiles.checkpoints import CheckpointMalformed, replace_file
from regency.kafka.logfiles.file_names import SNAPSHOT, offset_file, parse_offset_file
from regency.kafka.logfiles.producer_snapshot import encode_snapshot, snapshot_entries
from regency.kafka.record_batch import MAX_SEQUENCE, BatchHeader
from regency.model.crash_points import crash_point
from regency.model.ids import Offset
from regency.model.kafka_errors import ErrorCode
from regency.runtime.disk import Disk

logger = logging.getLogger(__name__)

REMEMBERED_BATCHES = 5
"""How far back a retry is recognized as a duplicate."""


class ProducedBatch(NamedTuple):
    """A batch of a producer in this log."""

    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> Offset:
        """Offset of its first record."""
        return Offset(self.last_offset - self.offset_delta)

    @property
    def first_sequence(self) -> int:
        """Sequence number of its first record."""
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE


class Producer:
    """One producer id: its epoch, and its last batches under that epoch, oldest first."""

    __slots__ = ("batches", "epoch", "last_timestamp")

    def __init__(self, epoch: int, last_timestamp: int) -> None:
        self.epoch = epoch
        self.last_timestamp = last_timestamp
        self.batches: deque[ProducedBatch] = deque(maxlen=REMEMBERED_BATCHES)

    def find(self, header: BatchHeader) -> ProducedBatch | None:
        """The batch that `header` repeats."""
        if header.producer_epoch != self.epoch:
            return None
        for batch in self.batches:
            if batch.first_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
                return batch
        return None


class ProducerStates:
    """Every producer of one log, up to and not including `end_offset`."""

    def __init__(self) -> None:
        self.end_offset = Offset(0)
        self.forgot = False
        """Whether a producer has expired since the states were loaded."""
        self._producers: dict[int, Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader, *, all_known: bool = False) -> ProducedBatch | None:
        """What a leader asks before it appends a batch of a client: None to go on, or the batch that this one repeats.

        An unknown producer may begin anywhere, as what it wrote before may be forgotten (KIP-360); but at 0 where
        `all_known` says that no earlier producer here is: its first batches went to an earlier leader and are lost,
        and a client takes the success of a later batch for theirs.

        Raises RecordsRejected: INVALID_PRODUCER_EPOCH for an older epoch, OUT_OF_ORDER_SEQUENCE_NUMBER for a gap, a
        partial repetition, one too old to be remembered, or a new producer or epoch that does not begin at 0.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            if all_known and header.base_sequence != 0:
                raise _out_of_order(header, 0)
            return None
        if header.producer_epoch < producer.epoch:
            raise RecordsRejected(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} is in epoch {producer.epoch}; this batch is of {header.producer_epoch}",
            )
        if duplicate := producer.find(header):
            return duplicate
        expected = 0
        if header.producer_epoch == producer.epoch and producer.batches:
            expected = (producer.batches[-1].last_sequence + 1) & MAX_SEQUENCE
        if header.base_sequence != expected:
            raise _out_of_order(header, expected)
        return None

    def update(self, header: BatchHeader) -> None:
        """Count in a batch of the log, whatever its sequence numbers: followers and recovery trust the leader."""
        self.end_offset = header.next_offset
        if header.producer_id < 0:
            return
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = Producer(header.producer_epoch, header.max_timestamp)
        elif header.producer_epoch > producer.epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.last_timestamp = header.max_timestamp
        if not header.is_control and header.base_sequence >= 0:
            producer.batches.append(
                ProducedBatch(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
            )

    def latest(self) -> list[tuple[int, int, int, int]]:
        """Id, epoch, last sequence number (-1: none) and last timestamp of each."""
        return [
            (number, each.epoch, each.batches[-1].last_sequence if each.batches else -1, each.last_timestamp)
            for number, each in self._producers.items()
        ]

    def truncate_to(self, end_offset: Offset) -> bool:
        """Forget batches that reach `end_offset`; False, and nothing done, where those before are not known."""
        for producer in self._producers.values():
            if not producer.batches or producer.batches[0].last_offset >= end_offset:
                return False
        for producer in self._producers.values():
            while producer.batches[-1].last_offset >= end_offset:
                producer.batches.pop()
            producer.last_timestamp = producer.batches[-1].timestamp
        self.end_offset = end_offset
        return True

    def expire(self, until_ms: int) -> None:
        """Forget producers whose last batch has a timestamp of this wall time or an earlier one."""
        expired = [id_ for id_, producer in self._producers.items() if producer.last_timestamp <= until_ms]
        for producer_id in expired:
            del self._producers[producer_id]
        self.forgot = self.forgot or bool(expired)

    def below(self, offset: Offset, most: int) -> tuple[ProducerStates, int]:
        """The states with nothing but batches that end below `offset`, the newest `most` of them; and how many are
        left out.
        """
        found = [
            (batch.last_offset, producer_id, batch)
            for producer_id, producer in self._producers.items()
            for batch in producer.batches
            if batch.last_offset < offset
        ]
        states = ProducerStates()
        states.end_offset = offset
        for _, producer_id, batch in sorted(nlargest(most, found)):
            same = states._producers.get(producer_id)
            if same is None:
                same = states._producers[producer_id] = Producer(self._producers[producer_id].epoch, batch.timestamp)
            same.last_timestamp = batch.timestamp
            same.batches.append(batch)
        return states, max(0, len(found) - most)

    def last_batches(self) -> dict[int, tuple[Offset, int]]:
        """Of every producer the last offset of its data, -1 where none is known, and its epoch."""
        return {
            producer_id: (producer.batches[-1].last_offset if producer.batches else Offset(-1), producer.epoch)
            for producer_id, producer in self._producers.items()
        }

    def copy(self) -> ProducerStates:
        """The same states, which change on their own from now on."""
        copied = ProducerStates()
        copied.end_offset, copied.forgot = self.end_offset, self.forgot
        for producer_id, producer in self._producers.items():
            same = copied._producers[producer_id] = Producer(producer.epoch, producer.last_timestamp)
            same.batches.extend(producer.batches)
        return copied

    def encode(self) -> bytes:
        """Content of a snapshot: an entry for each remembered batch of each producer, oldest first.

        Kafka writes only the last batch, so that a retry that arrives after a restart may be refused; of several
        entries for one producer it takes the last.
        """
        return encode_snapshot(
            (producer_id, producer.epoch, *batch)
            for producer_id, producer in self._producers.items()
            for batch in producer.batches or (_no_batch(producer.last_timestamp),)
        )

    def load_snapshot(self, disk: Disk, path: Path, end_offset: Offset) -> None:
        """Replace everything by the snapshot at `path`, taken at `end_offset`. Raises CheckpointMalformed."""
        self.load(path, disk.read_file(path), end_offset)

    def load(self, path: Path, content: bytes, end_offset: Offset) -> None:
        """The same from the content of a snapshot; `path` is for the error."""
        self._producers = decode_snapshot(path, content)
        self.end_offset = end_offset


def _out_of_order(header: BatchHeader, expected: int) -> RecordsRejected:
    return RecordsRejected(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} in epoch {header.producer_epoch} sent sequence number "
        f"{header.base_sequence}; {expected} is next",
    )


def _no_batch(timestamp: int) -> ProducedBatch:
    return ProducedBatch(-1, Offset(-1), 0, timestamp)


def decode_snapshot(path: Path, content: bytes) -> dict[int, Producer]:
    """Producers of a snapshot's content. Raises CheckpointMalformed naming `path`."""
    producers: dict[int, Producer] = {}
    for entry in snapshot_entries(path, content):
        producer = producers.get(entry.producer_id)
        if producer is None or producer.epoch != entry.epoch:
            producer = producers[entry.producer_id] = Producer(entry.epoch, entry.timestamp)
        producer.last_timestamp = entry.timestamp
        if entry.last_sequence >= 0:
            producer.batches.append(
                ProducedBatch(entry.last_sequence, Offset(entry.last_offset), entry.offset_delta, entry.timestamp)
            )
    return producers


def snapshot_offsets(disk: Disk, directory: Path) -> list[Offset]:
    """Offsets at which snapshots were taken, rising."""
    parsed = (parse_offset_file(name) for name in disk.names_in(directory) if name.endswith(SNAPSHOT))
    return sorted(found[0] for found in parsed if found)


def write_snapshot(disk: Disk, directory: Path, producers: ProducerStates) -> None:
    """Take a snapshot at the states' end offset. One that says the same is left as it is, and on the disk if it was."""
    path = offset_file(directory, producers.end_offset, SNAPSHOT)
    content = producers.encode()
    is_there = disk.exists(path)
    if is_there and disk.read_file(path) == content:
        return
    crash_point("log.snapshot.before_write")
    # what is there may be on the disk: after a power cut, half of the new one must not stand in its place
    replace_file(disk, path, content, sync=is_there)
    crash_point("log.snapshot.after_write")


def remove_snapshots(disk: Disk, directory: Path, offsets: Iterable[Offset]) -> None:
    """Remove the snapshots taken at these offsets, which takes no descriptor."""
    for offset in offsets:
        disk.remove(offset_file(directory, offset, SNAPSHOT), missing_ok=True)


def restore(disk: Disk, directory: Path, segments: Segments, *, trusted: Offset, log_end: Offset) -> ProducerStates:
    """States at `log_end`, behind which there may be more: the newest sound snapshot not above `trusted`, and the
    batches after it.

    Snapshots above `trusted` are removed, damaged ones too; one is written at each segment the batches are read from.
    """
    producers = _newest(disk, directory, trusted)
    start = producers.end_offset
    for segment in segments.from_offset(start) if start < log_end else ():
        if segment.base_offset >= log_end:
            break
        if segment.base_offset > start:
            producers.end_offset = segment.base_offset
            write_snapshot(disk, directory, producers)
        for _, header in segment.headers(segment.indexed_below(start)):
            if start <= header.base_offset < log_end:
                producers.update(header)
    producers.end_offset = log_end
    return producers


def _newest(disk: Disk, directory: Path, trusted: Offset) -> ProducerStates:
    producers = ProducerStates()
    for offset in reversed(snapshot_offsets(disk, directory)):
        path = offset_file(directory, offset, SNAPSHOT)
        if offset > trusted:
            disk.remove(path)
            continue
        try:
            producers.load_snapshot(disk, path, offset)
        except CheckpointMalformed as error:
            logger.warning("removed a damaged snapshot of producers: %s", error)
            disk.remove(path)
        else:
            break
    return producers
