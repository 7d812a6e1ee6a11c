"""What a leader refuses of a producer, by error code."""

from __future__ import annotations

import struct

import pytest

from regency.broker_agent.log.append_rules import check_produced, check_replicated
from regency.broker_agent.log.errors import RecordsRejected
from regency.kafka.record_batch import iter_batches
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.log_config import LogConfig


def refusal(records, config=None):
    with pytest.raises(RecordsRejected) as caught:
        check_produced(records, config or LogConfig())
    return caught.value.error


def test_one_batch_from_offset_zero_is_accepted(batch):
    assert check_produced(batch(1, 2, 3, producer=(7, 0, 0)), LogConfig()).record_count == 3
    assert check_produced(memoryview(bytearray(batch(1))), LogConfig()).record_count == 1


def test_nothing_and_several_batches_are_invalid(batch):
    for size in (0, 1, 16, 22):
        assert refusal(bytes(size)) is ErrorCode.INVALID_RECORD
    assert refusal(batch(1) + batch(2)) is ErrorCode.INVALID_RECORD
    assert refusal(batch(1) + b"\0") is ErrorCode.INVALID_RECORD


def test_a_batch_that_is_cut_off_is_corrupt(batch):
    built = batch(1)
    for end in range(17, len(built)):
        assert refusal(built[:end]) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_other_message_formats_are_not_supported(batch, magic):
    old = bytearray(batch(1))
    old[16] = magic
    assert refusal(bytes(old)) is ErrorCode.INVALID_RECORD


def test_damage_is_corrupt(batch):
    broken = bytearray(batch(1))
    broken[-1] ^= 1
    assert refusal(broken) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("at", "content", "error"),
    [
        (0, struct.pack(">q", 5), ErrorCode.INVALID_RECORD),
        (23, struct.pack(">i", 3), ErrorCode.INVALID_RECORD),
        (57, struct.pack(">i", 0), ErrorCode.INVALID_RECORD),
        (57, struct.pack(">i", 2), ErrorCode.INVALID_RECORD),
        (43, struct.pack(">qhi", 7, 0, -1), ErrorCode.INVALID_RECORD),
        (43, struct.pack(">qhi", 7, -1, 0), ErrorCode.INVALID_RECORD),
        (21, struct.pack(">h", 0x20), ErrorCode.INVALID_RECORD),
        (21, struct.pack(">h", 0x10), ErrorCode.UNSUPPORTED_VERSION),
        (21, struct.pack(">h", 0x08), ErrorCode.INVALID_TIMESTAMP),
        (21, struct.pack(">h", 0x05), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_a_header_that_contradicts_itself_or_claims_too_much_is_refused(batch, patched, at, content, error):
    assert refusal(patched(batch(1), at, content)) is error


def test_sizes_are_bounded_by_topic_and_segment(batch):
    built = batch(1, value=b"x" * 100)
    size = len(built)
    assert check_produced(built, LogConfig(max_message_bytes=size, segment_bytes=size)).size == size
    assert refusal(built, LogConfig(max_message_bytes=size - 1)) is ErrorCode.MESSAGE_TOO_LARGE
    assert refusal(built, LogConfig(segment_bytes=size - 1)) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_replicated_batches_must_be_sound_and_rise(batch):
    good = batch(1, 2, base=4) + batch(3, base=6)
    check_replicated(good, list(iter_batches(good)))
    for bad in (batch(1, 2, base=4) + batch(3, base=5), good[:-1] + bytes([good[-1] ^ 1])):
        with pytest.raises(RecordsRejected) as caught:
            check_replicated(bad, list(iter_batches(bad)))
        assert caught.value.error is ErrorCode.CORRUPT_MESSAGE
