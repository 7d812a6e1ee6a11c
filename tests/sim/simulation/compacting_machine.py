"""A broker's machine whose log is compacted, by the production cleaner, and a ledger of what may be gone from it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import msgspec
from crc32c import crc32c

from regency.broker_agent.log.cleaning.cleaner import clean
from regency.broker_agent.log.cleaning.job import Cleaned, CleaningJob
from regency.broker_agent.log.directories.log_cleaning import LogCleaning
from regency.broker_agent.log.errors import Uncleanable
from regency.model.ids import Offset
from regency.model.settings import BrokerSettings
from simulation.log_machine import CONFIG, TIMESTAMP, Batch, Content, Machine, known_producers, read_all

KEYS = 5
_HEADER_BYTES = 61


def keyed_batch(records: int, base: int, epoch: int, producer: int, sequence: int, body: int) -> Batch:
    """Records under few keys; each value stands nowhere else, and some are deletions."""
    content = b""
    for number in range(records):
        key = b"%d" % ((body + number * 3) % KEYS)
        value = None if (body + number) % 6 == 5 else b"%d:%d" % (sequence, number)
        valued = b"\x01" if value is None else bytes([2 * len(value)]) + value
        record = bytes([0, 0, 2 * number, 2 * len(key)]) + key + valued + b"\0"
        content += bytes([2 * len(record)]) + record
    tail = struct.pack(">hiqqqhii", 0, records - 1, TIMESTAMP, TIMESTAMP, producer, 0, sequence, records) + content
    data = struct.pack(">qiibI", base, len(tail) + 9, epoch, 2, crc32c(tail)) + tail
    return Batch(base, base + records, epoch, producer, sequence, data)


def records_of(batch: Batch) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Offset, key and value of each record; those of a rewritten batch have a timestamp delta of several bytes."""
    data, at = batch.data, _HEADER_BYTES
    while at < len(data):
        size, at = _varint(data, at)
        end = at + size
        _, at = _varint(data, at + 1)
        delta, at = _varint(data, at)
        size, at = _varint(data, at)
        key, at = data[at : at + size], at + size
        size, at = _varint(data, at)
        yield batch.base + delta, key, None if size < 0 else data[at : at + size]
        at = end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        octet = data[at]
        at += 1
        value |= (octet & 127) << shift
        shift += 7
        if octet < 128:
            return (value >> 1) ^ -(value & 1), at


class CompactingMachine(Machine):
    """A record may be gone once a later one of its key was there when a cleaning began, or once it is a deletion then;
    a batch, once it was not its producer's last. Nothing else is, whatever is cut off later.
    """

    config = msgspec.structs.replace(
        CONFIG, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, delete_retention_ms=0
    )

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.records_gone: set[tuple[int, int, int]] = set()
        """Base offset, sequence number of the batch, and offset: offsets alone are written again after a cut."""
        self.batches_gone: set[tuple[int, int]] = set()
        self.cleanings = 0
        self.looked_at: set[tuple[int, int]] = set()
        """Base offset and sequence number of batches that a cleaning looked at: no others are taken for clean."""

    def start(self) -> None:
        super().start()
        self.manager.continuity.note_registered()
        self.disk = self.device.mount(self.process)
        self.cleaning = LogCleaning(self.manager, self, self.process.clock, BrokerSettings())
        self.log.set_high_watermark(Offset(self.log.log_end_offset))

    def make_batch(self, records: int, base: int, producer: int, body: int) -> Batch:
        return keyed_batch(records, base, self.epoch, producer, next(self.sequences), body)

    def compact(self) -> None:
        """Look for something to compact: the worker pool does it, and what it has done is taken in, by and by."""
        self.log.set_high_watermark(Offset(self.log.log_end_offset))
        list(self.cleaning.look(0))

    def clean(self, job: CleaningJob, done: Callable[[Cleaned | BaseException], None]) -> None:
        """As the cleaner's process does, at some time in the worker's queue."""
        self._note_what_may_go(job.end)

        def run() -> Cleaned | Uncleanable:
            steps = clean(job, self.disk)
            try:
                while True:
                    next(steps)
            except StopIteration as end:
                cleaned: Cleaned = end.value
                return cleaned
            except Uncleanable as error:
                return error  # of a log that was cut off meanwhile

        def cleaned(outcome: Cleaned | BaseException) -> None:
            self.cleanings += isinstance(outcome, Cleaned)
            done(outcome)

        self.worker.submit(run, cleaned)

    def _note_what_may_go(self, end: int) -> None:
        below = [batch for batch in self.content.batches if batch.base < end]
        self.looked_at |= {(batch.base, batch.sequence) for batch in below}
        records = [(batch, *record) for batch in below for record in records_of(batch)]
        last_of_key = {key: offset for _, offset, key, _ in records}
        self.records_gone |= {
            (batch.base, batch.sequence, offset)
            for batch, offset, key, value in records
            if offset < last_of_key[key] or value is None
        }
        last_of_producer = {batch.producer: batch for batch in self.content.batches if batch.producer >= 0}
        self.batches_gone |= {
            (batch.base, batch.sequence) for batch in below if last_of_producer.get(batch.producer) is not batch
        }

    def check(self, *, lossy: bool, exact: bool, alive: bool = False) -> None:
        found = Content(self.log.log_start_offset, self.log.log_end_offset, tuple(read_all(self.log)))
        assert self.failures == []
        expected = self.possible[-1:] if exact else self.possible
        least = self.content.end if exact else self.lasting
        whole = next((each for each in reversed(expected) if self._is_compacted(found, each, least)), None)
        assert whole is not None, (found, expected, least)
        for batch in found.batches:
            assert self.log.epoch_at(Offset(max(batch.base, found.start))) == batch.epoch, (
                batch,
                self.log.epoch_entries,
            )
        self._check_producers(found, whole)
        assert self.log.recovery_point <= found.end
        cleaned_to = self.log.cleaned_to or 0
        assert cleaned_to <= found.end
        assert {(each.base, each.sequence) for each in found.batches if each.base < cleaned_to} <= self.looked_at
        below = tuple(batch for batch in whole.batches if batch.following <= found.end)
        self.content = found._replace(batches=below)
        self.possible.append(self.content)
        if lossy:  # what is there is on the disk, and what the start has cut off may come back
            held = self.content.batches
            self.possible = [each for each in self.possible if each.batches[: len(held)] == held]
            self.lasting = self.content.end
        self.lasting = min(self.lasting, self.content.end)  # what is written now above the last batch is new
        del alive

    def _check_producers(self, found: Content, whole: Content) -> None:
        """Of each the last batch is known; where the log was cut off behind one that is gone, that or one before."""
        known = known_producers(self.log, found)
        assert found.producers.keys() <= known.keys(), (found.producers, known)
        for batch in sorted(whole.batches, reverse=True):
            last = (batch.sequence + batch.following - batch.base - 1, batch.following - 1)
            if batch.following <= found.end and known.get(batch.producer) == last:
                del known[batch.producer]
            elif batch.following <= found.end and batch.producer in known:
                assert (batch.base, batch.sequence) in self.batches_gone, (batch, known, found)
        assert not known, (known, found, whole)

    def _is_compacted(self, found: Content, whole: Content, least: int) -> bool:
        """Whether nothing of `whole`, from where the log begins to where it ends, is gone but what may be. That is at
        `least`, or below where nothing is left in between: a start ends a log with its last batch.
        """
        written = [
            each
            for each in whole.batches
            if each.following > found.start and (each.base < found.end or each.following <= least)
        ]
        if not written:
            return not found.batches and found.start <= found.end <= max(whole.end, found.start)
        there = {each.base: each for each in found.batches}
        for batch in written:
            kept = there.pop(batch.base, None)
            if kept is None:
                if (batch.base, batch.sequence) not in self.batches_gone:
                    return False
            elif batch.following > found.end or batch[:5] != kept[:5]:
                return False
            if not self._may_lack(batch, kept):
                return False
        return not there and found.end <= whole.end

    def _may_lack(self, batch: Batch, kept: Batch | None) -> bool:
        before = {offset: (key, value) for offset, key, value in records_of(batch)}
        after = {offset: (key, value) for offset, key, value in records_of(kept)} if kept is not None else {}
        lacks = before.keys() - after.keys()
        is_invented = any(before.get(offset) != record for offset, record in after.items())
        return not is_invented and all((batch.base, batch.sequence, offset) in self.records_gone for offset in lacks)

    def append_above_hole(self, offsets: int, records: int, producer: int) -> None:
        """Append as a follower of a leader whose log was compacted: that many offsets are missing."""
        base = self.content.end + offsets
        batch = self.make_batch(records, base, producer, offsets)
        self._may_be(self.content.plus(batch))
        self.log.append_as_follower(batch.data)
        self.begun_anew = None
        self._is()

    def truncate(self, records: int) -> None:
        """As before; in a hole the log ends where it was cut off, though a batch was written over that."""
        offset = max(self.content.end - records, 0)
        super().truncate(records)
        end = self.log.log_end_offset
        assert self.content.end <= end <= max(offset, self.content.end), (self.content, end)
        self.content = self.possible[-1] = self.content._replace(end=end)
