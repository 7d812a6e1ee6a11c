"""Which batches and records stay when a log is cleaned, and how what stays is written. Pure.

Source: LogCleaner.Cleaner and MemoryRecords.filterTo of Kafka 3.9; KIP-534 for the delete horizon; KAFKA-17076 for the
last batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from regency.broker_agent.log.cleaning.batches import Piece
from regency.broker_agent.log.cleaning.offset_map import OffsetMap
from regency.broker_agent.log.cleaning.records import Flags, Numbers, after_numbers, timestamps
from regency.broker_agent.log.cleaning.transactions import MarkerType, Transactions, marker_type
from regency.kafka.compression import compress
from regency.kafka.record_batch import (
    BatchHeader,
    Buffer,
    read_header,
    rewritten,
    with_delete_horizon,
    without_records,
)
from regency.model.ids import Offset

NO_DATA: Final = Offset(-1)


class LastOfProducer(NamedTuple):
    """What of a producer must stay: the batch that ends with its last data offset, or, without one, its marker."""

    last_data_offset: Offset
    """NO_DATA where it has none."""
    epoch: int


class Round(NamedTuple):
    """What one cleaning goes by."""

    offsets: OffsetMap
    first_dirty: Offset
    survivors: Flags | None
    """Of each offset from there to `end`, whether the record is the last of its key: no need to look it up."""
    end: Offset
    """Nothing from here on is looked at. Of the keys below, `offsets` has those of the dirty part."""
    producers: Mapping[int, LastOfProducer]
    now_ms: int
    delete_retention_ms: int


class Kept(NamedTuple):
    """A batch that stays."""

    data: Buffer
    header: BatchHeader
    is_changed: bool


class Tally:
    """Counts of a cleaning."""

    def __init__(self) -> None:
        self.records_read = 0
        self.records_kept = 0
        self.without_key = 0


def keep(
    piece: Piece, round_: Round, transactions: Transactions, tally: Tally, *, is_last: bool = False
) -> Iterator[Kept]:
    """The batches that stay, in order. Of the last piece of a segment the last batch does, with or without records.

    The segment ends where it ended then: its readers do not see an earlier end (KAFKA-17076), and a start that finds
    the swap half done knows which segments it replaces.
    """
    fates = [_fate(piece, index, round_, transactions) for index in range(len(piece.places))]
    if is_last:
        fates[-1] = fates[-1]._replace(stays_empty=True)
    stays = _records_that_stay(piece, round_, tally)
    firsts = piece.records.firsts
    for index, fate in enumerate(fates):
        if fate.keeps_records is not None:
            stays[firsts[index] : firsts[index + 1]] = fate.keeps_records
    tally.records_read += len(stays)
    tally.records_kept += int(np.count_nonzero(stays))
    counts = _per_batch(stays, firsts)
    tombstones = _per_batch(stays & ~piece.records.has_value, firsts)
    writer: _Writer | None = None
    for index, (at, header) in enumerate(piece.places):
        fate = fates[index]
        count = int(counts[index])
        if not count:
            if fate.stays_empty:
                yield _emptied(piece, at, header)
            continue
        sets_horizon = header.delete_horizon_ms < 0 and (fate.is_empty_transaction or bool(tombstones[index]))
        if count == header.record_count and not sets_horizon:
            yield Kept(piece.source[at : at + header.size], header, is_changed=False)
        else:
            horizon = round_.now_ms + round_.delete_retention_ms if sets_horizon else None
            writer = writer or _Writer(piece, stays, counts)
            yield writer.write(index, header, horizon)


def passed_markers(piece: Piece, transactions: Transactions) -> Iterator[tuple[int, bool]]:
    """Every batch of a transaction, and every marker, by number; and whether its records are data that counts."""
    for index, (_, header) in enumerate(piece.places):
        if header.is_control:
            transactions.pass_marker(header, _marker(piece, index))
            yield index, False
        else:
            yield index, not transactions.pass_data(header)


class _Fate(NamedTuple):
    stays_empty: bool
    keeps_records: bool | None
    """None: each for itself."""
    is_empty_transaction: bool


def _fate(piece: Piece, index: int, round_: Round, transactions: Transactions) -> _Fate:
    header = piece.places[index][1]
    last = round_.producers.get(header.producer_id) if header.producer_id >= 0 else None
    stays_empty = False
    if last is not None:
        if last.last_data_offset == NO_DATA:
            stays_empty |= header.is_control and header.producer_epoch == last.epoch
        else:
            stays_empty |= header.last_offset == last.last_data_offset
    if not header.is_control:
        is_aborted = transactions.pass_data(header)
        return _Fate(stays_empty, False if is_aborted else None, is_empty_transaction=False)
    is_over = transactions.pass_marker(header, _marker(piece, index))
    horizon = header.delete_horizon_ms
    return _Fate(stays_empty, not (is_over and 0 <= horizon <= round_.now_ms), is_over)


def _marker(piece: Piece, index: int) -> MarkerType | None:
    records, first = piece.records, int(piece.records.firsts[index])
    if first == records.firsts[index + 1]:
        return None
    at, size = int(records.key_at[first]), max(int(records.key_sizes[first]), 0)
    return marker_type(piece.plain[at : at + size])


def _records_that_stay(piece: Piece, round_: Round, tally: Tally) -> Flags:
    """By their keys: the last of each, values, and of deletions those whose horizon has not passed."""
    records = piece.records
    stays: Flags = records.offsets >= round_.end
    looked_at = np.flatnonzero(~stays & (records.key_sizes >= 0))
    tally.without_key += int(np.count_nonzero(~stays & (records.key_sizes < 0)))
    if looked_at.size:
        is_last = _are_last(piece, round_, looked_at)
        horizons = np.array([header.delete_horizon_ms for _, header in piece.places], np.int64)
        is_over = (horizons >= 0) & (horizons <= round_.now_ms)
        deletes_stay = np.repeat(~is_over, np.diff(records.firsts))[looked_at]
        stays[looked_at] = is_last & (records.has_value[looked_at] | deletes_stay)
    return stays


def _are_last(piece: Piece, round_: Round, looked_at: Numbers) -> Flags:
    """Which of these records have no later one of their key."""
    offsets = piece.records.offsets[looked_at]
    is_last = np.zeros(len(looked_at), np.bool_)
    is_known = offsets >= round_.first_dirty if round_.survivors is not None else is_last
    if round_.survivors is not None:
        is_last[is_known] = round_.survivors[offsets[is_known] - round_.first_dirty]
    unknown = np.flatnonzero(~is_known)
    if unknown.size:
        at, sizes = piece.records.key_at[looked_at[unknown]], piece.records.key_sizes[looked_at[unknown]]
        is_last[unknown] = offsets[unknown] >= round_.offsets.get(round_.offsets.hashes(piece.plain, at, sizes))
    return is_last


def _per_batch(flags: Flags, firsts: Numbers) -> Numbers:
    sums = np.zeros(len(flags) + 1, np.int64)
    np.cumsum(flags, out=sums[1:])
    counted: Numbers = sums[firsts[1:]] - sums[firsts[:-1]]
    return counted


def _emptied(piece: Piece, at: int, header: BatchHeader) -> Kept:
    if not header.record_count:
        return Kept(piece.source[at : at + header.size], header, is_changed=False)
    data = without_records(header)
    return Kept(data, read_header(data), is_changed=True)


class _Writer:
    """Writes batches of which not everything stays, from runs of records that stand side by side."""

    def __init__(self, piece: Piece, stays: Flags, counts: Numbers) -> None:
        self._piece = piece
        self._plain = memoryview(piece.plain)
        records = piece.records
        self._kept = np.flatnonzero(stays)
        self._kept_firsts = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=self._kept_firsts[1:])
        begins = np.ones(len(self._kept), np.bool_)
        begins[1:] = np.diff(self._kept) > 1
        begins[self._kept_firsts[:-1][counts > 0]] = True
        runs = np.flatnonzero(begins)
        ends = np.append(runs[1:], len(self._kept)) - 1 if len(runs) else runs
        self._run_starts: list[int] = records.starts[self._kept[runs]].tolist()
        self._run_ends: list[int] = records.ends[self._kept[ends]].tolist()
        self._runs_below: list[int] = np.searchsorted(runs, self._kept_firsts).tolist()
        first_timestamps = np.array([header.first_timestamp for _, header in piece.places], np.int64)
        batch = np.repeat(np.arange(len(counts)), counts)
        self._timestamps = timestamps(piece.plain, records.starts[self._kept], first_timestamps[batch])

    def write(self, index: int, header: BatchHeader, horizon_ms: int | None) -> Kept:
        """The batch with the records that stay; `horizon_ms` is set where it has to be."""
        first, end = int(self._kept_firsts[index]), int(self._kept_firsts[index + 1])
        kept_timestamps = self._timestamps[first:end]
        greatest = header.max_timestamp if header.is_log_append_time else int(kept_timestamps.max())
        if horizon_ms is None:
            runs = range(self._runs_below[index], self._runs_below[index + 1])
            body: Buffer = b"".join([self._plain[self._run_starts[run] : self._run_ends[run]] for run in runs])
        else:
            if header.is_log_append_time:
                kept_timestamps = np.full(end - first, header.max_timestamp, np.int64)
            body = self._retimed(self._kept[first:end], kept_timestamps - horizon_ms)
            header = with_delete_horizon(header, horizon_ms)
        data = rewritten(header, compress(header.codec, body), end - first, greatest)
        return Kept(data, read_header(data), is_changed=True)

    def _retimed(self, kept: Numbers, deltas: Numbers) -> bytes:
        """These records with other timestamp deltas; the only place where each is taken in hand."""
        records = self._piece.records
        octets: Any = np.frombuffer(self._piece.plain, np.uint8)
        attributes_at = after_numbers(octets, records.starts[kept])
        rest_at = after_numbers(octets, attributes_at + 1)
        plain = self._plain
        parts: list[Buffer] = []
        for attributes, rest, end, delta in zip(
            attributes_at.tolist(), rest_at.tolist(), records.ends[kept].tolist(), deltas.tolist(), strict=True
        ):
            number = _varint(delta)
            parts += (
                _varint(1 + len(number) + end - rest),
                plain[attributes : attributes + 1],
                number,
                plain[rest:end],
            )
        return b"".join(parts)


def _varint(value: int) -> bytes:
    """A signed number in zigzag groups of seven bits."""
    left = value << 1 if value >= 0 else (-value << 1) - 1
    groups = bytearray()
    while left > 127:
        groups.append(left & 127 | 128)
        left >>= 7
    groups.append(left)
    return bytes(groups)
