"""Snapshots of producers, the index of aborted transactions, checkpoints, meta.properties and partition.metadata."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from regency.cli.log.dump.entries import Entries
from regency.cli.log.dump.sink import Empty, Fact, Sink
from regency.kafka.logfiles.checkpoints import CheckpointMalformed, read_entries, read_partition_metadata
from regency.kafka.logfiles.producer_snapshot import snapshot_entries
from regency.kafka.record_batch import MAX_SEQUENCE
from regency.model.settings.properties import parse_properties
from regency.model.settings.values import SettingsInvalid
from regency.model.topic_ids import encode_topic_id
from regency.runtime.disk import OsDisk

_ABORTED = struct.Struct(">hqqqq")
_META_REQUIRED = {"0": ("broker.id", "cluster.id"), "1": ("node.id", "cluster.id")}
"""By the version of meta.properties: ZooKeeper's brokers, and Kafka's later ones."""


class ProducerFact(Fact, frozen=True, tag="producer"):
    """A remembered batch of a producer. -1 for none; the first offset of an open transaction is None without one."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    transaction_first_offset: int | None
    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


class AbortedFact(Fact, frozen=True, tag="aborted_transaction"):
    """An entry of `.txnindex`."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class EpochFact(Fact, frozen=True, tag="leader_epoch", rename={"epoch": "leader_epoch"}):
    """A leader epoch, and the offset it begins at."""

    epoch: int
    start_offset: int


class OffsetFact(Fact, frozen=True, tag="offset"):
    """An offset of a partition: its recovery point, log start or high watermark, by the file's name."""

    topic: str
    partition: int
    offset: int


class PropertyFact(Fact, frozen=True, tag="property"):
    """A line of meta.properties or partition.metadata."""

    key: str
    value: str


def dump_snapshot(path: Path, sink: Sink) -> None:
    """Tell and check a `.snapshot`. Raises OSError."""
    try:
        entries = snapshot_entries(path, path.read_bytes())
    except CheckpointMalformed as error:
        sink.damage(path, "snapshot", error.reason)
        return
    for entry in entries:
        has_batch = entry.last_sequence >= 0
        fact = ProducerFact(
            file=str(path),
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            coordinator_epoch=entry.coordinator_epoch,
            transaction_first_offset=None if entry.transaction_first_offset < 0 else entry.transaction_first_offset,
            first_sequence=(entry.last_sequence - entry.offset_delta) & MAX_SEQUENCE if has_batch else -1,
            last_sequence=entry.last_sequence,
            last_offset=entry.last_offset,
            offset_delta=entry.offset_delta,
            timestamp=entry.timestamp,
        )
        sink.fact(fact, _producer_line(fact))
    if not entries:
        sink.fact(Empty(file=str(path)), f"{path} is empty.")


def _producer_line(fact: ProducerFact) -> str:
    first = "None" if fact.transaction_first_offset is None else f"Some({fact.transaction_first_offset})"
    return (
        f"producerId: {fact.producer_id} producerEpoch: {fact.producer_epoch} "
        f"coordinatorEpoch: {fact.coordinator_epoch} currentTxnFirstOffset: {first} "
        f"firstSequence: {fact.first_sequence} lastSequence: {fact.last_sequence} lastOffset: {fact.last_offset} "
        f"offsetDelta: {fact.offset_delta} timestamp: {fact.timestamp}"
    )


def dump_aborted(path: Path, sink: Sink) -> None:
    """Tell and check a `.txnindex`. Raises OSError."""
    with closing(Entries(path, _ABORTED, sink)) as entries:
        entries.check_size()
        before = -1
        for at, (version, producer, first, last, stable) in entries:
            fact = AbortedFact(
                file=str(path),
                version=version,
                producer_id=producer,
                first_offset=first,
                last_offset=last,
                last_stable_offset=stable,
            )
            words = f"version: {version} producerId: {producer} firstOffset: {first}"
            sink.fact(fact, f"{words} lastOffset: {last} lastStableOffset: {stable}")
            if last <= before or first > last:
                sink.damage(path, "order", f"a transaction from {first} to {last} after one that ends at {before}", at)
            before = max(before, last)


def dump_epochs(path: Path, sink: Sink) -> None:
    """Tell and check leader-epoch-checkpoint. Raises OSError."""
    last: tuple[int, int] | None = None
    for epoch, start in _integers(path, sink, 2, "<epoch> <start offset>"):
        sink.fact(EpochFact(file=str(path), epoch=epoch, start_offset=start), f"epoch: {epoch} startOffset: {start}")
        if epoch < 0 or start < 0 or (last is not None and (epoch <= last[0] or start <= last[1])):
            after = "" if last is None else f" after epoch {last[0]} at {last[1]}"
            sink.damage(path, "order", f"epoch {epoch} at offset {start}{after}: both must rise from 0")
        last = (epoch, start)


def dump_offsets(path: Path, sink: Sink) -> None:
    """Tell and check one of the checkpoints of a log directory. Raises OSError."""
    seen: set[tuple[str, int]] = set()
    for words in _checkpoint(path, sink):
        try:
            topic, (partition, offset) = words[0], [int(word) for word in words[1:]]
        except ValueError:
            sink.damage(path, "entry", f"{' '.join(words)[:200]!r}: expected '<topic> <partition> <offset>'")
            continue
        fact = OffsetFact(file=str(path), topic=topic, partition=partition, offset=offset)
        sink.fact(fact, f"topic: {topic} partition: {partition} offset: {offset}")
        if partition < 0 or offset < 0:
            sink.damage(path, "entry", f"{topic}-{partition}: neither a partition nor an offset is negative ({offset})")
        if (topic, partition) in seen:
            sink.damage(path, "repeated", f"{topic}-{partition} stands there twice")
        seen.add((topic, partition))


def dump_meta(path: Path, sink: Sink) -> None:
    """Tell and check meta.properties. Raises OSError."""
    try:
        found = parse_properties(path.read_bytes().decode(), str(path))
    except (UnicodeDecodeError, SettingsInvalid) as error:
        sink.damage(path, "properties", str(error))
        return
    for key, value in found.items():
        sink.fact(PropertyFact(file=str(path), key=key, value=value), f"{key}: {value}")
    required = _META_REQUIRED.get(found.get("version", ""))
    if required is None:
        sink.damage(path, "version", f"its version is {found.get('version')}; known are {', '.join(_META_REQUIRED)}")
        return
    for key in required:
        if not found.get(key):
            sink.damage(path, "missing_key", f"it has no {key}")
        elif key != "cluster.id" and not found[key].isdecimal():
            sink.damage(path, "value", f"{key} is {found[key]!r}, which is no broker id")


def dump_partition_metadata(path: Path, sink: Sink) -> None:
    """Tell and check partition.metadata. Raises OSError."""
    try:
        topic_id = read_partition_metadata(OsDisk(), path.parent)
    except CheckpointMalformed as error:
        sink.damage(path, "metadata", error.reason)
        return
    if topic_id is None:
        raise FileNotFoundError(2, "it is gone", str(path))
    spelled = encode_topic_id(topic_id)
    sink.fact(PropertyFact(file=str(path), key="topic_id", value=spelled), f"topic_id: {spelled}")


def _checkpoint(path: Path, sink: Sink) -> list[list[str]]:
    try:
        entries = read_entries(OsDisk(), path)
    except CheckpointMalformed as error:
        sink.damage(path, "checkpoint", error.reason)
        return []
    if not entries:
        sink.fact(Empty(file=str(path)), f"{path} is empty.")
    return entries


def _integers(path: Path, sink: Sink, count: int, expected: str) -> Iterator[list[int]]:
    for words in _checkpoint(path, sink):
        try:
            numbers = [int(word) for word in words]
        except ValueError:
            numbers = []
        if len(numbers) == count:
            yield numbers
        else:
            sink.damage(path, "entry", f"{' '.join(words)[:200]!r}: expected {expected!r}")
