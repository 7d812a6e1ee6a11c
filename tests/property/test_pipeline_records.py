"""Columns of records against aiokafka's own records, and against a plain reading of bytes that nobody should send."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import lz4.frame
import pyarrow as pa
import pytest
import zstandard
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regency.kafka.record_batch import HEADER_BYTES, BatchHeader, iter_batches, read_header, stamp
from regency.model.ids import LeaderEpoch, Offset
from regency.pipeline.records.compression import decompress
from regency.pipeline.records.decoding import BatchMalformed, Columns, Span, decode

NOW = 1_700_000_000_000
LENGTHS = st.sampled_from([0, 1, 2, 50, 57, 58, 63, 64, 65, 127, 128, 8100, 8185, 8191, 8192, 9000])
BYTES = st.one_of(st.none(), st.binary(max_size=80), LENGTHS.map(bytes))


class Sent(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


HEADERS = st.lists(st.tuples(st.text(max_size=10), BYTES), max_size=4)
TIMESTAMPS = st.one_of(st.integers(NOW, NOW + 200), st.integers(-(2**40), 2**42))
RECORDS = st.lists(st.builds(Sent, TIMESTAMPS, BYTES, BYTES, HEADERS), min_size=1, max_size=60)
ALIKE = st.builds(
    lambda size, count: [Sent(NOW + number // 7, None, bytes(size), []) for number in range(count)],
    st.integers(0, 130),
    st.integers(1, 700),
)
"""As one producer sends them; delta and length grow by a byte on the way."""


def batch_of(sent: Sequence[Sent], base: int) -> bytearray:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for number, record in enumerate(sent):
        builder.append(number, timestamp=record.timestamp, key=record.key, value=record.value, headers=record.headers)
    made = bytearray(builder.build())
    stamp(made, Offset(base), LeaderEpoch(0))
    return made


def spans_of(data: bytes) -> list[Span]:
    return [Span(header, at + HEADER_BYTES, at + header.size) for at, header in iter_batches(data)]


def rows(columns: Columns) -> list[tuple[Any, ...]]:
    for column in (columns.key, columns.value, columns.headers):
        if column is not None:
            column.validate(full=True)
    headers = [None] * len(columns.offset) if columns.headers is None else columns.headers.to_pylist()
    return [
        (offset, timestamp // 1000, kind, key, value, [(each["key"], each["value"]) for each in some or ()])
        for offset, timestamp, kind, key, value, some in zip(
            columns.offset.tolist(),
            columns.timestamp_us.tolist(),
            columns.timestamp_type.tolist(),
            columns.key.to_pylist(),
            columns.value.to_pylist(),
            headers,
            strict=True,
        )
    ]


@given(st.lists(st.one_of(RECORDS, ALIKE), min_size=1, max_size=4), st.integers(0, 2**40), st.data())
def test_columns_are_what_aiokafka_reads(batches: list[list[Sent]], base: int, data: st.DataObject) -> None:
    made = []
    expected = []
    for sent in batches:
        batch = batch_of(sent, base)
        made.append(batch)
        read = DefaultRecordBatch(bytearray(batch))
        expected += [(r.offset, r.timestamp, 0, r.key, r.value, list(r.headers)) for r in read]
        base += len(sent) + data.draw(st.integers(0, 3))
    joined = b"".join(made)
    start = data.draw(st.integers(expected[0][0] - 2, expected[-1][0] + 2))
    end = data.draw(st.integers(start, expected[-1][0] + 2))

    columns = decode(joined, spans_of(joined), start, end, with_headers=True)

    assert rows(columns) == [row for row in expected if start <= row[0] < end]


def xerial(data: bytes) -> bytes:
    """As snappy-java frames it: blocks of 32 KiB in the original."""
    blocks = [pa.compress(data[at : at + 5000], "snappy", asbytes=True) for at in range(0, len(data), 5000)]
    header = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    return header + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


CODECS = [
    ("gzip", 1, gzip.compress),
    ("gzip in two members", 1, lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])),
    ("plain snappy", 2, lambda data: pa.compress(data, "snappy", asbytes=True)),
    ("framed snappy", 2, xerial),
    ("lz4", 3, lz4.frame.compress),
    ("lz4 with independent blocks", 3, lambda data: lz4.frame.compress(data, block_linked=False, store_size=False)),
    ("zstd", 4, lambda data: zstandard.ZstdCompressor().compress(data)),
    ("zstd without its size", 4, lambda data: zstandard.ZstdCompressor(write_content_size=False).compress(data)),
]


@pytest.mark.parametrize(("codec", "compress"), [each[1:] for each in CODECS], ids=[each[0] for each in CODECS])
@given(sent=RECORDS)
def test_what_was_compressed_is_what_was_sent(codec: int, compress: Any, sent: list[Sent]) -> None:
    plain = bytes(batch_of(sent, 7))
    body = decompress(codec, memoryview(compress(plain[HEADER_BYTES:])))
    assert bytes(body) == plain[HEADER_BYTES:]

    header = read_header(plain)._replace(attributes=codec)
    columns = decode(memoryview(body), [Span(header, 0, len(body))], 0, 1 << 40, with_headers=True)

    assert rows(columns) == [
        (7 + number, each.timestamp, 0, each.key, each.value, each.headers) for number, each in enumerate(sent)
    ]


@given(RECORDS, st.integers(-(2**40), 2**42))
def test_a_broker_that_gives_the_time_gives_it_to_all(sent: list[Sent], appended: int) -> None:
    data = bytes(batch_of(sent, 0))
    spans = [
        span._replace(header=span.header._replace(attributes=8, max_timestamp=appended)) for span in spans_of(data)
    ]

    columns = decode(data, spans, 0, len(sent), with_headers=False)

    assert columns.timestamp_us.tolist() == [appended * 1000] * len(sent)
    assert columns.timestamp_type.tolist() == [1] * len(sent)
    assert columns.headers is None


class Unreadable(Exception):
    pass


def varint(data: bytes, at: int, most: int) -> tuple[int, int]:
    value = 0
    for number in range(most):
        if at >= len(data):
            raise Unreadable
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            value &= (1 << (32 if most == 5 else 64)) - 1
            return (value >> 1) ^ -(value & 1), at
    raise Unreadable


def piece(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = varint(data, at, 5)
    if size < 0:
        return None, at
    if at + size > len(data):
        raise Unreadable
    return data[at : at + size], at + size


def plainly(data: bytes, header: BatchHeader) -> list[tuple[Any, ...]]:
    """The records of a batch, one after another, as the format says. Raises Unreadable."""
    found: list[tuple[Any, ...]] = []
    at, last = 0, -1
    for _ in range(header.record_count):
        size, at = varint(data, at, 5)
        stop = at + size
        if size < 1 or stop > len(data):
            raise Unreadable
        record = data[:stop]
        timestamp, at = varint(record, at + 1, 10)
        delta, at = varint(record, at, 5)
        key, at = piece(record, at)
        value, at = piece(record, at)
        count, at = varint(record, at, 5)
        headers = []
        if count < 0 or count > len(data):
            raise Unreadable
        for _ in range(count):
            name, at = piece(record, at)
            content, at = piece(record, at)
            if name is None:
                raise Unreadable
            headers.append((name.decode("utf-8", "replace"), content))
        if at != stop or not last < delta <= header.last_offset_delta:
            raise Unreadable
        last = delta
        milliseconds = (header.first_timestamp + timestamp + 2**63) % 2**64 - 2**63
        if abs(milliseconds) > (2**63 - 1) // 1000:
            raise Unreadable
        found.append((header.base_offset + delta, milliseconds, 0, key, value, headers))
    if at != len(data):
        raise Unreadable
    return found


DAMAGES = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=6)), max_size=3)


@settings(max_examples=500)
@given(st.one_of(RECORDS, ALIKE), DAMAGES, st.integers(-3, 3), st.sampled_from([0, 0, 0, -1, 1, -30]))
@example([Sent(NOW, None, b"", [("h", None)] * 4)] * 3, [], 0, 0)
def test_whatever_the_bytes_are_no_row_is_wrong(
    sent: list[Sent], damages: list[tuple[float, bytes]], more: int, cut: int
) -> None:
    """Any bytes give the rows a plain reading gives, or an error where that finds one too."""
    batch = batch_of(sent, 1000)
    body = bytearray(batch[HEADER_BYTES:])
    for place, damage in damages:
        at = int(place * len(body))
        body[at : at + len(damage)] = damage
    body = body[:cut] if cut < 0 else body + bytes(cut)
    header = read_header(batch)
    header = header._replace(record_count=header.record_count + more)
    try:
        expected = plainly(bytes(body), header)
    except Unreadable:
        expected = None
    if header.record_count < 0:
        expected = None

    try:
        got = rows(decode(bytes(body), [Span(header, 0, len(body))], 0, 1 << 40, with_headers=True))
    except BatchMalformed as error:
        assert error.span == 0
        got = None

    assert got == expected
