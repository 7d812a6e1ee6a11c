"""The records of one batch, decoded: the only place of the tools that looks into batches."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka.record.default_records import DefaultRecordBatch

from regency.cli.log.dump.sink import Fact
from regency.cli.spelling import UTF8, encoding_of, spelled
from regency.kafka.record_batch import MAX_SEQUENCE, BatchHeader

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
            yield _fact(file, header, record, contents=contents)
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


def _fact(file: str, header: BatchHeader, record: DefaultRecordBatch, *, contents: bool) -> RecordFact:
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
