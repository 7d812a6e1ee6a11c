"""Searches by timestamp in steps: what producers write costs little at a time, and the log may change in between."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from time import thread_time
from typing import Any

import pytest
from crc32c import crc32c

from regency.broker_agent.log.segments.time_lookup import MAX_RECORDS
from regency.broker_agent.steps import Steps, at_once
from regency.model.settings.log_config import LogConfig

NOW = 1_700_000_000_000
LONGEST_STEP_S = 0.05


def varint(value: int) -> bytes:
    encoded, value = bytearray(), value << 1
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


def record(timestamp_delta: int, offset_delta: int, value: bytes = b"") -> bytes:
    rest = b"\0" + varint(timestamp_delta) + varint(offset_delta) + b"\1" + varint(len(value)) + value + b"\0"
    return varint(len(rest)) + rest


def forged(body: bytes, *, count: int = 1, codec: int = 0, first: int = 1000, greatest: int = 2000) -> bytes:
    """A batch whose header is in order."""
    if codec:
        compressor = zlib.compressobj(1, zlib.DEFLATED, 31)
        body = compressor.compress(body) + compressor.flush()
    rest = struct.pack(">hiqqqhii", codec, count - 1, first, greatest, -1, -1, -1, count) + body
    return struct.pack(">qiibI", 0, 9 + len(rest), -1, 2, crc32c(rest)) + rest


def longest(steps: Steps[Any]) -> tuple[Any, float, int]:
    """The outcome, the processor time of the longest step in seconds, and how many there were."""
    most, count = 0.0, 0
    while True:
        began, count = thread_time(), count + 1
        try:
            next(steps)
        except StopIteration as end:
            return end.value, max(most, thread_time() - began), count
        most = max(most, thread_time() - began)


POISON: dict[str, Callable[[], bytes]] = {
    "one endless number": lambda: forged(b"\xff" * 900_000),
    "one endless number, inflated": lambda: forged(b"\xff" * (64 << 20), codec=1),
    "one endless record, inflated": lambda: forged(varint(2**30) + b"\0\0\0" + bytes(65 << 20), count=2, codec=1),
    "a record that is longer than its batch": lambda: forged(varint(100) + b"\0" + varint(900) + varint(0)),
    "a record shorter than its numbers": lambda: forged(varint(2) + b"\0" + varint(900) + varint(0) + b"\0" * 20),
    "an offset outside its batch": lambda: forged(record(900, 77)),
    "more records than anybody reads": lambda: forged(record(0, 0) * 2000, count=2**31 - 1),
}


@pytest.mark.parametrize("what", POISON)
def test_records_that_cannot_be_read_cost_little_at_a_time_and_stay_opaque(disk, what):
    log = disk.log()
    log.append_as_leader(POISON[what](), 0, NOW)
    for search in (log.offset_for_timestamp(1500, 1), log.greatest_timestamp(1)):
        found, most, _ = longest(search)
        assert found == (2000, 0, 0)
        assert most < LONGEST_STEP_S


@pytest.mark.parametrize("codec", [0, 1])
def test_many_records_of_one_batch_take_many_steps(disk, codec):
    count = MAX_RECORDS
    disk.config = LogConfig(max_message_bytes=64 << 20)
    log = disk.log()
    log.append_as_leader(forged(b"".join(record(n // 100, n) for n in range(count)), count=count, codec=codec), 0, NOW)
    found, most, steps = longest(log.offset_for_timestamp(1000 + count // 100 - 1, count))
    assert found == (1000 + count // 100 - 1, count - 100, 0)
    assert most < LONGEST_STEP_S
    assert steps > 10


def small_batches(disk: Any, batch: Callable[..., bytes], count: int, segments: int = 4) -> Any:
    """A log of `count` batches of equal timestamps, of which a time index says nothing, and a later one."""
    one = batch(1000)
    disk.config = LogConfig(segment_bytes=(count + segments) * len(one) // segments)
    log = disk.log()
    for _ in range(count):
        log.append_as_leader(one, 0, NOW)
    log.append_as_leader(batch(3000), 0, NOW)
    return log


def test_a_search_among_many_batches_takes_many_steps(disk, batch):
    log = small_batches(disk, batch, 10_000, segments=1)
    for search in (log.offset_for_timestamp(3000, 10_001), log.greatest_timestamp(10_001)):
        found, most, _ = longest(search)
        assert found == (3000, 10_000, 0)
        assert most < LONGEST_STEP_S
    _, most, steps = longest(log.greatest_timestamp(10_000))
    assert most < LONGEST_STEP_S
    assert steps > 4


@pytest.mark.parametrize("search", ["offset_for_timestamp", "greatest_timestamp"])
def test_a_search_goes_on_in_what_retention_leaves(disk, batch, search):
    log = small_batches(disk, batch, 12_000, segments=2)
    end = log.log_end_offset
    log.set_high_watermark(end)
    steps = log.offset_for_timestamp(3000, end) if search == "offset_for_timestamp" else log.greatest_timestamp(end - 1)
    next(steps)
    log.config = LogConfig(retention_bytes=0)
    assert log.delete_old_segments(NOW) > 0
    log.append_as_leader(batch(4000), 0, NOW)
    found = at_once(steps)
    assert found is None or found.offset >= log.log_start_offset
    assert not list(log.directory.glob("00000000000000000000.log")), "nothing that is gone is opened again"


def test_a_search_begins_again_where_the_log_was_cut(disk, batch):
    log = small_batches(disk, batch, 12_000, segments=1)
    steps = log.offset_for_timestamp(2000, 12_002)
    next(steps)
    log.truncate_to(3)
    log.append_as_leader(batch(2500), 1, NOW)
    assert at_once(steps) == (2500, 3, 1)
