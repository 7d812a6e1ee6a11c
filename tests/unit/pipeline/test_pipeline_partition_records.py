"""How what was read becomes Arrow batches: the schema to the letter, sizes, what is put together, what is skipped."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from typing import Any, ClassVar
from uuid import UUID

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from regency.clients.batch_scan import Batches, scan
from regency.clients.errors import CorruptRecords
from regency.clients.partition_reader import Range, Skipped
from regency.clients.settings import client_settings
from regency.kafka.record_batch import HEADER_BYTES, read_header, stamp
from regency.model.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from regency.pipeline.records import partition_records
from regency.pipeline.records.partition_records import SCHEMA, SCHEMA_WITH_HEADERS, ReadTask, record_batches

NOW = 1_700_000_000_123
SETTINGS = client_settings({"bootstrap.servers": "broker-1:9092"})


def batch(base: int, count: int, size: int = 10, codec: str | None = None) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1 << 30,
    )  # fmt: skip
    for number in range(count):
        headers = [("h", b"%d" % number)] if number % 2 else []
        builder.append(number, timestamp=NOW, key=b"k", value=b"%d" % (base + number) + bytes(size), headers=headers)
    made = bytearray(builder.build())
    if codec is not None:
        body = pa.compress(bytes(made[HEADER_BYTES:]), codec, asbytes=True)
        made[HEADER_BYTES:] = body
        made[8:12] = (len(made) - 12).to_bytes(4, "big")
        made[22] |= ["", "gzip", "snappy", "lz4", "zstd"].index(codec)
    stamp(made, Offset(base), LeaderEpoch(0))
    return bytes(made)


class FakeReader:
    """Gives answers made beforehand."""

    answers: ClassVar[list[bytes]] = []
    made: ClassVar[list[FakeReader]] = []

    def __init__(self, settings: Any, wanted: Range, *, poll_timeout_ms: int, on_skip: Any) -> None:
        self.settings, self.wanted, self.poll_timeout_ms, self.on_skip = settings, wanted, poll_timeout_ms, on_skip
        self.closed = False
        self.made.append(self)

    def __iter__(self) -> Iterator[Batches]:
        position = self.wanted.start
        for answer in self.answers:
            batches = scan(memoryview(answer), position, self.wanted.end, check_crcs=False, high_watermark=1 << 40)
            position = batches.next_offset
            yield batches

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def reader(monkeypatch: pytest.MonkeyPatch) -> type[FakeReader]:
    monkeypatch.setattr(partition_records, "PartitionReader", FakeReader)
    monkeypatch.setattr(FakeReader, "made", [])
    return FakeReader


def task(start: int, end: int, **changes: Any) -> ReadTask:
    return ReadTask(SETTINGS, "t", TopicId(UUID(int=1)), 3, Offset(start), Offset(end), **changes)


def test_the_schema_is_spark_s_to_the_letter() -> None:
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    pair = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    assert to_arrow_schema(StructType(fields), timezone="UTC").equals(SCHEMA, check_metadata=True)
    fields.append(StructField("headers", ArrayType(pair)))
    assert to_arrow_schema(StructType(fields), timezone="UTC").equals(SCHEMA_WITH_HEADERS, check_metadata=True)


def test_a_task_can_be_sent_elsewhere_and_says_what_it_reads(reader: type[FakeReader]) -> None:
    sent = pickle.loads(pickle.dumps(task(5, 9, poll_timeout_ms=77)))
    assert sent == task(5, 9, poll_timeout_ms=77)
    reader.answers = []
    assert list(record_batches(sent)) == []
    (made,) = reader.made
    assert made.wanted == Range(TopicPartition("t", 3), TopicId(UUID(int=1)), 5, 9)
    assert (made.settings, made.poll_timeout_ms, made.on_skip, made.closed) == (SETTINGS, 77, None, True)


def test_every_column_of_a_range(reader: type[FakeReader]) -> None:
    reader.answers = [batch(10, 5) + batch(15, 5)]
    (made,) = record_batches(task(12, 16, include_headers=True))
    made.validate(full=True)
    assert made.schema.equals(SCHEMA_WITH_HEADERS, check_metadata=True)
    assert made.column("offset").to_pylist() == [12, 13, 14, 15]
    assert made.column("value").to_pylist() == [b"%d" % number + bytes(10) for number in range(12, 16)]
    assert made.column("key").to_pylist() == [b"k"] * 4
    assert made.column("topic").to_pylist() == ["t"] * 4
    assert made.column("partition").to_pylist() == [3] * 4
    assert made.column("timestamp").view(pa.int64()).to_pylist() == [NOW * 1000] * 4
    assert made.column("timestampType").to_pylist() == [0] * 4
    assert made.column("headers").to_pylist() == [None, [{"key": "h", "value": b"3"}], None, None]
    (without,) = record_batches(task(12, 16))
    assert without.schema.equals(SCHEMA, check_metadata=True)


def test_small_answers_are_put_together_and_compressed_ones_taken_apart(
    reader: type[FakeReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.answers = [
        batch(base, 10, codec=codec) for base, codec in ((0, "snappy"), (10, "gzip"), (20, "zstd"), (30, "lz4"))
    ]
    (made,) = record_batches(task(5, 35))
    assert made.column("offset").to_pylist() == list(range(5, 35))
    assert made.column("value").to_pylist() == [b"%d" % number + bytes(10) for number in range(5, 35)]

    monkeypatch.setattr(partition_records, "ENOUGH_BYTES", 2 * (len(batch(10, 10)) - HEADER_BYTES) + 9)
    assert [len(made) for made in record_batches(task(5, 35))] == [15, 15]


def test_large_answers_are_taken_as_they_are_and_in_order(
    reader: type[FakeReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_records, "ENOUGH_BYTES", 700)
    reader.answers = [batch(0, 3), batch(3, 20) + batch(23, 4), batch(27, 2)]
    made = list(record_batches(task(0, 29)))
    assert [len(each) for each in made] == [3, 24, 2]
    assert pa.Table.from_batches(made).column("offset").to_pylist() == list(range(29))


def test_batches_have_at_most_so_many_rows(reader: type[FakeReader], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_records, "MOST_ROWS", 4)
    reader.answers = [batch(0, 10)]
    made = list(record_batches(task(0, 10)))
    assert [len(each) for each in made] == [4, 4, 2]
    assert pa.Table.from_batches(made).column("value").to_pylist() == [
        b"%d" % number + bytes(10) for number in range(10)
    ]


def broken(base: int, codec: str | None = None) -> bytes:
    """Ten records, of which the last claims too much."""
    made = bytearray(batch(base, 10, codec=codec))
    if codec is None:
        made[-4] = 0x7E
    else:
        made[HEADER_BYTES : HEADER_BYTES + 4] = b"oops"
    return bytes(made)


@pytest.mark.parametrize(
    ("codec", "said"), [(None, "record 9 of 10 .from 0.: its "), ("zstd", "decompressing failed: ZSTD")]
)
def test_a_malformed_batch_is_an_error_or_skipped_and_counted(
    reader: type[FakeReader], codec: str | None, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    reader.answers = [batch(0, 10) + broken(10, codec) + batch(20, 10)]
    with pytest.raises(CorruptRecords, match=f"t-3: the record batch at offset 12 cannot be read: {said}"):
        list(record_batches(task(12, 30, include_headers=True)))
    assert reader.made[-1].closed

    skipped: list[Skipped] = []
    made = list(record_batches(task(2, 30, include_headers=True, fail_on_data_loss=False), on_skip=skipped.append))
    assert pa.Table.from_batches(made).column("offset").to_pylist() == [*range(2, 10), *range(20, 30)]
    assert [each[:3] for each in skipped] == [(TopicPartition("t", 3), 10, 20)]

    with caplog.at_level(logging.WARNING):
        list(record_batches(task(2, 30, include_headers=True, fail_on_data_loss=False)))
    assert "t-3: skipped 10 offsets from 10 on: " in caplog.text


def test_where_nothing_is_left_nothing_comes(reader: type[FakeReader]) -> None:
    reader.answers = [broken(0)]
    assert (
        list(record_batches(task(0, 10, include_headers=True, fail_on_data_loss=False), on_skip=lambda _: None)) == []
    )
    assert read_header(broken(0)).record_count == 10


def test_a_reader_is_closed_when_its_rows_are_wanted_no_more(reader: type[FakeReader]) -> None:
    reader.answers = [batch(0, 10), batch(10, 10)]
    rows = record_batches(task(0, 20))
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert reader.made[-1].closed
