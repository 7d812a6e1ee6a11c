"""The batch header against batches built by two client libraries."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from regency.kafka.record_batch import (
    HEADER_BYTES,
    MAX_SEQUENCE,
    CorruptBatch,
    batch_size,
    crc_matches,
    iter_batches,
    read_header,
    skip_below,
    stamp,
    stamp_log_append_time,
)
from regency.model.ids import LeaderEpoch, Offset


def test_the_header_of_a_producers_batch_reads_field_by_field(batch):
    built = batch(5, 9, 7, producer=(4711, 3, 17), codec=1)

    header = read_header(built)

    assert header._asdict() == {
        "base_offset": 0,
        "length": len(built) - 12,
        "leader_epoch": -1,
        "magic": 2,
        "crc": int.from_bytes(built[17:21], "big"),
        "attributes": 1,
        "last_offset_delta": 2,
        "first_timestamp": 5,
        "max_timestamp": 9,
        "producer_id": 4711,
        "producer_epoch": 3,
        "base_sequence": 17,
        "record_count": 3,
    }
    assert (header.size, header.last_offset, header.next_offset, header.last_sequence) == (len(built), 2, 3, 19)
    assert (header.codec, header.is_transactional, header.is_control, header.is_log_append_time) == (
        1,
        False,
        False,
        False,
    )


@pytest.mark.parametrize("builder_class", [DefaultRecordBatchBuilder, KafkaPythonBuilder])
def test_checksums_agree_with_client_libraries(builder_class):
    builder = builder_class(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=4096,
    )
    for number in range(3):
        builder.append(number, timestamp=1_000 + number, key=b"k", value=b"v" * number, headers=[])
    built = bytes(builder.build())

    header = read_header(built)

    assert crc_matches(built, header)
    assert (header.record_count, header.max_timestamp, header.size) == (3, 1_002, len(built))


def test_one_flipped_bit_after_the_checksum_is_noticed(batch):
    built = batch(1, 2, 3)
    for at in range(21, len(built)):
        broken = bytearray(built)
        broken[at] ^= 0x10
        assert not crc_matches(broken, read_header(built))


def test_stamping_moves_a_batch_without_touching_its_checksum(batch):
    stamped = bytearray(batch(1, 2))
    stamp(stamped, Offset(1 << 40), LeaderEpoch(9))

    header = read_header(stamped)

    assert (header.base_offset, header.last_offset, header.leader_epoch) == (1 << 40, (1 << 40) + 1, 9)
    assert crc_matches(stamped, header)
    assert [record.offset for record in DefaultRecordBatch(bytes(stamped))] == [1 << 40, (1 << 40) + 1]


def test_log_append_time_becomes_the_timestamp_that_clients_see(batch):
    stamped = bytearray(batch(1, 2))
    stamp_log_append_time(stamped, read_header(stamped), 77_000)

    client_view = DefaultRecordBatch(bytes(stamped))

    assert client_view.validate_crc()
    assert [(record.timestamp, record.timestamp_type) for record in client_view] == [(77_000, 1), (77_000, 1)]


def test_walking_stops_at_an_incomplete_last_batch(batch):
    first, second = batch(1, 2), batch(3, base=2)
    whole = first + second
    for cut in range(len(first), len(whole)):
        assert [(at, header.base_offset) for at, header in iter_batches(whole[:cut])] == [(0, 0)]
    assert [at for at, _ in iter_batches(whole)] == [0, len(first)]
    assert [at for at, _ in iter_batches(whole, len(first))] == [len(first)]
    assert batch_size(whole, len(first)) == len(second)


def test_skipping_by_lengths_alone_agrees_with_walking(batch):
    built = [batch(*[1] * count, base=base) for base, count in ((10, 2), (12, 1), (20, 3))]
    whole = b"".join(built)
    begins = [0, len(built[0]), len(built[0]) + len(built[1]), len(whole)]
    assert [skip_below(whole, offset) for offset in (0, 10, 11, 12, 13, 20, 22, 23)] == [
        0, 0, 0, begins[1], begins[2], begins[2], begins[2], begins[3]
    ]  # fmt: skip
    with pytest.raises(CorruptBatch, match="length 0"):
        skip_below(b"\0" * 70, 5)


@pytest.mark.parametrize(
    ("at", "content", "why"),
    [
        (8, (48).to_bytes(4, "big"), "length 48"),
        (8, (-1).to_bytes(4, "big", signed=True), "length -1"),
        (16, b"\x01", "format is 1"),
        (23, (-1).to_bytes(4, "big", signed=True), "last offset"),
    ],
)
def test_bytes_that_cannot_be_a_header_are_refused(batch, at, content, why):
    broken = bytearray(batch(1))
    broken[at : at + len(content)] = content
    with pytest.raises(CorruptBatch, match=why):
        read_header(broken)


def test_a_header_needs_61_bytes(batch):
    with pytest.raises(CorruptBatch, match="60 bytes are fewer"):
        read_header(batch(1)[: HEADER_BYTES - 1])


def test_sequence_numbers_wrap_from_the_greatest_to_zero(batch):
    header = read_header(batch(1, 1, 1, producer=(1, 0, MAX_SEQUENCE - 1)))
    assert header.last_sequence == 0
    assert read_header(batch(1, 1)).last_sequence == -1
