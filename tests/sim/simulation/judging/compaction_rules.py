"""The rules of compacted topics: what is judged by batches elsewhere is judged by records here, offset by offset.

Replicas are cleaned at different times and may hold different batches. What two of them hold at one offset and of one
leader epoch is the same record; of every key the last committed record is everywhere, be it a deletion: no run lasts
until delete.retention.ms is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from regency.broker_agent.log.partition_log import PartitionLog
from regency.model.ids import BrokerId, Offset, TopicId, TopicPartition
from simulation.clients.records import Record, records_of
from simulation.disk_files import File
from simulation.judging.facts import Digest, Facts
from simulation.judging.invariants import broken
from simulation.judging.log_rules import Batch, LogCursor, Peek, batches_in, check_epochs

Key = tuple[TopicId, int]
"""A partition, by the topic's identity."""


class Lost(NamedTuple):
    """A committed record, or a producer's last batch, that is not where it must be."""

    offset: int
    what: str
    record: Record | None


class _Known:
    """What is known of one partition's records."""

    __slots__ = ("committed", "last_of_key", "last_of_producer", "written", "written_by")

    def __init__(self) -> None:
        self.written: dict[tuple[int, int], Record] = {}
        """By offset and leader epoch."""
        self.written_by: dict[int, int] = {}
        """Of each producer: the last offset that it has ever written at."""
        self.committed: dict[int, Record] = {}
        self.last_of_key: dict[bytes, int] = {}
        """The last offset that is committed of each key."""
        self.last_of_producer: dict[int, int] = {}


class CompactionRules:
    """Raises InvariantBroken."""

    def __init__(self, facts: Facts, peek: Peek) -> None:
        self._facts = facts
        self._peek = peek
        self._known: dict[Key, _Known] = {}
        self._read: dict[tuple[int, int, int], tuple[Record, ...]] = {}

    def covers(self, name: TopicPartition) -> bool:
        """Whether the partition is compacted."""
        return name.topic in self._facts.compacted_topics

    def appended(self, broker: BrokerId, key: Key, log: PartitionLog, cursor: LogCursor) -> None:
        """Look at what is in a log behind what was looked at before."""
        check_epochs(broker, log)
        known = self._of(key)
        for file, batch in self._batches(broker, log, max(cursor.offset, log.log_start_offset), log.log_end_offset):
            cursor.offset = batch.digest.next_offset
            epoch, producer = batch.header.leader_epoch, batch.header.producer_id
            last = batch.digest.next_offset - 1
            known.written_by[producer] = max(known.written_by.get(producer, -1), last)
            for record in self._records(file, batch):
                first = known.written.setdefault((record.offset, epoch), record)
                if first != record:
                    raise broken("log-matching", f"{_name(broker, log)}: {record}, where another had {first}")
            if batch.offset >= log.log_start_offset and log.epoch_at(Offset(batch.offset)) != epoch:
                raise broken("epochs-fit", f"{_name(broker, log)}: {batch}, epochs are {log.epoch_entries}")
        cursor.offset = log.log_end_offset

    def committed(
        self, broker: BrokerId, key: Key, log: PartitionLog, cursor: LogCursor, end: int
    ) -> Iterator[tuple[int, Digest]]:
        """The high watermark has passed these batches."""
        known = self._of(key)
        for file, batch in self._batches(broker, log, max(cursor.offset, log.log_start_offset), end):
            producer = batch.header.producer_id
            if producer >= 0:
                last = max(known.last_of_producer.get(producer, -1), batch.digest.next_offset - 1)
                known.last_of_producer[producer] = last
            for record in self._records(file, batch):
                first = known.committed.setdefault(record.offset, record)
                if first != record:
                    if not self._facts.excused(log.topic_partition):
                        raise broken("logs-agree", f"{_name(broker, log)}: {record}, where others have {first}")
                    known.committed[record.offset] = record
                assert record.key is not None
                known.last_of_key[record.key] = max(known.last_of_key.get(record.key, -1), record.offset)
            yield batch.offset, batch.digest
        cursor.offset = max(cursor.offset, end)

    def lost(self, broker: BrokerId, key: Key, log: PartitionLog, below: int | None = None) -> Lost | None:
        """The first that is not there of what must be: all that is committed, or what of it is `below`."""
        known, start, end = self._of(key), log.log_start_offset, log.log_end_offset
        held: dict[int, Record] = {}
        batch_ends: set[int] = set()
        for file, batch in self._batches(broker, log, start, end):
            batch_ends.add(batch.digest.next_offset - 1)
            held.update((record.offset, record) for record in self._records(file, batch))
        for offset in sorted(known.last_of_key.values()):
            record = known.committed[offset]
            if offset >= start and (below is None or offset < below) and held.get(offset) != record:
                return Lost(offset, f"the last of its key, {record}; there is {held.get(offset)}", record)
        for producer, offset in sorted(known.last_of_producer.items()):
            is_last = known.written_by.get(producer) == offset
            if is_last and offset >= start and (below is None or offset < below) and offset not in batch_ends:
                return Lost(offset, f"the last batch of producer {producer}, which ends at {offset}", None)
        return None

    def has(self, broker: BrokerId, log: PartitionLog, lost: Lost) -> bool:
        """Whether a log has what is lost elsewhere."""
        for file, batch in self._batches(broker, log, lost.offset, log.log_end_offset):
            if lost.record is None:
                return batch.digest.next_offset - 1 == lost.offset
            return lost.record in self._records(file, batch)
        return False

    def changed(self, broker: BrokerId, log: PartitionLog) -> None:
        """A log has grown, or was cut off: it is not clean above its end."""
        if log.cleaned_to is not None and log.cleaned_to > log.log_end_offset:
            raise broken(
                "cleaned-when-committed",
                f"{_name(broker, log)}: clean up to {log.cleaned_to}, it ends at {log.log_end_offset}",
            )

    def check(self, broker: BrokerId, key: Key, log: PartitionLog) -> None:
        """A log was cleaned, or is opened: what is below its own high watermark is there."""
        if self._facts.excused(log.topic_partition):
            return
        lost = self.lost(broker, key, log, log.high_watermark)
        if lost is not None:
            raise broken("last-values-kept", f"{_name(broker, log)}, clean up to {log.cleaned_to}, lacks {lost.what}")

    def cleaned(self, broker: BrokerId, key: Key, log: PartitionLog, before: int) -> None:
        """A cleaning has been taken in: nothing of it was above what is committed."""
        cleaned_to = log.cleaned_to or 0
        if cleaned_to > before and cleaned_to > log.high_watermark:
            raise broken(
                "cleaned-when-committed",
                f"{_name(broker, log)}: clean up to {cleaned_to}, committed is {log.high_watermark}",
            )
        self.check(broker, key, log)

    def differing(self, name: TopicPartition, logs: dict[BrokerId, PartitionLog]) -> str | None:
        """Where all is well: what two replicas have that is not the same, in words.

        Where the last record of a key was cut off by right, one before it may have gone on some and not on others.
        """
        held = {broker: dict(self._all(broker, log)) for broker, log in logs.items()}
        start = max((log.log_start_offset for log in logs.values()), default=0)
        for (one, ours), (other, theirs) in pairwise(held.items()):
            wrong = [at for at in ours.keys() & theirs.keys() if ours[at] != theirs[at]]
            is_excused = self._facts.excused(name)
            lasts = [{} if is_excused else _last_of_keys(records, start) for records in (ours, theirs)]
            wrong += [at for key, at in lasts[0].items() if lasts[1].get(key) != at]
            wrong += [at for key, at in lasts[1].items() if lasts[0].get(key) != at]
            if wrong:
                at = min(wrong)
                return f"{name}: the log of {one} has {ours.get(at)} at {at}, that of {other} {theirs.get(at)}"
        return None

    def _all(self, broker: BrokerId, log: PartitionLog) -> Iterator[tuple[int, Record]]:
        for file, batch in self._batches(broker, log, log.log_start_offset, log.log_end_offset):
            for record in self._records(file, batch):
                yield record.offset, record

    def _of(self, key: Key) -> _Known:
        return self._known.setdefault(key, _Known())

    def _batches(self, broker: BrokerId, log: PartitionLog, offset: int, end: int) -> Iterator[tuple[File, Batch]]:
        """Those that end above `offset` and at or below `end`."""
        segments = list(log._segments)
        for number, segment in enumerate(segments):
            if number + 1 < len(segments) and segments[number + 1].base_offset <= offset:
                continue
            file = self._peek(broker, segment.log.path)
            for batch in () if file is None else batches_in(file):
                if batch.digest.next_offset > end:
                    return
                if not batch.is_sound:
                    raise broken("batches-sound", f"{_name(broker, log)}: the batch at {batch.offset} is damaged")
                if file is not None and batch.digest.next_offset > offset:
                    yield file, batch

    def _records(self, file: File, batch: Batch) -> tuple[Record, ...]:
        what = batch.offset, batch.header.crc, batch.header.leader_epoch
        found = self._read.get(what)
        if found is None:
            data = bytes(file.content[batch.end - batch.header.size : batch.end])
            found = self._read[what] = tuple(records_of(data))
        return found


def _last_of_keys(records: dict[int, Record], start: int) -> dict[bytes | None, int]:
    return {record.key: offset for offset, record in sorted(records.items()) if offset >= start}


def _name(broker: BrokerId, log: PartitionLog) -> str:
    return f"broker {broker}, {log.topic_partition}"
