"""A segment (`.log`): its batches and records in Kafka's words, and whether each of them, and their order, is sound."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from regency.cli.context import UTF8, encoding_of, spelled
from regency.cli.log.dump.segment_file import SegmentFile
from regency.cli.log.dump.sink import Fact, Sink
from regency.kafka.logfiles.file_names import parse_offset_file
from regency.kafka.record_batch import HEADER_BYTES, MAX_SEQUENCE, BatchHeader, CorruptBatch

CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


class BatchFact(Fact, frozen=True, tag="batch", rename={"size": "size_bytes"}):
    """A batch. Timestamps are wall milliseconds; -1 stands for none, as in the file."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    transactional: bool
    control: bool
    timestamp_type: str
    max_timestamp: int
    magic: int
    codec: str
    crc: int
    valid: bool


class Depth(msgspec.Struct, frozen=True):
    """How much of a segment is shown."""

    records: bool = False
    contents: bool = False
    """Of the records, keys and values too."""
    max_bytes: int | None = None
    """How much of the file is looked at; whole batches only."""


def base_offset_of(path: Path) -> int:
    """The offset that a file of a segment, also one to be deleted, has in its name."""
    parsed = parse_offset_file(path.name[: path.name.rindex(".")] if path.name.count(".") > 1 else path.name)
    assert parsed is not None, path
    return parsed[0]


def dump_segment(path: Path, sink: Sink, depth: Depth) -> None:
    """Tell every batch up to the first bytes that are none. Raises OSError."""
    sink.line(f"Starting offset: {base_offset_of(path)}")
    with SegmentFile(path) as segment:
        _Dump(segment, sink, depth).run()


class _Dump:
    def __init__(self, segment: SegmentFile, sink: Sink, depth: Depth) -> None:
        self._segment = segment
        self._path = segment.path
        self._sink = sink
        self._depth = depth
        self._last: BatchHeader | None = None
        self._epoch = -1

    def run(self) -> None:
        segment, most = self._segment, self._depth.max_bytes
        at = 0
        while at < (segment.size if most is None else min(segment.size, most)):
            try:
                header = segment.header(at)
            except CorruptBatch as error:
                self._unreadable(at, error.reason)
                return
            end = at + (HEADER_BYTES if header is None else header.size)
            if most is not None and end > most:
                return
            if header is None or end > segment.size:
                if segment.grown_to(end):
                    continue
                self._torn(at, header)
                return
            self._batch(at, header)
            at = end

    def _batch(self, at: int, header: BatchHeader) -> None:
        crc = self._segment.checksum(at, header)
        fact = _fact(str(self._path), at, header, valid=crc == header.crc)
        self._sink.fact(fact, _kafka_line(fact))
        if not fact.valid:
            offsets = f"{header.base_offset} to {header.last_offset}"
            what = f"the batch of offsets {offsets} has checksum {crc}, its header says {header.crc}"
            self._sink.damage(self._path, "checksum", what, at)
        self._check_place(at, header)
        if self._depth.records and fact.valid:
            self._records(at, header)

    def _check_place(self, at: int, header: BatchHeader) -> None:
        start, last = base_offset_of(self._path), self._last
        if header.base_offset < start:
            what = f"offset {header.base_offset} is below {start}, where the segment begins"
            self._sink.damage(self._path, "offset", what, at)
        elif last is not None and header.base_offset <= last.last_offset:
            what = f"offset {header.base_offset} follows {last.last_offset}"
            self._sink.damage(self._path, "offset", what, at)
        elif last is not None and header.base_offset != last.next_offset:
            self._sink.gap(self._path, last.last_offset, header.base_offset)
        if header.leader_epoch < self._epoch:
            what = f"leader epoch {header.leader_epoch} follows {self._epoch}"
            self._sink.damage(self._path, "leader_epoch", what, at)
        self._last, self._epoch = header, max(self._epoch, header.leader_epoch)

    def _records(self, at: int, header: BatchHeader) -> None:
        path, count, greatest = self._path, 0, -1
        batch = self._segment.read(header.size, at)
        try:
            for record in decode(str(path), header, batch, contents=self._depth.contents):
                self._sink.fact(record, kafka_line(record, header))
                count, greatest = count + 1, max(greatest, record.timestamp)
                if not header.base_offset <= record.offset <= header.last_offset:
                    what = (
                        f"a record of offset {record.offset} in the batch {header.base_offset} to {header.last_offset}"
                    )
                    self._sink.damage(path, "record", what, at)
        except RecordsUnreadable as why:
            if why.damaged:
                self._sink.damage(path, "record", str(why), at)
            else:
                self._sink.line(f"| {why}")
        else:
            if count and greatest != header.max_timestamp:
                what = f"its records' greatest timestamp is {greatest}, its header says {header.max_timestamp}"
                self._sink.damage(path, "timestamp", what, at)

    def _torn(self, at: int, header: BatchHeader | None) -> None:
        left = self._segment.size - at
        self._sink.line(f"Found {left} invalid bytes at the end of {self._path.name}")
        whole = "fewer than a header has" if header is None else f"of a batch of {header.size} bytes"
        self._sink.damage(self._path, "torn", f"the file ends with {left} bytes, {whole}", at)

    def _unreadable(self, at: int, reason: str) -> None:
        left = self._segment.size - at
        self._sink.line(f"Found {left} invalid bytes at the end of {self._path.name}")
        zeros = not any(self._segment.read(HEADER_BYTES, at))
        hint = " (zeros: the file grew and its data was never written, or was preallocated)" if zeros else ""
        what = f"no batch begins here: {reason}{hint}; {left} bytes from here on are not looked at"
        self._sink.damage(self._path, "no_batch", what, at)


def _fact(file: str, at: int, header: BatchHeader, *, valid: bool) -> BatchFact:
    return BatchFact(
        file=file,
        position=at,
        size=header.size,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        count=header.record_count,
        base_sequence=header.base_sequence,
        last_sequence=header.last_sequence,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        leader_epoch=header.leader_epoch,
        transactional=header.is_transactional,
        control=header.is_control,
        timestamp_type="LogAppendTime" if header.is_log_append_time else "CreateTime",
        max_timestamp=header.max_timestamp,
        magic=header.magic,
        codec=CODECS.get(header.codec, f"unknown ({header.codec})"),
        crc=header.crc,
        valid=valid,
    )


def _kafka_line(batch: BatchFact) -> str:
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.count} "
        f"baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} "
        f"producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch} "
        f"partitionLeaderEpoch: {batch.leader_epoch} isTransactional: {_java(batch.transactional)} "
        f"isControl: {_java(batch.control)} position: {batch.position} "
        f"{batch.timestamp_type}: {batch.max_timestamp} size: {batch.size} magic: {batch.magic} "
        f"compresscodec: {batch.codec} crc: {batch.crc} isvalid: {_java(batch.valid)}"
    )


def _java(value: bool) -> str:
    return "true" if value else "false"


if TYPE_CHECKING:
    from kafka.record.default_records import DefaultRecordBatch


_CONTROL_KEY = struct.Struct(">hh")
_END_OF_TRANSACTION = struct.Struct(">hi")
_MARKERS = {0: "ABORT", 1: "COMMIT"}


class RecordFact(Fact, frozen=True, tag="record"):
    """A record. Sizes are -1 for null; `key`, `value` and `headers` are None unless they were asked for."""

    offset: int
    timestamp: int
    key_size: int
    value_size: int
    sequence: int
    header_keys: list[str]
    marker: str | None
    key: str | None
    value: str | None
    headers: list[tuple[str, str | None]] | None
    encoding: str


class RecordsUnreadable(Exception):
    """Why the records of a batch cannot be told. `damaged`: it is the batch's fault."""

    def __init__(self, what: str, *, damaged: bool) -> None:
        super().__init__(what)
        self.damaged = damaged


def decode(file: str, header: BatchHeader, batch: memoryview, *, contents: bool) -> Iterator[RecordFact]:
    """Its records in order; with what they hold if `contents`. Raises RecordsUnreadable."""
    from kafka.errors import UnsupportedCodecError
    from kafka.record.default_records import DefaultRecordBatch

    try:
        for record in DefaultRecordBatch(batch):
            yield _record_fact(file, header, record, contents=contents)
    except UnsupportedCodecError as error:
        raise RecordsUnreadable(f"{error}: install it to see these records", damaged=False) from error
    except Exception as error:  # decompressors raise what they like
        raise RecordsUnreadable(f"its records cannot be read: {error}", damaged=True) from error


def kafka_line(record: RecordFact, header: BatchHeader) -> str:
    """As Kafka's tool prints a record."""
    kind = "LogAppendTime" if header.is_log_append_time else "CreateTime"
    words = [
        f"| offset: {record.offset} {kind}: {record.timestamp} keySize: {record.key_size}",
        f"valueSize: {record.value_size} sequence: {record.sequence} headerKeys: [{','.join(record.header_keys)}]",
    ]
    if record.marker is not None:
        words.append(record.marker)
    if record.key is not None:
        words.append(f"key: {record.key}")
    if record.value is not None:
        words.append(f"payload: {record.value}")
    if record.encoding != UTF8:
        words.append(f"encoding: {record.encoding}")
    return " ".join(words)


def _record_fact(file: str, header: BatchHeader, record: DefaultRecordBatch, *, contents: bool) -> RecordFact:
    sequence = -1
    if header.base_sequence >= 0:
        sequence = (header.base_sequence + record.offset - header.base_offset) & MAX_SEQUENCE
    contents = contents and not header.is_control
    encoding = encoding_of([record.key, record.value, *(value for _, value in record.headers)]) if contents else UTF8
    return RecordFact(
        file=file,
        offset=record.offset,
        timestamp=record.timestamp,
        key_size=-1 if record.key is None else len(record.key),
        value_size=-1 if record.value is None else len(record.value),
        sequence=sequence,
        header_keys=[name for name, _ in record.headers],
        marker=_marker(record.key, record.value) if header.is_control else None,
        key=spelled(record.key, encoding) if contents else None,
        value=spelled(record.value, encoding) if contents else None,
        headers=[(name, spelled(value, encoding)) for name, value in record.headers] if contents else None,
        encoding=encoding,
    )


def _marker(key: bytes | None, value: bytes | None) -> str:
    if key is None or len(key) < _CONTROL_KEY.size:
        return "controlType: UNKNOWN"
    kind = _CONTROL_KEY.unpack_from(key)[1]
    if kind not in _MARKERS or value is None or len(value) < _END_OF_TRANSACTION.size:
        return f"controlType: UNKNOWN({kind})"
    return f"endTxnMarker: {_MARKERS[kind]} coordinatorEpoch: {_END_OF_TRANSACTION.unpack_from(value)[1]}"
