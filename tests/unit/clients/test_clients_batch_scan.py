"""What is found in an answer: batches of the range, gaps passed over, and where bytes are none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from regency.clients.batch_scan import Batches, scan
from regency.kafka.record_batch import HEADER_BYTES

Make = Callable[..., bytes]


def look(data: bytes, position: int, end: int, *, high_watermark: int = 1000) -> Batches:
    return scan(memoryview(data), position, end, check_crcs=True, high_watermark=high_watermark)


def bases(found: Batches) -> list[int]:
    return [header.base_offset for _, header in found.headers]


@pytest.fixture
def three(batch: Make) -> bytes:
    """Offsets 0 to 9, 10 to 19, 50 to 59: compaction left a gap."""
    return b"".join(batch(base, [b"x"] * 10) for base in (0, 10, 50))


@pytest.mark.parametrize(
    ("position", "end", "found", "following"),
    [
        (0, 100, [0, 10, 50], 60),
        (5, 100, [0, 10, 50], 60),
        (10, 20, [10], 20),
        (12, 13, [10], 20),
        (20, 40, [], 50),
        (20, 51, [50], 60),
        (59, 60, [50], 60),
        (60, 70, [], 60),
    ],
)
def test_batches_of_a_range(three: bytes, position: int, end: int, found: list[int], following: int) -> None:
    batches = look(three, position, end)
    assert (bases(batches), batches.next_offset, batches.corruption) == (found, following, None)


def test_an_incomplete_last_batch_is_left_for_the_next_fetch(three: bytes) -> None:
    for cut in (1, 30, 80):
        batches = look(three[:-cut], 0, 100)
        assert (bases(batches), batches.next_offset, batches.corruption) == ([0, 10], 20, None)


def test_a_first_batch_that_is_not_whole_is_no_batch(three: bytes) -> None:
    for size in (1, 60, 61, 70):
        batches = look(three[:size], 0, 100)
        assert batches.corruption is not None
        assert batches.corruption.reason == f"only {size} bytes of it came"
    assert look(b"", 0, 100) == Batches(memoryview(b""), [], 0, 0, None)


def test_control_batches_and_empty_ones_are_passed_over(batch: Make) -> None:
    control = bytearray(batch(0, [b"x"] * 3))
    control[22] |= 0x20
    empty = bytearray(batch(3, [b"x"]))[:HEADER_BYTES]
    empty[8:12] = (HEADER_BYTES - 12).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    data = bytes(control) + bytes(empty) + batch(4, [b"x"])
    batches = scan(memoryview(data), 0, 100, check_crcs=False, high_watermark=1000)
    assert (bases(batches), batches.next_offset, batches.corruption) == ([4], 5, None)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused_by_name(batch: Make, magic: int) -> None:
    old = bytearray(batch(10, [b"x"] * 10))
    old[16] = magic
    batches = look(batch(0, [b"x"] * 10) + bytes(old), 0, 100)
    assert bases(batches) == [0]
    assert batches.corruption is not None
    assert batches.corruption[:3] == (10, None, f"its format is {magic}, and only 2 is read")
    assert "before 0.11" in batches.corruption.hint


def test_what_is_no_batch_ends_the_walk(batch: Make) -> None:
    first = batch(0, [b"x"] * 10)
    for broken, reason in (
        (bytes(8) + b"\xff" * 4 + bytes(4) + b"\2" + bytes(60), "its length -1 is less than 49"),
        (bytes(16) + b"\3" + bytes(60), "its length 0 is less than 49"),
        (bytes(8) + (60).to_bytes(4, "big") + bytes(4) + b"\3" + bytes(60), "its format is 3, not 2"),
    ):
        batches = look(first + broken, 0, 100)
        assert (bases(batches), batches.next_offset) == ([0], 10)
        assert batches.corruption is not None
        assert batches.corruption[:3] == (10, None, reason)


def test_offsets_that_go_back_are_no_batch(batch: Make) -> None:
    batches = look(batch(0, [b"x"] * 10) + batch(5, [b"x"] * 10), 0, 100)
    assert bases(batches) == [0]
    assert batches.corruption is not None
    assert batches.corruption.reason == "it begins at offset 5, below the end of the one before"


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 0xFF])


def test_where_to_go_on_behind_a_wrong_checksum(batch: Make) -> None:
    bad = flipped(batch(10, [b"x"] * 10))
    told = look(bad + batch(30, [b"x"]), 12, 100).corruption
    assert told is not None
    assert (told.offset, told.next_offset) == (12, 30)
    assert told.reason.startswith("its checksum is ")
    alone = look(bad, 10, 100).corruption
    assert alone is not None
    assert alone.next_offset == 20
    beyond = look(bad, 10, 100, high_watermark=19).corruption
    assert beyond is not None
    assert beyond.next_offset is None
