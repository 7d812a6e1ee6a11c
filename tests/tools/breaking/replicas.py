"""Compares the logs of stopped brokers, batch by batch, as they lie on disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from regency.kafka.record_batch import CorruptBatch, crc_matches, iter_batches


class StoredBatch(msgspec.Struct, frozen=True, gc=False):
    """What two replicas must agree on: place, term, checksum and producer of a batch."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    producer_id: int
    base_sequence: int


class StoredLog(msgspec.Struct, frozen=True):
    """One replica's batches in order, and what is wrong with its files."""

    batches: tuple[StoredBatch, ...]
    broken: tuple[str, ...]


def read_stored_log(directory: Path) -> StoredLog:
    """Every batch of the segments in a partition's directory; checks checksums, gaps and epochs that go back."""
    batches: list[StoredBatch] = []
    broken: list[str] = []
    for segment in sorted(directory.glob("*.log")):
        content, end = segment.read_bytes(), 0
        try:
            for at, header in iter_batches(content):
                if not crc_matches(content, header, at):
                    broken.append(f"{segment}: checksum of the batch at byte {at}")
                batch = StoredBatch(
                    header.base_offset,
                    header.last_offset,
                    header.leader_epoch,
                    header.crc,
                    header.producer_id,
                    header.base_sequence,
                )
                broken.extend(f"{segment}, byte {at}: {words}" for words in _misfits(batches, batch))
                batches.append(batch)
                end = at + header.size
        except CorruptBatch as error:
            broken.append(f"{segment}: {error}")
        if end != len(content):
            broken.append(f"{segment}: {len(content) - end} bytes behind the last whole batch")
    return StoredLog(tuple(batches), tuple(broken))


def compare_replicas(directories: Mapping[int, Path], partitions: Iterable[str]) -> list[str]:
    """What is wrong with, or differs between, the replicas of each partition (`topic-0`) in the brokers' log dirs."""
    found: list[str] = []
    for partition in partitions:
        logs = {broker: read_stored_log(directory / partition) for broker, directory in sorted(directories.items())}
        for broker, log in logs.items():
            found.extend(f"broker {broker}: {words}" for words in log.broken)
        (first, reference), *others = logs.items()
        for broker, log in others:
            if log.batches != reference.batches:
                found.append(_difference(partition, first, reference.batches, broker, log.batches))
    return found


def _misfits(before: list[StoredBatch], batch: StoredBatch) -> list[str]:
    if not before:
        return []
    last, words = before[-1], []
    if batch.base_offset != last.last_offset + 1:
        words.append(f"offset {batch.base_offset} follows {last.last_offset}")
    if batch.leader_epoch < last.leader_epoch:
        words.append(f"leader epoch {batch.leader_epoch} follows {last.leader_epoch}")
    return words


def _difference(
    partition: str, first: int, ours: tuple[StoredBatch, ...], second: int, theirs: tuple[StoredBatch, ...]
) -> str:
    pairs = zip(ours, theirs, strict=False)
    at = next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(ours), len(theirs)))
    return (
        f"{partition} differs from batch {at} on: broker {first} has {_show(ours, at)}, "
        f"broker {second} has {_show(theirs, at)}"
    )


def _show(batches: tuple[StoredBatch, ...], at: int) -> str:
    return str(batches[at]) if at < len(batches) else f"nothing (ends with {batches[-1:]})"
