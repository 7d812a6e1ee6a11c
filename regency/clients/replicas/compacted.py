"""What replicas of a compacted partition must have alike, though each was compacted by itself. Pure.

Compaction takes records that have a later one of their key, and in time a tombstone with all before it; what stays is
as it was, at its offset. So two records at one offset are the same, and the last record of a key, unless it is a
tombstone, is in all replicas whose logs reach so far. A record without a key may go at any time, and one of a
transaction that was aborted: keys in batches of transactions are not judged. Source: KIP-98's cleaning of batches,
KIP-534.

A log does not stand still while it is read: a record that lies above what is read may have one taken in one replica
that another one still showed. So what one look finds is a suspicion: a second look, up to a later end, confirms it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple

from regency.kafka.record_batch import read_header
from regency.kafka.records import iter_whole_records
from regency.model.ids import BrokerId

_DIGEST_BYTES = 16


class Batch(NamedTuple):
    """What replicas must agree on; of a compacted partition with its bytes."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    size: int
    data: bytes | None = None

    @property
    def facts(self) -> tuple[int, int, int, int, int]:
        """All but its bytes."""
        return self[:5]

    def __str__(self) -> str:
        """For people."""
        offsets = f"offsets {self.base_offset} to {self.last_offset}"
        return f"{offsets} of leader epoch {self.leader_epoch}, {self.size} bytes, checksum {self.crc:08x}"


class _Held(NamedTuple):
    offset: int
    digest: bytes
    is_tombstone: bool
    is_transactional: bool
    batch: Batch

    def is_lacking(self, other: _Held | None) -> bool:
        """Whether a replica whose last record of the key is `other` lacks this one, which it has to have."""
        return not self.is_tombstone if other is None else (self.offset, self.digest) != (other.offset, other.digest)


class Different(NamedTuple):
    """Where replicas differ: for each, the batch with its record, or None; `differs`: those that have not what most
    have, or the first of as many."""

    offset: int
    there: dict[BrokerId, Batch | None]
    differs: set[BrokerId]


class CompactedLogs:
    """Batches come in the order of offsets. It takes some 800 bytes for each key of batches that differ in three."""

    def __init__(self, suspected: Collection[int] | None) -> None:
        """`suspected`: the offsets where replicas differed at the first look; None: this is it."""
        self._suspected = suspected
        self._unsure: set[bytes] = set()
        """Keys in transactions."""
        self._last: dict[bytes, dict[BrokerId, _Held]] = {}
        """By key, of those in batches that differ: the last record of each replica."""
        self._conflicts: dict[int, dict[BrokerId, _Held | None]] = {}

    def differing(self, batches: Mapping[BrokerId, Batch]) -> bool:
        """Batches at about the same place that are not alike in all replicas; False where records cannot be read."""
        try:
            found = {broker: list(_records(batch)) for broker, batch in batches.items()}
        except Exception:  # noqa: BLE001 - decompressors raise what they like, and what they refuse differs as it is
            return False
        first: dict[int, tuple[BrokerId, _Held]] = {}
        for broker, records in found.items():
            for key, held in records:
                other, seen = first.setdefault(held.offset, (broker, held))
                if seen.digest != held.digest:
                    self._conflicts.setdefault(held.offset, {other: seen})[broker] = held
                if key is not None:
                    self._last.setdefault(key, {})[broker] = held
                    if held.is_transactional:
                        self._unsure.add(key)
        return True

    def alike(self, brokers: Collection[BrokerId], batch: Batch) -> None:
        """A batch that all of these have."""
        if not self._last:
            return
        try:
            for key, held in _records(batch):
                if key is not None and key in self._last:
                    self._last[key].update(dict.fromkeys(brokers, held))
                    if held.is_transactional:
                        self._unsure.add(key)
        except Exception:  # noqa: BLE001 - as above; its checksum has been compared
            return

    def differences(self, spans: Mapping[BrokerId, range]) -> list[Different]:
        """What replicas have differently that were read over these offsets, by offset."""
        found = dict(self._conflicts)
        for key, latest in self._last.items():
            if key in self._unsure:
                continue
            newest = max(latest.values())
            there = {broker: latest.get(broker) for broker, span in spans.items() if newest.offset in span}
            if any(map(newest.is_lacking, there.values())):
                found[newest.offset] = {
                    broker: held if held is not None and held.offset == newest.offset else None
                    for broker, held in there.items()
                }
        return [
            _different(offset, there)
            for offset, there in sorted(found.items(), key=lambda each: each[0])
            if self._suspected is None or offset in self._suspected
        ]


def _different(offset: int, there: Mapping[BrokerId, _Held | None]) -> Different:
    digests = {broker: None if held is None else held.digest for broker, held in there.items()}
    all_digests = list(digests.values())
    usual = max(all_digests, key=all_digests.count)
    shown = {broker: None if held is None else held.batch for broker, held in there.items()}
    return Different(offset, shown, {broker for broker, digest in digests.items() if digest != usual})


def _records(batch: Batch) -> Iterator[tuple[bytes | None, _Held]]:
    """Digests of keys, and records; without a key they only have to be the same where they are."""
    assert batch.data is not None
    shown = batch._replace(data=None)
    is_transactional = read_header(batch.data).is_transactional
    for record in iter_whole_records(batch.data):
        content = batch.leader_epoch, record.timestamp, record.key, record.value, record.headers
        digest = _digest(repr(content).encode())
        key = None if record.key is None else _digest(record.key)
        yield key, _Held(record.offset, digest, record.value is None, is_transactional, shown)


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=_DIGEST_BYTES).digest()
