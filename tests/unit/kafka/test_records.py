"""Batches of records that brokers write and read themselves, next to what other libraries make of the same bytes."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from kafka.record.default_records import DefaultRecordBatchBuilder

from regency.kafka.record_batch import CorruptBatch, crc_matches, read_header
from regency.kafka.records import GZIP, LZ4, NO_CODEC, SNAPPY, ZSTD, encode_batch, iter_records

NOW = 1_700_000_000_000
RECORDS = [(b"k", b"v"), (b"key" * 100, b"value" * 10_000), (b"gone", None), (b"", b"")]


def made_elsewhere(codec: int, records=RECORDS) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for number, (key, value) in enumerate(records):
        builder.append(number, timestamp=NOW + number * 1_000_000, key=key, value=value, headers=[("h", b"x")])
    return bytes(builder.build())


@pytest.mark.parametrize("codec", [NO_CODEC, GZIP])
def test_others_read_what_is_encoded(codec: int) -> None:
    data = encode_batch(RECORDS, NOW, codec)
    header = read_header(data)
    assert crc_matches(data, header)
    assert (header.size, header.record_count, header.codec) == (len(data), 4, codec)
    assert (header.producer_id, header.base_sequence, header.max_timestamp) == (-1, -1, NOW)
    records = list(DefaultRecordBatch(bytes(data)))
    assert [(record.key, record.value) for record in records] == RECORDS
    assert [(record.offset, record.timestamp) for record in records] == [(number, NOW) for number in range(4)]


@pytest.mark.parametrize("codec", [NO_CODEC, GZIP, LZ4, ZSTD])
def test_what_others_encode_is_read(codec: int) -> None:
    data = b"before" + made_elsewhere(codec)
    assert list(iter_records(data, read_header(data, 6), 6)) == RECORDS


def test_a_record_without_a_key_is_read_as_one() -> None:
    data = made_elsewhere(NO_CODEC, [(None, b"v")])
    assert list(iter_records(data, read_header(data))) == [(None, b"v")]


@pytest.mark.parametrize("cut", [1, 5, 9, 20])
def test_a_batch_that_ends_inside_a_record_is_corrupt(cut: int) -> None:
    data = encode_batch([(b"key", b"value")] * 2, NOW)[:-cut]
    header = read_header(data)._replace(length=len(data) - 12)
    with pytest.raises(CorruptBatch):
        list(iter_records(data, header))


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD, 6])
def test_what_does_not_inflate_is_corrupt(codec: int) -> None:
    data = encode_batch([(b"key", b"value")], NOW)
    header = read_header(data)._replace(attributes=codec)
    with pytest.raises(CorruptBatch):
        list(iter_records(data, header))


def test_a_codec_without_a_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from regency.kafka import records

    monkeypatch.setitem(records._LIBRARIES, SNAPPY, (lambda: False, None, "snappy", "python-snappy"))
    data = encode_batch([(b"key", b"value")], NOW)
    with pytest.raises(records.CodecMissing) as raised:
        list(iter_records(data, read_header(data)._replace(attributes=SNAPPY)))
    assert raised.value.hint == "Install python-snappy with the pip of this Python."
